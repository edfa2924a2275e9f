"""From the tidy table to the numbers of a panel: a `Series` per line, all of one setting.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or infinite, is left out of
mean and interval and counted in `failed`; one that is not complete yet is left out and counted in a note.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dlmexp.console import counted
from dlmexp.figures import effects
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.stats import half_width, statistics
from dlmexp.labels import metric_label
from dlmexp.records.results import Results
from dlmexp.records.table import Term, rows_for, select_setting

ROLES = {
    "sizes": "fit", "betas": "fit", "reliability": "fit", "curve": "curve", "histogram": "gradient",
    "effects": "anatomy",
}  # fmt: skip
WHITENED = "whitened"
# What panels are drawn from, beside their metrics: the table has many more columns, and copying them takes a while.
COLUMNS = (
    "dataset", "role", "method", "estimator", "samples", "beta", "n", "size", "seed", "parameterisation", "form",
    "noise_floor", "task", "status", "key", "group", "candidates", "failed", "selected_by", "protocol", "changes",
    "evaluate", "data", "split", "base", "bias", "bias_quadrature", "norm2_G",
)  # fmt: skip


@dataclass
class Series:
    """One line. `points` has a row per x: x, mean, std, sem, repetitions, failed (in place of the first three median,
    q25, q75 where the panel has them), and more where it applies."""

    line: Line
    points: pd.DataFrame
    folder: str = ""
    values: pd.Series | None = None  # against n: the metric by n and seed
    draws: np.ndarray | None = None  # histograms: the draws of one repetition

    @property
    def empty(self) -> bool:
        return self.points.empty


@dataclass
class Measured:
    """The numbers of a panel from one results folder, and what is to be said about them."""

    panel: Panel
    series: list[Series]
    folder: str = ""
    asked: str | None = None  # the protocol that is drawn
    protocol: str | None = None  # the protocol of the rows; None where there are none
    changes: str = ""
    parameterisation: str = WHITENED
    coordinates: frozenset[str] = frozenset()  # parameterisations of q in this setting; none in regression
    task: str = ""
    n: int | None = None  # the training size, where the panel has one
    others: list[tuple[str, int]] = field(default_factory=list)  # options that draw other settings, and their cells
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return all(one.empty for one in self.series)


@dataclass(frozen=True)
class Choice:
    """Which rows to draw: of a protocol, with changed settings, in coordinates of q (None: the usual)."""

    protocol: str | None = None
    where: tuple[Term, ...] = ()
    parameterisation: str | None = None


def panel_rows(panel: Panel, results: Results, all_columns: bool = False) -> pd.DataFrame:
    """All rows that could be part of a panel, of every setting, size and parameterisation; `line` numbers its lines."""
    roles = {line.role or ROLES[panel.kind] for line in panel.lines}
    parts = []
    for source, wanted in ((results.table, False), (results.candidates, True)):
        of_lines = [i for i, line in enumerate(panel.lines) if _every_beta(panel, line) == wanted]
        if not of_lines:
            continue
        metrics = (f"test_{panel.metric}", f"validation_{panel.metric}")
        columns = [name for name in source if all_columns or name in COLUMNS or name in metrics]
        rows = source.loc[(source["dataset"] == panel.dataset) & source["role"].isin(roles), columns]
        if panel.kind == "effects":
            parts.append(rows[rows["method"].isin(effects.METHODS)].assign(line=0))
        else:
            parts += [rows[_of_line(rows, panel, panel.lines[i])].assign(line=i) for i in of_lines]
    parts = [part for part in parts if len(part)] or parts[:1]
    return parts[0] if len(parts) == 1 else pd.concat(parts)


def _every_beta(panel: Panel, line: Line) -> bool:
    """Whether a line is drawn from all candidates instead of the selected ones."""
    return panel.kind == "betas" or line.beta is not None


def _of_line(rows: pd.DataFrame, panel: Panel, line: Line) -> pd.Series:
    fits = (rows["method"] == line.method) & (rows["estimator"] == line.estimator)
    fits &= rows["role"] == (line.role or ROLES[panel.kind])
    fits &= rows["samples"].isna() if line.samples is None else rows["samples"] == line.samples
    if line.beta is not None:
        fits &= np.isclose(rows["beta"].astype(float), line.beta)
    return fits


def measure(panel: Panel, results: Results, choice: Choice, rows: pd.DataFrame | None = None) -> Measured:
    """The numbers of a panel; `rows`: what `panel_rows` gives, where it is known already."""
    rows = panel_rows(panel, results) if rows is None else rows
    selected = select_setting(rows, choice.protocol, choice.where)
    about = Measured(panel, [], results.label, choice.protocol, selected.protocol, selected.changes)
    about.others = selected.others
    rows = selected.rows
    about.task = rows["task"].iloc[0] if len(rows) else ""
    if about.task != "regression":
        about.coordinates = frozenset(rows["parameterisation"])
    if panel.kind == "effects":
        about.n, numbers = effects.measure(panel, rows)
        about.series = [Series(line, numbers.get(line.effect, pd.DataFrame()), results.label) for line in panel.lines]
        return about
    rows, about.parameterisation = _in_coordinates(rows, choice.parameterisation)
    every_beta = rows["line"].isin([i for i, line in enumerate(panel.lines) if _every_beta(panel, line)])
    rows = rows[~(every_beta & rows.duplicated(["line", "key"]))]  # a cell that two groups ask for
    if panel.kind != "sizes":
        about.n = _size(panel, rows)
        rows = rows[rows["n"] == about.n]
    if panel.kind in ("sizes", "reliability"):
        rows = rows_for(rows, panel.metric)  # of each group the row that reports the metric
    make = {"sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram, "reliability": _reliability}
    for index, line in enumerate(panel.lines):
        own = rows[rows["line"] == index].sort_values("seed", kind="stable")
        series = Series(line, pd.DataFrame(), results.label)
        if len(own):
            about.notes += make[panel.kind](panel, series, own, results)
        about.series.append(series)
    _add_differences(about)
    return about


def _in_coordinates(rows: pd.DataFrame, wanted: str | None) -> tuple[pd.DataFrame, str]:
    """The rows in one parameterisation of q: the one wanted, else whitened where there is any. Most methods of
    regression have a closed form over q, so there each line has its own."""
    if rows.empty:
        return rows, wanted or WHITENED
    if rows["task"].iloc[0] == "regression":
        fits = rows["parameterisation"] == (wanted or WHITENED)
        kept = fits | ~rows["line"].isin(rows["line"][fits])
        return rows[kept], wanted or WHITENED
    have = sorted(set(rows["parameterisation"]), reverse=True)
    how = wanted or have[0]  # whitened comes after unwhitened
    return rows[rows["parameterisation"] == how], how


def _size(panel: Panel, rows: pd.DataFrame) -> int | None:
    """The size a panel is drawn at: the one it names, else the one with most rows (the larger of equals)."""
    rows = rows if panel.n is None else rows[rows["size"] == panel.n]
    counts = rows.groupby("n").size()
    return max(counts.index, key=lambda n: (counts[n], n), default=None)


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    """A metric of rows; NaN where it was not recorded, or the row is not done."""
    values = rows[name].astype(float) if name in rows else pd.Series(np.nan, index=rows.index)
    return values.where(rows["status"] == "done").to_numpy()


def _complete(line: Line, rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The rows without those that miss candidates, which a note counts."""
    incomplete = rows["status"] == "incomplete"
    if lacking := int(incomplete.sum()):
        notes.append(f"{line.label}: {counted(lacking, 'repetition')} with candidates not yet run, not drawn")
    return rows[~incomplete] if lacking else rows


def _sizes(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against n, beta selected on validation for every repetition."""
    notes: list[str] = []
    rows = _complete(series.line, rows, notes)
    values = _column(rows, f"test_{panel.metric}")
    if not np.isfinite(values).any() and (rows["status"] == "done").any():
        return [*notes, f"{series.line.label}: its records have no {metric_label(panel.metric)}"]
    if rows.empty:
        return notes
    series.values = pd.Series(values, pd.MultiIndex.from_frame(rows[["n", "seed"]])).sort_index()
    table = series.values.unstack("n")
    attempted = rows["n"].value_counts().sort_index().to_numpy()
    series.points = statistics(table.columns.to_numpy(), table.to_numpy(), attempted)
    chosen = (rows["candidates"] > 1).to_numpy() & np.isfinite(values)
    sizes, betas = rows["n"].to_numpy(), rows["beta"].to_numpy(dtype=float)
    series.points["betas"] = [" ".join(f"{b:.4g}" for b in betas[chosen & (sizes == n)]) for n in table.columns]
    if failures := int(series.points["failed"].max()):
        notes.append(f"{series.line.label}: up to {counted(failures, 'repetition')} of a point failed, not averaged")
    if failed := int((rows["failed"] * (rows["candidates"] > 1)).sum()):
        notes.append(f"{series.line.label}: {counted(failed, 'candidate')} failed; beta is selected among the others")
    return notes


def _add_differences(about: Measured) -> None:
    """Where there is an ELBO: each line minus the ELBO of the same repetitions, with its 95 % interval."""
    elbo = next((one.values for one in about.series if one.line.method == "elbo" and one.values is not None), None)
    for one in about.series if elbo is not None else ():
        if one.line.method == "elbo" or one.values is None:
            continue
        table = (one.values - elbo).unstack("n").reindex(columns=one.points["x"])
        found = statistics(table.columns.to_numpy(), table.to_numpy(), 0)
        half = half_width(found, "ci95")
        one.points["minus_elbo"], one.points["low"], one.points["high"] = (
            found["mean"], found["mean"] - half, found["mean"] + half,
        )  # fmt: skip
        one.points["minus_elbo_std"] = found["std"]


def _betas(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against beta at one size; the mean validation metric beside it. A method without beta has x = NaN."""
    parts = []
    for beta, own in rows.groupby("beta", dropna=False):
        point = statistics([beta], _column(own, f"test_{panel.metric}")[:, None], len(own))
        beside = statistics([beta], _column(own, f"validation_{panel.metric}")[:, None], len(own))
        parts.append(point.assign(validation=beside["mean"]))
    series.points = pd.concat(parts, ignore_index=True)
    return []


def _curve(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last value."""
    curves = []
    for key in rows["key"]:
        arrays = results.arrays(key)
        x, y = arrays.get("epochs" if panel.x == "epochs" else "evaluated_at"), arrays.get(f"test_{panel.metric}")
        if x is not None and y is not None and len(x) == len(y) > 0:
            curves.append((np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    lost = len(rows) - len(curves)
    notes = [f"{series.line.label}: {counted(lost, 'repetition')} without a learning curve"] if lost else []
    if curves:
        grid = np.unique(np.concatenate([x for x, _ in curves]))
        series.points = statistics(grid, np.stack([_held(grid, *one) for one in curves]), len(rows), panel.median)
    return notes


def _held(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`y` at every point of `grid`: the last value at or before it, NaN before the first."""
    index = np.searchsorted(x, grid, side="right") - 1
    return np.where(index >= 0, y[np.maximum(index, 0)], np.nan)


def _histogram(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """The draws of the first repetition that has any, in units of |G|^2; x is the number of samples. Repetitions have
    gradients of different size, so draws of more than one would show their differences."""
    draws = []
    for key, size in zip(rows["key"], rows["norm2_G"], strict=True):
        values = np.asarray(results.arrays(key).get(panel.metric, []), dtype=float)
        values = values if panel.metric == "condition_i" else values / size  # condition (i) is relative already
        draws.append(values[np.isfinite(values)])
    lost = sum(len(values) == 0 for values in draws)
    if lost == len(draws):
        return [f"{series.line.label}: no gradient draws in its records"]
    first = next(i for i, values in enumerate(draws) if len(values))
    row, series.draws = rows.iloc[first], draws[first]
    point = statistics([series.line.samples or 0], series.draws[:, None], len(series.draws))
    series.points = point.assign(
        repetitions=len(draws) - lost, failed=lost, draws=len(series.draws), seed=row["seed"],
        bias=row["bias"] / row["norm2_G"], error_of_G=_error_of_truth(row, results) / row["norm2_G"],
    )  # fmt: skip
    return []


def _error_of_truth(row: pd.Series, results: Results) -> float:
    """|G - exact gradient|^2: how far G, from 10 000 bMC samples, is off itself.

    The mean of many uPS draws is the exact gradient but for 1 % of that distance. What it is off from G more than from
    quadrature is the error of G.
    """
    rows = results.candidates
    rows = rows[(rows["role"] == "gradient") & (rows["estimator"] == "ups") & (rows["base"] == row["base"])]
    rows = rows[(rows["parameterisation"] == row["parameterisation"]) & (rows["beta"] == row["beta"])]
    if rows.empty:
        return np.nan
    best = rows.sort_values("samples").iloc[-1]
    return float(best["bias"] - best["bias_quadrature"])


def _reliability(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Observed shares of class 1 against predicted ones at the selected beta, in bins of equal numbers of rows."""
    notes: list[str] = []
    rows = _complete(series.line, rows, notes)
    bins = [results.arrays(key) for key in rows["key"][rows["status"] == "done"]]
    pairs = [(one["reliability_p"], one["reliability_y"]) for one in bins if "reliability_p" in one]
    if pairs:
        p, y = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
        series.points = statistics(statistics(range(p.shape[1]), p, len(p))["mean"], y, len(rows))
    return notes
