"""Speed on a GPU: training steps of one batch and of batches in flight together, compared with
GPyTorch and with the limit that matrix products set; the kernels of a large step; a step of a
mixture; and the cells of a figure, from command to records."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import torch

from dlmexp.common.errors import UserError
from scripts.benchmark import kernels
from scripts.benchmark.measure import Measurement, arguments, fastest, print_all
from scripts.benchmark.steps import gpytorch_step, joint_step, mixture_step, one_split

# Floating-point operations of the matrix products in a step, in units of M x M x n: a triangular
# matrix times a matrix, a square one times a matrix, and a symmetric product (`gp.posterior`,
# `gp.collapsed`).
PRODUCTS = 1 + 2 + 1
REPLAYS = 5  # steps of a batch before the next batch has its turn
ROUNDS = 4  # turns of all batches before the device is waited for
COLUMNS = (
    "model-steps/s",
    "one batch",
    "batches together",
    "of the product limit",
    "x GPyTorch batch_shape",
    "x GPyTorch, one model",
)


class Shape(NamedTuple):
    """The shape of a benchmark.

    Attributes:
        n: The number of training rows.
        M: The number of inducing inputs.
        D: The number of features.
        B: The number of models in a batch.
        batches: The number of batches that train at the same time.
        likelihood: The likelihood.
        objective: The objective.
    """

    n: int
    M: int
    D: int
    B: int
    batches: int
    likelihood: str = "probit"
    objective: str = "log_dlm"


SHAPES = (  # of the paper
    Shape(1000, 74, 20, 90, 8),
    Shape(1000, 200, 8, 15, 12),
    Shape(2766, 206, 8, 5, 12, "gaussian", "elbo"),
    Shape(11000, 206, 8, 100, 1),
)
# (n, M, D, B) of the largest shape, and of a part of it whose arrays stay in the GPU's cache.
LARGE_AND_IN_CACHE = ((11_000, 206, 8, 100), (1024, 206, 8, 6))

MIXTURE = {"B": 12, "n": 512, "M": 256, "D": 8, "K": 8}
MIXTURE_LIMIT = 2.0  # milliseconds of a step


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table in model-steps per second, then a line per measurement."""
    parts = ["shapes", "kernels", "mixture", "block"]
    args = arguments("gpu", __doc__, parts, argv, seconds=5.0, dataset="ringnorm")
    if args.device != "cuda":
        raise UserError("there is no CUDA device here; `core` measures training steps on a CPU")
    limit = 0.0
    if {"shapes", "kernels"} & set(args.parts):
        limit = product_rate(args.device)
        print(f"float64 matrix products: {limit / 1e12:.3g} TFLOP/s")
    if "shapes" in args.parts:
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for shape in SHAPES:
            row = shape_row(shape, args.device, args.seconds, limit)
            print(f"| {' | '.join(row)} |", flush=True)
    if "kernels" in args.parts:
        print(f"| {' | '.join(kernels.COLUMNS)} |\n|{'---|' * len(kernels.COLUMNS)}")
        for row in kernels.rows(LARGE_AND_IN_CACHE, args.seconds / 10, limit):
            print(f"| {' | '.join(row)} |", flush=True)
    if "mixture" in args.parts:
        print_all([mixture(args.device, args.seconds)])
    return print_all(block(args.dataset, args.device) if "block" in args.parts else ())


def shape_row(shape: Shape, device: str, seconds: float, limit: float) -> list[str]:
    """Return a row of the table.

    It has the model-steps per second of a single batch and of several batches at the same time, and
    how many times faster the latter are than GPyTorch with `batch_shape` and with one model.
    """
    n, M, D, B, batches, likelihood, objective = shape
    single = B * steps_per_second(shape, device, 1, seconds)
    several = B * steps_per_second(shape, device, batches, seconds)
    X, y = one_split(n, D, likelihood, device)
    speedups = []
    for models in (B, None):
        try:
            step = gpytorch_step(X, y, M, objective, models, likelihood)
            gpytorch = (models or 1) / fastest({"": step}, seconds / 2, device)[""]
            speedups.append(f"{several / gpytorch:.1f}")
        except torch.OutOfMemoryError:
            speedups.append("out of memory")
    operations_per_second = several * PRODUCTS * M**2 * n
    return [
        f"{objective}, {likelihood}, n={n} M={M} d={D} B={B}",
        f"{single:.0f}",
        f"{several:.0f} ({batches})",
        f"{operations_per_second / limit:.0%}",
        *speedups,
    ]


def steps_per_second(shape: Shape, device: str, batches: int, seconds: float) -> float:
    """Return the steps per second of all batches together.

    On a GPU, each batch has a CUDA graph on a stream of its own; the graphs are replayed in turn.
    """
    lanes: list[tuple[torch.cuda.Stream | None, Callable[[], None]]] = []
    for _ in range(batches):
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):  # does nothing for None
            step = joint_step(
                shape.B,
                shape.likelihood,
                shape.objective,
                n=shape.n,
                M=shape.M,
                D=shape.D,
                device=device,
            )
        lanes.append((stream, step))

    def replay() -> None:
        for stream, step in ROUNDS * lanes:
            with torch.cuda.stream(stream):
                for _ in range(REPLAYS):
                    step()

    steps = ROUNDS * REPLAYS * batches
    return steps / fastest({"": replay}, seconds, device)[""]


def mixture(device: str, seconds: float) -> Measurement:
    """Return the time of a step of a log-loss DLM with several Gaussians, on a minibatch."""
    step = mixture_step(**MIXTURE, device=device)
    took = fastest({"": step}, seconds, device)[""]
    size = ", ".join(f"{name}={number}" for name, number in MIXTURE.items())
    return Measurement(f"mixture DLM, {size}: a step of all", 1e3 * took, "ms", MIXTURE_LIMIT)


def product_rate(device: str) -> float:
    """Return the floating-point operations per second of a large float64 matrix product."""
    size = 4096 if device == "cuda" else 512
    a, b = torch.randn(2, size, size, dtype=torch.float64, device=device)
    operations = 2 * size**3
    return operations / fastest({"": lambda: torch.mm(a, b)}, 1.0, device)[""]


def block(dataset: str, device: str) -> Iterator[Measurement]:
    """Yield the time to run the cells of a classification figure, from command to records.

    They have 5 sizes, the full beta grid, 5 seeds and 4 methods. GPyTorch's time is extrapolated:
    the time of a step of one model of each size, times the steps of our cells of that size.
    """
    import dlmexp

    words = [
        f"dataset={dataset}",
        "method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]",
        f"device={device}",
    ]
    torch.cuda.empty_cache()  # for the process that is about to be measured
    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        command = [sys.executable, "-P", "-m", "dlmexp", "run", *words, f"results={folder}/results"]
        subprocess.run(command, stdout=subprocess.DEVNULL)  # prints its errors itself
        ours = perf_counter() - start
        cells = dlmexp.results(f"{folder}/results").cells
    done = cells[cells["status"] == "done"]
    gpytorch = 0.0
    summed = done.groupby(["n", "M", "objective"], as_index=False)["iterations"].sum()
    for n, M, objective, steps in summed.itertuples(index=False):
        X, y = one_split(int(n), 20, "probit", device)
        step = gpytorch_step(X, y, int(M), objective)
        gpytorch += steps * fastest({"": step}, 0.0, device)[""]
    label = f"{dataset} block, {len(done)} cells"
    yield Measurement(f"{label}: from command to records", ours, "s")
    yield Measurement(f"{label}: GPyTorch one by one, extrapolated", gpytorch, "s")
    yield Measurement(f"{label}: times faster (extrapolated)", gpytorch / ours, "x")
