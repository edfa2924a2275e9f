"""Speed on a GPU: training steps of one batch and of batches in flight together, compared with
GPyTorch and with the limit that matrix products set; and the cells of a figure, from command to
records."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import torch

from dlmexp.common.errors import UserError
from scripts.benchmark.measure import Measurement, arguments, fastest, print_all
from scripts.benchmark.steps import gpytorch_step, joint_step, one_split

# Floating-point operations of the products in a step, in M x M x n: a triangle times a matrix, a
# square one times a matrix, and a symmetric product (`gp.posterior`, `gp.collapsed`).
PRODUCTS = 1 + 2 + 1
REPLAYS, ROUNDS = (
    5,
    4,
)  # of a batch before the next one is given to the device; of all, before the device is waited for
COLUMNS = (
    "model-steps/s",
    "one batch",
    "batches together",
    "of the product limit",
    "x GPyTorch batch_shape",
    "x GPyTorch, one model",
)


class Shape(NamedTuple):
    """B models at once, with n training rows, M inducing inputs and D features; so many batches are
    in flight."""

    n: int
    M: int
    D: int
    B: int
    batches: int
    likelihood: str = "probit"
    objective: str = "log_dlm"


SHAPES = (
    Shape(1000, 74, 20, 90, 8),
    Shape(1000, 200, 8, 15, 12),
    Shape(2766, 206, 8, 5, 12, "gaussian", "elbo"),
    Shape(11000, 206, 8, 100, 1),
)  # of the paper


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table in model-steps per second, then a line per measurement of the block."""
    args = arguments("gpu", __doc__, ["shapes", "block"], argv, seconds=5.0, dataset="ringnorm")
    if args.device != "cuda":
        raise UserError("there is no CUDA device here; `core` measures training steps on a CPU")
    if "shapes" in args.parts:
        limit = product_rate(args.device)
        print(f"float64 matrix products: {limit / 1e12:.3g} TFLOP/s")
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for shape in SHAPES:
            print(
                f"| {' | '.join(shape_row(shape, args.device, args.seconds, limit))} |", flush=True
            )
    return print_all(block(args.dataset, args.device) if "block" in args.parts else ())


def shape_row(shape: Shape, device: str, seconds: float, limit: float) -> list[str]:
    """A row of the table: one batch alone, batches in flight, GPyTorch with `batch_shape` and with
    one model."""
    n, M, D, B, together, likelihood, objective = shape
    alone = B * steps_per_second(shape, device, 1, seconds)
    everything = B * steps_per_second(shape, device, together, seconds)
    X, y = one_split(n, D, likelihood, device)
    times = []
    for models in (B, None):
        try:
            theirs = gpytorch_step(X, y, M, objective, models, likelihood)
            rate = (models or 1) / fastest({"": theirs}, seconds / 2, device)[""]
            times.append(f"{everything / rate:.1f}")
        except torch.OutOfMemoryError:
            times.append("out of memory")
    return [
        f"{objective}, {likelihood}, n={n} M={M} d={D} B={B}",
        f"{alone:.0f}",
        f"{everything:.0f} ({together})",
        f"{everything * PRODUCTS * M**2 * n / limit:.0%}",
        *times,
    ]


def steps_per_second(shape: Shape, device: str, together: int, seconds: float) -> float:
    """Steps of all batches: on a GPU each has a graph on its own stream, and they are replayed in
    turn."""
    lanes: list[tuple[torch.cuda.Stream | None, Callable[[], None]]] = []
    for _ in range(together):
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):  # does nothing for None
            lanes.append(
                (
                    stream,
                    joint_step(
                        shape.B, shape.likelihood, shape.objective, None, *shape[:3], device
                    ),
                )
            )

    def replay() -> None:
        for stream, step in ROUNDS * lanes:
            with torch.cuda.stream(stream):
                for _ in range(REPLAYS):
                    step()

    return ROUNDS * REPLAYS * together / fastest({"": replay}, seconds, device)[""]


def product_rate(device: str) -> float:
    """Floating-point operations per second of a large product of float64 matrices."""
    size = 4096 if device == "cuda" else 512
    a, b = torch.randn(2, size, size, dtype=torch.float64, device=device)
    return 2 * size**3 / fastest({"": lambda: torch.mm(a, b)}, 1.0, device)[""]


def block(dataset: str, device: str) -> Iterator[Measurement]:
    """Time to run the cells of a classification figure, from the command to the records: 5 sizes,
    the full beta grid, 5 seeds, 4 methods. GPyTorch's time is extrapolated: that of a step of one
    model of each size, times the iterations that our cells of that size took."""
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
        subprocess.run(command, stdout=subprocess.DEVNULL)  # says itself what fails
        ours = perf_counter() - start
        cells = dlmexp.results(f"{folder}/results").cells
    done = cells[cells["status"] == "done"]
    theirs = 0.0
    summed = done.groupby(["n", "M", "objective"], as_index=False)["iterations"].sum()
    for n, M, objective, steps in summed.itertuples(index=False):
        X, y = one_split(int(n), 20, "probit", device)
        step = gpytorch_step(X, y, int(M), objective)
        theirs += steps * fastest({"": step}, 0.0, device)[""]
    label = f"{dataset} block, {len(done)} cells"
    yield Measurement(f"{label}: from command to records", ours, "s")
    yield Measurement(f"{label}: GPyTorch one by one, extrapolated", theirs, "s")
    yield Measurement(f"{label}: times faster (extrapolated)", theirs / ours, "x")
