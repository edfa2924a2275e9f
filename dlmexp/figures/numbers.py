"""From the tidy table to the numbers of a panel: a `Series` per line, all of one setting.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or infinite, is left out of
mean and interval and counted in `failed`; one that is not complete yet is left out and counted in a note.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dlmexp.console import counted
from dlmexp.figures import effects
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.stats import half_width, statistics
from dlmexp.labels import metric_label
from dlmexp.records.results import Results
from dlmexp.records.table import SETTING, Term, rows_for, same, select_setting

ROLES = {"curve": "curve", "histogram": "gradient", "effects": "anatomy"}  # of the rows; other panels: fits
WHITENED = "whitened"
# What panels are drawn from, beside their metrics: the table has many more columns, and copying them takes a while.
COLUMNS = {
    "dataset", "role", "method", "estimator", "samples", "beta", "n", "size", "seed", "parameterisation", "form",
    "noise_floor", "task", "status", "key", "group", "candidates", "failed", "selected_by", "base", "bias",
    "bias_quadrature", "norm2_G", "command", *SETTING,
}  # fmt: skip


@dataclass
class Series:
    """One line. `points` has a row per x: x, mean, std, sem, repetitions, failed (in place of mean, std, sem median,
    q25, q75 where the panel has them), and more where it applies."""

    line: Line
    folder: str = ""
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    values: pd.Series | None = None  # against n: the metric by n and seed
    draws: np.ndarray | None = None  # histograms: the draws of one repetition

    @property
    def empty(self) -> bool:
        return self.points.empty


@dataclass
class Measured:
    """The numbers of a panel from one results folder, and what is to be said about them."""

    panel: Panel
    folder: str
    asked: str | None  # the protocol that is drawn
    protocol: str | None  # the protocol of the rows; None where there are none
    changes: str
    others: list[tuple[str, int]]  # options that draw other settings, and how many results they have
    series: list[Series] = field(default_factory=list)
    parameterisation: str = WHITENED
    coordinates: frozenset[str] = frozenset()  # parameterisations of q in this setting; none in regression
    task: str = ""
    n: int | None = None  # the training size, where the panel has one
    command: str = ""  # that made most of the rows
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return all(one.empty for one in self.series)

    @property
    def one_size(self) -> bool:
        """Whether all points are at one n: then there is nothing to join, and they are drawn as bars."""
        return (
            self.panel.kind == "sizes"
            and len({x for one in self.series if not one.empty for x in one.points["x"]}) == 1
        )


def panel_rows(
    panel: Panel, results: Results, by: Mapping[str, list[str]], all_columns: bool = False
) -> pd.DataFrame:  # fmt: skip
    """All rows that could be part of a panel, of every setting, size and parameterisation; `line` numbers its lines.
    `by`: column -> values that the rows have; datasets, methods and betas are chosen by panels and lines."""
    parts = []
    for source, of_candidates in ((results.table, False), (results.candidates, True)):
        own = [i for i, line in enumerate(panel.lines) if _every_beta(panel, line) == of_candidates]
        if not own:
            continue
        metrics = (f"test_{panel.metric}", f"validation_{panel.metric}")
        columns = [name for name in source if all_columns or name in COLUMNS or name in metrics]
        fits = (source["dataset"] == panel.dataset) & source["role"].isin({_role(panel, line) for line in panel.lines})
        for name in {*by} - {"dataset", "method", "beta"}:
            values = [value for value in source[name].unique() if any(same(value, text) for text in by[name])]
            fits &= source[name].isin(values)
        rows = source.loc[fits, columns]
        rows = rows.assign(selected_by="nll") if of_candidates else rows
        if panel.kind == "effects":
            parts.append(rows[rows["method"].isin(effects.METHODS)].assign(line=0))
        else:
            parts += [rows[_of_line(rows, panel, panel.lines[i])].assign(line=i) for i in own]
    parts = [part for part in parts if len(part)] or parts[:1]
    return pd.concat(parts, ignore_index=True)


def _role(panel: Panel, line: Line) -> str:
    return line.role or ROLES.get(panel.kind, "fit")


def _every_beta(panel: Panel, line: Line) -> bool:
    """Whether a line is drawn from all candidates instead of the selected ones."""
    return panel.kind == "betas" or line.beta is not None


def _of_line(rows: pd.DataFrame, panel: Panel, line: Line) -> pd.Series:
    fits = (rows["method"] == line.method) & (rows["estimator"] == line.estimator)
    fits &= rows["role"] == _role(panel, line)
    fits &= rows["samples"].isna() if line.samples is None else rows["samples"] == line.samples
    return fits if line.beta is None else fits & np.isclose(rows["beta"].astype(float), line.beta)


def measure(
    panel: Panel, results: Results, rows: pd.DataFrame, protocol: str | None = None, where: tuple[Term, ...] = (),
    parameterisation: str | None = None,
) -> Measured:  # fmt: skip
    """The numbers of a panel from `panel_rows`: of one setting, in one parameterisation of q (None: the usual)."""
    selected = select_setting(rows, protocol, where)
    about = Measured(panel, results.label, protocol, selected.protocol, selected.changes, selected.others)
    about.series = [Series(line, results.label) for line in panel.lines]
    rows = selected.rows
    if rows.empty:
        return about
    about.task, about.command = rows["task"].iloc[0], next(iter(rows["command"].dropna().mode()), "")
    if about.task != "regression":
        about.coordinates = frozenset(rows["parameterisation"])
    if panel.kind == "effects":
        about.n, numbers = effects.measure(panel, rows)
        for series in about.series:
            series.points = numbers.get(series.line.effect, series.points)
        return about
    rows, about.parameterisation = _in_coordinates(rows, parameterisation)
    candidates = rows["line"].isin([i for i, line in enumerate(panel.lines) if _every_beta(panel, line)])
    rows = rows[~(candidates & rows.duplicated(["line", "key"]))]  # a cell that two groups ask for
    if panel.kind != "sizes":
        about.n = _size(rows if panel.n is None else rows[rows["size"] == panel.n])
        rows = rows[rows["n"] == about.n]
    if panel.kind in ("sizes", "reliability"):
        rows = rows_for(rows.reset_index(drop=True), panel.metric)  # of each group the row that reports the metric
    make = {"sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram, "reliability": _reliability}
    for index, series in enumerate(about.series):
        own = rows[rows["line"] == index].sort_values("seed", kind="stable")
        complete = own[own["status"] != "incomplete"]
        if lacking := len(own) - len(complete):
            missing = f"{counted(lacking, 'repetition')} with candidates not yet run, not drawn"
            about.notes.append(f"{series.line.label}: {missing}")
        if len(complete):
            about.notes += [
                f"{series.line.label}: {note}" for note in make[panel.kind](panel, series, complete, results)
            ]
    _add_differences(about)
    return about


def _in_coordinates(rows: pd.DataFrame, wanted: str | None) -> tuple[pd.DataFrame, str]:
    """The rows in one parameterisation of q: the one wanted, else whitened where there is any. Most methods of
    regression have a closed form over q, so there each line has its own."""
    if rows["task"].iloc[0] == "regression":
        fits = rows["parameterisation"] == (wanted or WHITENED)
        return rows[fits | ~rows["line"].isin(rows["line"][fits])], wanted or WHITENED
    how = wanted or max(rows["parameterisation"])  # whitened comes after unwhitened
    return rows[rows["parameterisation"] == how], how


def _size(rows: pd.DataFrame) -> int | None:
    """The size with most rows, the larger of equals."""
    counts = rows["n"].value_counts()
    return max(counts.index, key=lambda n: (counts[n], n), default=None)


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    """A metric of rows; NaN where it was not recorded, or the row is not done."""
    values = rows[name].astype(float) if name in rows else pd.Series(np.nan, index=rows.index)
    return values.where(rows["status"] == "done").to_numpy()


def _sizes(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against n, beta selected on validation for every repetition."""
    values = _column(rows, f"test_{panel.metric}")
    if not np.isfinite(values).any() and (rows["status"] == "done").any():
        return [f"its records have no {metric_label(panel.metric)}"]
    series.values = pd.Series(values, pd.MultiIndex.from_frame(rows[["n", "seed"]])).sort_index()
    table = series.values.unstack("n")
    attempted = rows["n"].value_counts().sort_index().to_numpy()
    series.points = statistics(table.columns.to_numpy(), table.to_numpy(), attempted)
    chosen = (rows["candidates"] > 1).to_numpy() & np.isfinite(values)
    sizes, betas = rows["n"].to_numpy(), rows["beta"].to_numpy(dtype=float)
    series.points["betas"] = [" ".join(f"{b:.4g}" for b in betas[chosen & (sizes == n)]) for n in table.columns]
    lost, failed = int(series.points["failed"].max()), int(rows["failed"][rows["candidates"] > 1].sum())
    notes = [f"up to {counted(lost, 'repetition')} of a point failed, not averaged"] if lost else []
    return notes + ([f"{counted(failed, 'candidate')} failed; β is selected among the others"] if failed else [])


def _add_differences(about: Measured) -> None:
    """Where there is an ELBO: each line minus the ELBO of the same repetitions, with its 95 % interval."""
    elbo = [one.values for one in about.series if one.line.method == "elbo" and one.values is not None]
    for one in about.series if elbo else ():
        if one.line.method != "elbo" and one.values is not None:
            table = (one.values - elbo[0]).unstack("n").reindex(columns=one.points["x"])
            found = statistics(table.columns.to_numpy(), table.to_numpy(), 0)
            half = half_width(found, "ci95")
            more = {"minus_elbo": found["mean"], "low": found["mean"] - half, "high": found["mean"] + half}
            one.points = one.points.assign(**more, minus_elbo_std=found["std"])


def _betas(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against beta at one size; the mean validation metric beside it. A method without beta has x = NaN."""
    parts = []
    for beta, own in rows.groupby("beta", dropna=False):
        point = statistics([beta], _column(own, f"test_{panel.metric}")[:, None], len(own))
        beside = statistics([beta], _column(own, f"validation_{panel.metric}")[:, None], len(own))
        parts.append(point.assign(validation=beside["mean"]))
    series.points = pd.concat(parts, ignore_index=True)
    lost = int(series.points["failed"].sum())
    return [f"{counted(lost, 'result')} failed, not averaged"] if lost else []


def _curve(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last value."""
    curves = []
    for arrays in map(results.arrays, rows["key"].dropna()):
        x, y = arrays.get("epochs" if panel.x == "epochs" else "evaluated_at"), arrays.get(f"test_{panel.metric}")
        if x is not None and y is not None and len(x) == len(y) > 0:
            curves.append((np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    if curves:
        grid = np.unique(np.concatenate([x for x, _ in curves]))
        series.points = statistics(grid, np.stack([_held(grid, *one) for one in curves]), len(rows), panel.median)
    lost = len(rows) - len(curves)
    return [f"{counted(lost, 'repetition')} without a learning curve"] if lost else []


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
    first = next((i for i, values in enumerate(draws) if len(values)), None)
    if first is None:
        return ["no gradient draws in its records"]
    row, shown = rows.iloc[first], draws[first]
    lost, size = sum(len(values) == 0 for values in draws), row["norm2_G"]
    series.draws = shown
    series.points = statistics([series.line.samples or 0], shown[:, None], len(shown)).assign(
        repetitions=len(draws) - lost, failed=lost, draws=len(shown), seed=row["seed"], bias=row["bias"] / size,
        error_of_G=_error_of_truth(row, results) / size,
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
    best = rows.sort_values("samples").tail(1)
    return float((best["bias"] - best["bias_quadrature"]).iloc[0]) if len(best) else np.nan


def _reliability(panel: Panel, series: Series, rows: pd.DataFrame, results: Results) -> list[str]:
    """Observed shares of class 1 against predicted ones at the selected beta, in bins of equal numbers of rows."""
    bins = [results.arrays(key) for key in rows["key"][rows["status"] == "done"]]
    pairs = [(one["reliability_p"], one["reliability_y"]) for one in bins if "reliability_p" in one]
    if pairs:
        p, y = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
        series.points = statistics(statistics(range(p.shape[1]), p, len(p))["mean"], y, len(rows))
    return []
