"""From records to the numbers of a panel: one `Series` per line, and a count of what failed.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or infinite, is left out of
mean and deviation and counted in `failed`; it is never averaged in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.figures import conf
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.protocol import one_protocol
from dlmexp.figures.results import Record, Results, on_test, on_validation
from dlmexp.sweep.whole import whole

STATISTICS = ("x", "mean", "std", "sem", "repetitions", "failed")
PARTS = {"sizes": "fits", "betas": "fits", "curve": "curves", "histogram": "gradients"}


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
    make = {"sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram}[panel.kind]
    candidates = [line_records(panel, line, results, parameterisation) for line in panel.lines]
    n = None if panel.kind == "sizes" else _one_size(panel, [record for several in candidates for record in several])
    found = []
    for line, several in zip(panel.lines, candidates, strict=True):
        chosen, note = one_protocol([r for r in several if panel.kind == "sizes" or r["cell"]["n"] == n])
        series = make(panel, line, chosen, results) if chosen else Series(line, pd.DataFrame(columns=list(STATISTICS)))
        series.n, series.folder = n, results.label
        if note:
            series.notes.append(f"{line.look.label}: {note}")
        found.append(series)
    return found


def line_records(panel: Panel, line: Line, results: Results, parameterisation: str) -> list[Record]:
    """All records that could be part of `line`: every beta and seed, failed ones included."""
    found = results.candidates(PARTS[panel.kind], panel.dataset, line.method, line.estimator, line.samples)

    def fits(cell: dict[str, Any]) -> bool:
        # Regression has a closed form over q for most methods: q's coordinates are not a variant of its figures.
        usable = cell["parameterisation"] == parameterisation or cell["task"] == "regression"
        return usable and (line.beta is None or np.isclose(cell["beta"], line.beta))

    return [record for record in found if fits(record["cell"])]


def _one_size(panel: Panel, records: list[Record]) -> int | None:
    """The size a panel is drawn at: the share it names, else the one with most records (the larger of equals)."""
    counts = Counter(record["cell"]["n"] for record in records)
    if not counts:
        return None
    if panel.n is None:
        return max(counts, key=lambda n: (counts[n], n))
    wanted = conf.size_in_rows(panel.n, conf.training_pool(panel.dataset) or max(counts))
    closest = min(counts, key=lambda n: abs(n - wanted))
    return closest if abs(closest - wanted) <= 0.02 * wanted else None


def grouped(records: list[Record], by: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    """Records by a property, in its order (None last)."""
    groups: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        groups[by(record)].append(record)
    return {key: groups[key] for key in sorted(groups, key=lambda key: (key is None, key or 0))}


def _sizes(panel: Panel, line: Line, records: list[Record], results: Results) -> Series:
    """Test metric against n, beta selected on validation for every repetition."""
    selected = results.selected(panel.metric)
    points = []
    for n, attempts in grouped(records, lambda record: record["cell"]["n"]).items():
        per_seed = grouped(attempts, lambda record: record["cell"]["seed"])
        # A repetition whose beta grid is not whole yet has not been run, whatever its cells say so far.
        per_seed = {seed: cells for seed, cells in per_seed.items() if whole(n, (r["cell"]["beta"] for r in cells))}
        if not per_seed:
            continue
        chosen = [
            record for several in per_seed.values() for record in several if (line.method, record["key"]) in selected
        ]
        betas = [record["cell"]["beta"] for record in chosen]
        point = summary(n, (on_test(record, panel.metric) for record in chosen), len(per_seed))
        points.append(
            point
            | {
                "betas": " ".join(f"{beta:.4g}" for beta in betas if beta is not None),
                "fewest_candidates": min(map(len, per_seed.values())),
                "most_candidates": max(map(len, per_seed.values())),
                "failed_candidates": sum(record["status"] == "failed" for record in attempts),
            }
        )
    return Series(line, pd.DataFrame(points, columns=None if points else list(STATISTICS)))


def _betas(panel: Panel, line: Line, records: list[Record], results: Results) -> Series:
    """Test metric against beta at one size; the mean validation metric beside it. A method without beta has x = NaN."""
    points = []
    for beta, cells in grouped(records, lambda record: record["cell"]["beta"]).items():
        point = summary(np.nan if beta is None else beta, (on_test(r, panel.metric) for r in cells), len(cells))
        beside = summary(0, (on_validation(r, panel.metric) for r in cells), len(cells))
        points.append(point | {"validation": beside["mean"]})
    return Series(line, pd.DataFrame(points))


def _curve(panel: Panel, line: Line, records: list[Record], results: Results) -> Series:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last value."""
    curves = []
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


def _histogram(panel: Panel, line: Line, records: list[Record], results: Results) -> Series:
    """The draws of all repetitions together, and their statistics; x is L."""
    draws = [np.asarray(results.arrays(record).get(panel.metric, []), dtype=float) for record in records]
    usable = [values[np.isfinite(values)] for values in draws]
    pooled = np.concatenate(usable)
    empty = sum(len(values) == 0 for values in usable)
    point = summary(line.samples or 0, pooled, len(pooled)) | {"repetitions": len(records) - empty, "failed": empty}
    bias = summary(0, (float(record["result"].get("bias") or np.nan) for record in records), len(records))["mean"]
    return Series(line, pd.DataFrame([point | {"draws": len(pooled), "bias": bias}]), draws=pooled)
