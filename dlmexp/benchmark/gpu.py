"""The effect of batching on a GPU: model-steps per second of GPyTorch with one model at a time, of GPyTorch with
`batch_shape`, and ours; and the time of a whole figure's block compared with GPyTorch."""

import argparse
import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dlmexp.benchmark.measure import Measurement, print_all, print_device, synchronise

if TYPE_CHECKING:
    from torch import Tensor


class Shape(NamedTuple):
    """n training rows, M inducing inputs, D features, B models at once."""

    n: int
    M: int
    D: int
    B: int
    min_speedup: float | None = None  # over GPyTorch with one model at a time


SHAPES = (
    Shape(1000, 74, 20, 90, 300.0),
    Shape(1000, 200, 8, 15),
    Shape(6000, 100, 21, 100),
    Shape(11000, 206, 8, 100, 25.0),
)
STEPS = 20  # to time one GPyTorch model of the block


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure: shapes, block (default: both)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="device to measure on (default: cuda if there is one)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each shape (default: 5)")
    parser.add_argument(
        "--dataset", default="ringnorm", help="dataset of the block, e.g. ringnorm_drawn (default: ringnorm)"
    )
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in ("shapes", "block"):
            parser.error(f"unknown part '{part}': shapes, block")
    device = print_device(args.device)
    all_met = True
    if "shapes" in (args.parts or ["shapes"]):
        for shape in SHAPES:
            all_met &= print_all(model_steps(shape, device, args.seconds))
    if "block" in (args.parts or ["block"]):
        all_met &= print_all(block(args.dataset, device))
    return 0 if all_met else 1


def model_steps(shape: Shape, device: str, seconds: float) -> list[Measurement]:
    """Joint log-DLM, probit: training steps per second, each step of a batch counted once per model."""
    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.benchmark.measure import fastest
    from dlmexp.training.trial import joint_step, synthetic_data

    n, M, D, B, min_speedup = shape
    X, y = (part[0] for part in synthetic_data(1, n, D, "probit", device))
    cases = {"ours": joint_step(B, n=n, M=M, D=D, device=device), "alone": gpytorch_step(X, y, M, "log_dlm")}
    best = fastest(cases, seconds, device)
    label = f"n={n} M={M} d={D}, model-steps/s"
    lines = [Measurement(f"{label}: GPyTorch, one model at a time", 1 / best["alone"], "/s")]
    if (batched := _gpytorch_batched_seconds(X, y, M, B, device, seconds)) is not None:
        lines.append(Measurement(f"{label}: GPyTorch, batch_shape={B}", B / batched, "/s"))
        lines.append(Measurement(f"{label}: ours / GPyTorch batch_shape={B}", batched / best["ours"], "x"))
    lines.append(Measurement(f"{label}: ours, {B} at once", B / best["ours"], "/s"))
    speedup = best["alone"] * B / best["ours"]
    return [*lines, Measurement(f"{label}: ours / GPyTorch one at a time", speedup, "x", min_speedup, at_least=True)]


def _gpytorch_batched_seconds(X: "Tensor", y: "Tensor", M: int, B: int, device: str, seconds: float) -> float | None:
    """Seconds of a step of GPyTorch with `batch_shape`; None if it does not fit into memory."""
    import torch

    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.benchmark.measure import fastest

    try:
        return fastest({"": gpytorch_step(X, y, M, "log_dlm", B)}, seconds / 2, device)[""]
    except torch.OutOfMemoryError:
        print(f"GPyTorch with batch_shape={B} runs out of memory at n={len(y)} M={M}", flush=True)
        return None


def block(dataset: str, device: str, overrides: Sequence[str] = ()) -> list[Measurement]:
    """Time to run the cells of a classification figure: 5 sizes, the full beta grid, 5 seeds, 4 methods.

    GPyTorch's time is extrapolated: the time of a step of one model of each size and method, times the iterations that
    our cells of that size and method took.
    """
    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.plan.compose import compose
    from dlmexp.records.store import Store
    from dlmexp.running.run import execute
    from dlmexp.running.sweep import prepare_sweep
    from dlmexp.training.trial import synthetic_data

    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            [f"dataset={dataset}", "method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]", f"device={device}",
             f"results={folder}", *overrides]
        )  # fmt: skip
        start = perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            execute(config)
        ours = perf_counter() - start
        records = [record for record in Store(folder).all() if record.done]
    features = prepare_sweep(config).datasets[dataset][1].X.shape[1]
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
        Measurement(f"{label}: ours, from command to records", ours, "s"),
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
