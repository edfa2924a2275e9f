"""How time and memory grow: `python -m scripts.benchmark growth [PART ...] --out FILE.csv`.

Training steps are measured by the number of rows, inducing inputs, cells of a batch and samples;
commands by the number of records in a results folder. Each line is a point with its slope: the
power of the number that the time grew by since the point before. A slope of 1 is linear.
`--picture FILE.png` draws the points of all files given by `--from FILE.csv ...`.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from math import ceil, log
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from dlmexp.core.estimators import UPS
from scripts.benchmark.measure import fastest, peak_bytes
from scripts.benchmark.steps import joint_step

ROWS = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
INDUCING = (16, 32, 64, 128, 256, 512, 1024)
CELLS = (1, 3, 10, 30, 100, 300, 1000)
SAMPLES = (1, 3, 10, 30, 100, 300)
RECORDS = (1000, 10_000, 100_000)
# Rows, inducing inputs and cells, where they do not vary.
N = 1000
M = 64
B = 10
LONGEST = {"cpu": 4.0, "cuda": 1.0}  # seconds of a step, above which a series ends
BETAS = 14  # of the grid of `beta_elbo`: records of one seed
COMMANDS = {
    "plan": ["run", "plan=true"],
    "run with nothing to do": ["run"],
    "collect": ["collect"],
    "status": ["status"],
}


@dataclass(frozen=True)
class Point:
    """A measurement at one size.

    Attributes:
        series: What is measured: an objective, or a command.
        varies: What the number counts: "rows", "inducing", "cells", "samples" or "records".
        number: How many of them.
        seconds: Of a step of all cells of the batch, or of a command.
        megabytes: The most that a step, or a command, holds at once.
        device: "cpu" or "cuda".
    """

    series: str
    varies: str
    number: int
    seconds: float
    megabytes: float
    device: str


@dataclass(frozen=True)
class Series:
    """Training steps whose batches differ in one number.

    Attributes:
        name: The objective.
        varies: What the number counts.
        numbers: The numbers, in increasing order.
        step: Makes the step for a number and a device; the last argument asks for a step that is
            not captured as a graph, whose memory can be measured.
    """

    name: str
    varies: str
    numbers: tuple[int, ...]
    step: Callable[[int, str, bool], Callable[[], None]]


def _series() -> list[Series]:
    """Return what is measured of steps: log-DLM of binary data, and the collapsed ELBO."""
    dlm = {"likelihood": "probit", "objective": "log_dlm"}
    elbo = {"likelihood": "gaussian", "objective": "elbo"}
    series = []
    for name, kind in (("log_dlm", dlm), ("elbo, collapsed", elbo)):

        def by_rows(n: int, device: str, captured: bool, kind: dict = kind) -> Callable[[], None]:
            return joint_step(B, n=n, M=M, device=device, captured=captured, **kind)

        def by_inducing(
            number: int, device: str, captured: bool, kind: dict = kind
        ) -> Callable[[], None]:
            return joint_step(B, n=2 * N, M=number, device=device, captured=captured, **kind)

        def by_cells(
            number: int, device: str, captured: bool, kind: dict = kind
        ) -> Callable[[], None]:
            return joint_step(number, n=N, M=M, device=device, captured=captured, **kind)

        series += [
            Series(name, "rows", ROWS, by_rows),
            Series(name, "inducing", INDUCING, by_inducing),
            Series(name, "cells", CELLS, by_cells),
        ]
    return [*series, Series("log_dlm, uPS", "samples", SAMPLES, _step_by_samples)]


def _step_by_samples(number: int, device: str, captured: bool) -> Callable[[], None]:
    return joint_step(B, estimator=UPS(number), n=N, M=M, device=device, captured=captured)


def step_points(parts: Sequence[str], device: str, seconds: float) -> Iterator[Point]:
    """Yield the points of training steps."""
    for series in _series():
        if series.varies not in parts:
            continue
        for number in series.numbers:
            try:
                point = _step_point(series, number, device, seconds)
            except torch.OutOfMemoryError:
                break
            yield point
            if point.seconds > LONGEST[device]:
                break


def _step_point(series: Series, number: int, device: str, seconds: float) -> Point:
    memory = peak_bytes(series.step(number, device, False), device)
    step = series.step(number, device, True)
    best = fastest({"": step}, seconds, device, repeats=1)[""]
    return Point(series.name, series.varies, number, best, memory / 1e6, device)


def record_points(largest: int) -> Iterator[Point]:
    """Yield the points of commands on folders with made-up records."""
    for number in RECORDS:
        if number > largest:
            break
        with tempfile.TemporaryDirectory() as folder:
            seeds = ceil(number / BETAS)
            words = [
                "dataset=ringnorm_drawn",
                "method=beta_elbo",
                "sizes=[100]",
                f"seeds={seeds}",
                f"results={folder}",
            ]
            count = write_records(words)
            for name, (command, *options) in COMMANDS.items():
                arguments = [*words, *options] if command == "run" else ["--results", folder]
                seconds, megabytes = _measured_command([command, *arguments])
                yield Point(name, "records", count, seconds, megabytes, "cpu")


def write_records(words: list[str]) -> int:
    """Write a record with made-up results for every cell of a run; return how many there are."""
    from dlmexp.common.provenance import provenance_here
    from dlmexp.experiment.plan.compose import compose
    from dlmexp.experiment.plan.overrides import expand_shorthand
    from dlmexp.experiment.records.record import Record, Result
    from dlmexp.experiment.records.store import Store
    from dlmexp.experiment.running.run import write_manifests
    from dlmexp.experiment.running.sweep import prepare_sweep

    sweep = prepare_sweep(compose(expand_shorthand(words)))
    root = Path(sweep.cfg.results)
    write_manifests(root, [sweep])
    store = Store(root)
    provenance = provenance_here("cpu")
    random = np.random.default_rng(0)
    for cell in sweep.cells:
        nll, error = random.random(2).tolist()
        metrics = {"nll": nll, "error": error}
        result = Result(
            validation=metrics,
            test=metrics,
            iterations=100,
            converged=True,
            stopped="converged",
            seconds=0.1,
            objective_value=nll,
        )
        record = Record(key=cell.key, status="done", cell=cell, result=result, made=provenance)
        store.write(record, {})
    return len(sweep.cells)


# Runs the command in a child of its own, and prints that child's largest size in kilobytes.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def _measured_command(words: list[str]) -> tuple[float, float]:
    """Return the seconds and the megabytes of a command of dlmexp."""
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, sys.executable, "-m", "dlmexp", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return perf_counter() - start, int(done.stdout) / 1e3


def slope(before: Point | None, point: Point) -> float | None:
    """Return the power of the number that the seconds grew by; None for the first of a series."""
    if before is None or (before.series, before.varies) != (point.series, point.varies):
        return None
    return log(point.seconds / before.seconds) / log(point.number / before.number)


def read_points(files: Sequence[str]) -> list[Point]:
    """Return the points of files that `--out` wrote."""
    points = []
    for file in files:
        with Path(file).open(newline="") as stream:
            for row in csv.DictReader(stream):
                numbers = {"number": int(row["number"])}
                numbers |= {name: float(row[name]) for name in ("seconds", "megabytes")}
                points.append(Point(**{**row, **numbers}))
    return points


def write_points(points: Sequence[Point], file: str) -> None:
    """Write points as a CSV."""
    with Path(file).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Point)])
        writer.writeheader()
        for point in points:
            values = asdict(point)
            values["seconds"] = f"{point.seconds:.4g}"
            values["megabytes"] = f"{point.megabytes:.4g}"
            writer.writerow(values)


def draw(points: Sequence[Point], file: str) -> None:
    """Draw seconds against each number, a panel per number, with lines of slope 1 for the eye."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys(point.varies for point in points))
    figure, axes = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 3), squeeze=False)
    colours: dict[str, str] = {}
    for axis, varies in zip(axes[0], panels, strict=True):
        for line in _lines([point for point in points if point.varies == varies]):
            colour = colours.setdefault(line[0].series, f"C{len(colours)}")
            _draw_line(axis, line, colour)
        _draw_slopes(axis)
        axis.set_xlabel(varies)
        axis.legend(fontsize=6)
    axes[0, 0].set_ylabel("seconds of a step, or a command")
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def _lines(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points of each series and device."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.series, point.device), []).append(point)
    return list(lines.values())


def _draw_line(axis, line: Sequence[Point], colour: str) -> None:
    """Draw the points of a series on a device."""
    is_cpu = line[0].device == "cpu"
    axis.loglog(
        [point.number for point in line],
        [point.seconds for point in line],
        color=colour,
        linestyle="-" if is_cpu else "--",
        marker="o",
        markersize=3,
        label=f"{line[0].series}, {'CPU' if is_cpu else 'GPU'}",
    )


def _draw_slopes(axis) -> None:
    """Draw light lines of slope 1."""
    left, right = axis.get_xlim()
    low, high = axis.get_ylim()
    for exponent in range(-12, 3):
        start = 10.0**exponent
        axis.plot(
            [left, right], [start, start * right / left], color="0.9", zorder=0, linewidth=0.6
        )
    axis.set_xlim(left, right)
    axis.set_ylim(low, high)


PARTS = ("rows", "inducing", "cells", "samples", "records")


def main(arguments: Sequence[str]) -> int:
    """Print a line for each point."""
    parser = argparse.ArgumentParser("scripts.benchmark growth", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="to time each step")
    parser.add_argument("--records", type=int, default=RECORDS[-1], help="the most records")
    parser.add_argument("--out", help="a CSV to write")
    parser.add_argument("--from", dest="files", nargs="+", default=[], help="CSVs to draw")
    parser.add_argument("--picture", help="a PNG to draw")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part '{min(unknown)}': {', '.join(PARTS)}")
    if options.files:
        draw(read_points(options.files), options.picture)
        return 0
    parts = options.parts or PARTS
    points: list[Point] = []
    for point in _all_points(parts, options):
        power = slope(points[-1] if points else None, point)
        print(
            f"{point.series:24} {point.number:7} {point.varies:9} {point.seconds * 1e3:11.3f} ms "
            f"{point.megabytes:9.1f} MB  slope {'-' if power is None else f'{power:.2f}'}",
            flush=True,
        )
        points.append(point)
    if options.out:
        write_points(points, options.out)
    return 0


def _all_points(parts: Sequence[str], options: argparse.Namespace) -> Iterator[Point]:
    yield from step_points(parts, options.device, options.seconds)
    if "records" in parts:
        yield from record_points(options.records)
