"""From records to the numbers of a panel: one `Series` per line, and a count of what failed.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or infinite, is left out of
mean and deviation and counted in `failed`; it is never averaged in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dlmexp import catalogue
from dlmexp.data.splits import known_pool, resolve_size
from dlmexp.figures.panels import Line, Panel
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, on_test, on_validation
from dlmexp.records.settings import same_settings

STATISTICS = ("x", "mean", "std", "sem", "repetitions", "failed")
PARTS = {"sizes": "fits", "betas": "fits", "curve": "curves", "histogram": "gradients", "reliability": "fits"}
LEVELS = (50, 90, 95)  # per cent, of the central intervals whose coverage is recorded


@dataclass
class Series:
    """One line: a row of `points` per x with the columns of `STATISTICS` (and more where they apply)."""

    line: Line
    points: pd.DataFrame
    n: int | None = None  # the training size, where the whole panel has one
    draws: np.ndarray | None = None  # histograms: the pooled draws
    folder: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return self.points.empty


def summary(x: float, values: Iterable[float], attempted: int) -> dict[str, Any]:
    """Mean, sample deviation and standard error of the finite ones among `values`, out of `attempted` repetitions."""
    finite = np.array([value for value in values if np.isfinite(value)])
    count = len(finite)
    std = float(finite.std(ddof=1)) if count > 1 else np.nan
    mean = float(finite.mean()) if count else np.nan
    sem = std / np.sqrt(count) if count > 1 else np.nan
    return {"x": x, "mean": mean, "std": std, "sem": sem, "repetitions": count, "failed": attempted - count}


def panel_series(panel: Panel, results: Results, parameterisation: str = "whitened") -> list[Series]:
    """The lines of a panel in their order; a line without records has no points."""
    make = {
        "sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram, "reliability": _reliability
    }[panel.kind]  # fmt: skip
    candidates = [line_choices(panel, line, results, parameterisation) for line in panel.lines]
    n = None if panel.kind == "sizes" else _one_size(panel, [one for several in candidates for one in several])
    preferred = catalogue.beta_rule(panel.experiment)
    found = []
    for line, several in zip(panel.lines, candidates, strict=True):
        at_size = [one for one in several if panel.kind == "sizes" or one.cell.n == n]
        chosen, notes = same_settings(at_size, preferred)
        series = make(panel, line, chosen, results) if chosen else Series(line, pd.DataFrame(columns=list(STATISTICS)))
        series.n, series.folder = n, results.label
        series.notes += [f"{line.look.label}: {note}" for note in notes]
        found.append(series)
    return found


def line_choices(panel: Panel, line: Line, results: Results, parameterisation: str) -> list[Choice]:
    """All that could be part of `line`, every size and seed: candidates of a selection, or single records at the line's
    own beta."""
    found = [
        one
        for one in results.line(
            panel.part or PARTS[panel.kind], panel.dataset, line.method, line.estimator, line.samples
        )
        # Regression has a closed form over q for most methods: q's coordinates are not a variant of its figures.
        if one.cell.parameterisation == parameterisation or one.cell.task == "regression"
    ]
    if line.beta is None:
        return found
    return [
        Choice(line.method, f"{line.beta:g}", (record,), 0)
        for record in records_of(found)
        if record.cell.beta is not None and np.isclose(record.cell.beta, line.beta)
    ]


def _one_size(panel: Panel, several: list[Choice]) -> int | None:
    """The size a panel is drawn at: the share it names, else the one with most records (the larger of equals)."""
    counts: Counter[int] = Counter()
    for one in several:
        counts[one.cell.n] += len(one.records)
    if not counts:
        return None
    if panel.n is None:
        return max(counts, key=lambda n: (counts[n], n))
    wanted = resolve_size(panel.n, known_pool(panel.dataset) or max(counts))
    closest = min(counts, key=lambda n: abs(n - wanted))
    return closest if abs(closest - wanted) <= 0.02 * wanted else None


def _sizes(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against n, beta selected on validation for every repetition.

    A repetition with candidates that have no record yet has not been run; a note counts it.
    """
    sizes: dict[int, list[Choice]] = defaultdict(list)
    for one in sorted(several, key=lambda one: one.cell.seed):
        sizes[one.cell.n].append(one)
    points, notes = [], []
    for n, attempts in sorted(sizes.items()):
        complete, note = _measured(panel, line, [one for one in attempts if not one.missing])
        notes += note
        if lacking := [one.missing for one in attempts if one.missing]:
            notes.append(_incomplete(line, n, lacking))
        if not complete:
            continue
        chosen = [record for one in complete if (record := one.selected(panel.metric)) is not None]
        point = summary(n, (on_test(record, panel.metric) for record in chosen), len(complete))
        points.append(
            point
            | {
                "betas": " ".join(f"{record.cell.beta:.4g}" for record in chosen if record.cell.beta is not None),
                "fewest_candidates": min(len(one.records) for one in complete),
                "most_candidates": max(len(one.records) for one in complete),
                "failed_candidates": sum(one.failed for one in attempts),
            }
        )
    return Series(line, pd.DataFrame(points, columns=None if points else list(STATISTICS)), notes=notes)


def _measured(panel: Panel, line: Line, several: list[Choice]) -> tuple[list[Choice], list[str]]:
    """Those whose records have the panel's metric, and a note on the others: older records lack newer metrics."""
    name = f"coverage_{LEVELS[-1]}" if panel.metric == "coverage" else panel.metric
    name = "ece" if name == "reliability" else name
    having = [one for one in several if not all(r.done and name not in r.result.test for r in one.records)]
    if len(having) == len(several):
        return several, []
    n, count = several[0].cell.n, len(several) - len(having)
    which = "1 repetition has" if count == 1 else f"{count} repetitions have"
    return having, [f"{line.look.label}, n = {n}: {which} records without {panel.metric}, from before it was measured"]


def _reliability(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Observed shares against predicted ones at the selected beta: per level of central intervals, or per bin."""
    complete, notes = _measured(panel, line, [one for one in several if not one.missing])
    chosen = [record for one in complete if (record := one.selected(panel.metric)) is not None]
    points = []
    if panel.metric == "coverage":
        for level in LEVELS if complete else ():
            values = [on_test(record, f"coverage_{level}") for record in chosen]
            points.append(summary(level / 100, values, len(complete)))
    else:
        names = ("reliability_p", "reliability_y")
        bins = [[arrays.get(name) for name in names] for record in chosen if (arrays := results.arrays(record))]
        pairs = np.array([pair for pair in bins if all(one is not None for one in pair)], dtype=float)
        for b in range(pairs.shape[-1] if len(pairs) else 0):
            p, y = pairs[:, 0, b], pairs[:, 1, b]
            points.append(summary(summary(0, p, len(p))["mean"], y, len(complete)))
    return Series(line, pd.DataFrame(points, columns=None if points else list(STATISTICS)), notes=notes)


def _incomplete(line: Line, n: int, lacking: list[int]) -> str:
    span = f"{min(lacking)}" if min(lacking) == max(lacking) else f"{min(lacking)} to {max(lacking)}"
    betas = "beta has" if span == "1" else "betas have"
    where = "1 repetition, which is" if len(lacking) == 1 else f"{len(lacking)} repetitions, which are"
    return f"{line.look.label}, n = {n}: {span} {betas} no record yet in {where} not drawn"


def _betas(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against beta at one size; the mean validation metric beside it. A method without beta has x = NaN."""
    cells: dict[float, list[Record]] = defaultdict(list)
    for record in records_of(several):
        cells[np.inf if record.cell.beta is None else record.cell.beta].append(record)
    points = []
    for beta, records in sorted(cells.items()):
        point = summary(np.nan if beta == np.inf else beta, (on_test(r, panel.metric) for r in records), len(records))
        beside = summary(0, (on_validation(r, panel.metric) for r in records), len(records))
        points.append(point | {"validation": beside["mean"]})
    return Series(line, pd.DataFrame(points))


def _curve(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last value."""
    records, curves = records_of(several), []
    for record in records:
        arrays = results.arrays(record)
        x, y = arrays.get("epochs" if panel.x == "epochs" else "evaluated_at"), arrays.get(f"test_{panel.metric}")
        if x is not None and y is not None and len(x) == len(y) > 0:
            curves.append((np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    if not curves:
        return Series(line, pd.DataFrame([summary(np.nan, [], len(records))]))
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    held = np.stack([_held(grid, x, y) for x, y in curves])
    return Series(line, pd.DataFrame([summary(at, held[:, i], len(records)) for i, at in enumerate(grid)]))


def _held(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`y` at every point of `grid`: the last value at or before it, NaN before the first."""
    index = np.searchsorted(x, grid, side="right") - 1
    return np.where(index >= 0, y[np.maximum(index, 0)], np.nan)


def _histogram(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """The draws of all repetitions together, and their statistics; x is L."""
    records = records_of(several)
    draws = [np.asarray(results.arrays(record).get(panel.metric, []), dtype=float) for record in records]
    usable = [values[np.isfinite(values)] for values in draws]
    pooled = np.concatenate(usable)
    empty = sum(len(values) == 0 for values in usable)
    point = summary(line.samples or 0, pooled, len(pooled)) | {"repetitions": len(records) - empty, "failed": empty}
    bias = summary(0, (record.result.bias or np.nan for record in records), len(records))["mean"]
    return Series(line, pd.DataFrame([point | {"draws": len(pooled), "bias": bias}]), draws=pooled)
