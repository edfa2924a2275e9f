"""What the batch dimension is worth on a GPU: model-steps per second of GPyTorch one model at a time, of GPyTorch with
`batch_shape`, and ours; and a whole figure's block against GPyTorch one model at a time."""

import argparse
import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dlmexp.benchmark.core import Line, print_device

if TYPE_CHECKING:
    from torch import Tensor


class Shape(NamedTuple):
    """n training rows, M inducing inputs, D features, B models at once."""

    n: int
    M: int
    D: int
    B: int
    promised: float | None = None  # times faster than GPyTorch one by one


SHAPES = (
    Shape(1000, 74, 20, 90, 300.0),
    Shape(1000, 200, 8, 15),
    Shape(6000, 100, 21, 100),
    Shape(11000, 206, 8, 100, 25.0),
)
STEPS = 20  # of GPyTorch, to time one model of a block


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per quantity; exit code 1 if one is not what was promised."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of shapes, block (default: both)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="to measure on (default: cuda where there is one)")
    parser.add_argument("--seconds", type=float, default=5.0, help="spent on each shape (default: 5)")
    parser.add_argument("--dataset", default="ringnorm", help="of the block (default: ringnorm; ringnorm_drawn)")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in ("shapes", "block"):
            parser.error(f"unknown part '{part}': shapes, block")
    device = print_device(args.device)
    kept = True
    if "shapes" in (args.parts or ["shapes"]):
        for shape in SHAPES:
            kept &= _print(model_steps(shape, device, args.seconds))
    if "block" in (args.parts or ["block"]):
        kept &= _print(block(args.dataset, device))
    return 0 if kept else 1


def _print(lines: list[Line]) -> bool:
    for line in lines:
        print(line, flush=True)
    return all(line.kept for line in lines)


def model_steps(shape: Shape, device: str, seconds: float) -> list[Line]:
    """Joint log-DLM, probit: training steps of single models per second."""
    from dlmexp.benchmark.rival import gpytorch_step
    from dlmexp.benchmark.timing import fastest
    from dlmexp.training.trial import joint_step, synthetic_data

    n, M, D, B, promised = shape
    X, y = (part[0] for part in synthetic_data(1, n, D, "probit", device))
    cases = {"ours": joint_step(B, n=n, M=M, D=D, device=device), "alone": gpytorch_step(X, y, M, "log_dlm")}
    best = fastest(cases, seconds, device)
    what = f"n={n} M={M} d={D}, model-steps/s"
    lines = [Line(f"{what}: GPyTorch, one model at a time", 1 / best["alone"], "/s")]
    if (together := _together(X, y, M, B, device, seconds)) is not None:
        lines.append(Line(f"{what}: GPyTorch, batch_shape={B}", B / together, "/s"))
        lines.append(Line(f"{what}: ours / GPyTorch batch_shape={B}", together / best["ours"], "x"))
    lines.append(Line(f"{what}: ours, {B} at once", B / best["ours"], "/s"))
    times = best["alone"] * B / best["ours"]
    return [*lines, Line(f"{what}: ours / GPyTorch one at a time", times, "x", promised, at_least=True)]


def _together(X: "Tensor", y: "Tensor", M: int, B: int, device: str, seconds: float) -> float | None:
    """A step of GPyTorch's own batch; None where it does not fit into memory."""
    import torch

    from dlmexp.benchmark.rival import gpytorch_step
    from dlmexp.benchmark.timing import fastest

    try:
        return fastest({"": gpytorch_step(X, y, M, "log_dlm", B)}, seconds / 2, device)[""]
    except torch.OutOfMemoryError:
        print(f"GPyTorch with batch_shape={B} runs out of memory at n={len(y)} M={M}", flush=True)
        return None


def block(dataset: str, device: str, words: Sequence[str] = ()) -> list[Line]:
    """The block of a classification figure: 5 sizes, the full beta grid, 5 seeds, 4 methods, from command to records.

    GPyTorch's time is extrapolated: a step of one model of each size and method, times the iterations that our own
    cells of that size and method took.
    """
    from dlmexp.benchmark.rival import gpytorch_step
    from dlmexp.plan.compose import compose
    from dlmexp.records.store import Store
    from dlmexp.running.run import execute
    from dlmexp.running.sweep import prepare_sweep
    from dlmexp.training.trial import synthetic_data

    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            [f"dataset={dataset}", "method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]", f"device={device}",
             f"results={folder}", *words]
        )  # fmt: skip
        began = perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            execute(config)
        ours = perf_counter() - began
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
    what = f"{dataset} block, {len(records)} cells"
    return [
        Line(f"{what}: ours, from command to records", ours, "s"),
        Line(f"{what}: GPyTorch one by one, extrapolated from {len(steps)} models", theirs, "s"),
        Line(f"{what}: times faster (extrapolated)", theirs / ours, "x"),
    ]


def _mean_seconds(one: Callable[[], None], device: str) -> float:
    import torch

    for _ in range(3):
        one()
    if device == "cuda":
        torch.cuda.synchronize()
    began = perf_counter()
    for _ in range(STEPS):
        one()
    if device == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - began) / STEPS


if __name__ == "__main__":
    raise SystemExit(main())
