"""Speed on a GPU: training steps with as many batches in flight as a run has, compared with GPyTorch and with the limit
that matrix products set; and the cells of a figure from command to records."""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter

from dlmexp.benchmark.measure import Measurement, give_back_memory, print_all, print_device, synchronise
from dlmexp.benchmark.shapes import SHAPES, Shape
from dlmexp.benchmark.watts import watts_of
from dlmexp.errors import UserError

PARTS = ("shapes", "block")
MIN_SPEEDUP = 5.0  # over GPyTorch with batch_shape
BLOCK_SECONDS = 12.0
STEPS = 20  # to time one GPyTorch model of the block
COLUMNS = (
    "model-steps/s", "one batch", "all streams (batches)", "aim", "W", "of the product limit",
    "x GPyTorch batch_shape", "x GPyTorch, one model",
)  # fmt: skip
NO_GPU = "there is no CUDA device here; `dlmexp benchmark core` measures training steps on a CPU"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what it measures; exit code 1 if an aim is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: both)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each shape (default: 5)")
    parser.add_argument(
        "--dataset", default="ringnorm", help="dataset of the block, e.g. ringnorm_drawn (default: ringnorm)"
    )
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"benchmark gpu: {NO_GPU}")
    device = print_device("cuda")
    parts, met = args.parts or ["shapes", "block"], True
    if "shapes" in parts:
        met &= shapes(device, args.seconds)
    if "block" in parts:
        met &= print_all(block(args.dataset, device))
    return 0 if met else 1


def shapes(device: str, seconds: float, chosen: Sequence[Shape] = SHAPES) -> bool:
    """Prints a row of a table for each shape. Returns whether all aims are met."""
    from dlmexp.benchmark.streams import product_rate

    limit, met = product_rate(device), True
    print(f"float64 matrix products: {limit / 1e12:.3g} TFLOP/s")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for shape in chosen:
        row, fine = shape_row(shape, device, seconds, limit)
        print(row, flush=True)
        met &= fine
    return met


def shape_row(shape: Shape, device: str, seconds: float, limit: float) -> tuple[str, bool]:
    """One batch alone, all that a run has in flight, GPyTorch with `batch_shape` and with one model; and whether the
    aims are met. A collapsed objective is compared with GPyTorch's ELBO of an explicit q, which it has for batches."""
    from dlmexp.benchmark.streams import in_flight, steps_per_second

    batch = shape.batch()
    alone = shape.B * steps_per_second(batch, shape.D, device, 1, seconds)
    together = in_flight(batch, device)
    with watts_of(device) as watts:
        everything = shape.B * steps_per_second(batch, shape.D, device, together, seconds)
    theirs, one = (_gpytorch_rate(shape, device, seconds / 2, size) for size in (shape.B, None))
    met = (shape.aim is None or everything >= shape.aim) and (theirs is None or everything >= MIN_SPEEDUP * theirs)
    aim = "-" if shape.aim is None else f"{shape.aim:.0f}, {'met' if everything >= shape.aim else 'NOT MET'}"
    cells = [
        shape.label, f"{alone:.0f}", f"{everything:.0f} ({together})", aim, str(watts),
        f"{everything * shape.operations / limit:.0%}", _times(everything, theirs), _times(everything, one),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |", met


def _times(ours: float, theirs: float | None) -> str:
    return "out of memory" if theirs is None else f"{ours / theirs:.1f}"


def _gpytorch_rate(shape: Shape, device: str, seconds: float, B: int | None) -> float | None:
    """Model-steps per second of GPyTorch with B models in a batch, or one; None if it does not fit into memory."""
    import torch

    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.benchmark.measure import fastest
    from dlmexp.training.trial import synthetic_data

    X, y = (part[0] for part in synthetic_data(1, shape.n, shape.D, shape.likelihood, device))
    try:
        step = gpytorch_step(X, y, shape.M, shape.objective, B, likelihood=shape.likelihood)
        return (B or 1) / fastest({"": step}, seconds, device)[""]
    except torch.OutOfMemoryError:
        return None


def block(dataset: str, device: str, overrides: Sequence[str] = ()) -> list[Measurement]:
    """Time to run the cells of a classification figure, from the command to the records: 5 sizes, the full beta grid,
    5 seeds, 4 methods.

    GPyTorch's time is extrapolated: the time of a step of one model of each size and method, times the iterations that
    our cells of that size and method took.
    """
    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.plan.compose import compose
    from dlmexp.records.store import Store
    from dlmexp.running.sweep import prepare_sweep
    from dlmexp.training.trial import synthetic_data

    words = [f"dataset={dataset}", "method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]", f"device={device}"]
    give_back_memory(device)
    with tempfile.TemporaryDirectory() as folder:
        words += [f"results={folder}/results", *overrides]
        start = perf_counter()
        with watts_of(device) as watts:
            ran = subprocess.run([sys.executable, "-m", "dlmexp", "run", *words], stdout=subprocess.DEVNULL)
        ours = perf_counter() - start
        if ran.returncode > 1:  # 1: some cells failed
            raise UserError(f"'dlmexp run {' '.join(words)}' ended with exit code {ran.returncode}: run it to see why")
        records = [record for record in Store(f"{folder}/results").all() if record.done]
        features = prepare_sweep(compose(words)).datasets[dataset][1].X.shape[1]
    steps: Counter[tuple[int, int, str, str]] = Counter()
    for record in records:
        cell = record.cell
        steps[cell.n, cell.M, cell.objective, cell.variant] += record.result.iterations or 0
    theirs = 0.0
    for (n, M, objective, variant), count in steps.items():
        X, y = (part[0] for part in synthetic_data(1, n, features, "probit", device))
        theirs += count * _mean_seconds(gpytorch_step(X, y, M, objective, only_q=variant == "fixed"), device)
    label = f"{dataset} block, {len(records)} cells"
    return [
        Measurement(f"{label}: from command to records ({watts} W)", ours, "s", BLOCK_SECONDS),
        Measurement(f"{label}: GPyTorch one by one, extrapolated from {len(steps)} models", theirs, "s"),
        Measurement(f"{label}: times faster (extrapolated)", theirs / ours, "x"),
    ]


def _mean_seconds(step: Callable[[], None], device: str) -> float:
    for _ in range(3):
        step()
    synchronise(device)
    start = perf_counter()
    for _ in range(STEPS):
        step()
    synchronise(device)
    return (perf_counter() - start) / STEPS


if __name__ == "__main__":
    raise SystemExit(main())
