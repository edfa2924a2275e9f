"""From the tidy table to the numbers of a panel: a `Series` per line, all of one setting.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or
infinite, is left out of mean and interval and counted in `failed`; one that is not complete yet is
left out and counted in a note."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import PAPER, SETTING, Where, named, select_setting
from dlmexp.experiment.records.table import IDENTITY, SELECTION, rows_for, select
from dlmexp.presentation.figures.panels import SHORTEST, Line, Panel
from dlmexp.presentation.figures.stats import (
    BAYES_NLL,
    EFFECT_METHODS,
    half_width,
    measure_effect,
    statistics,
)
from dlmexp.presentation.labels import metric_label

ROLES = {
    "curve": "curve",
    "histogram": "gradient",
    "effects": "anatomy",
}  # of the rows; other panels: fits
WHITENED = "whitened"
FACTS = (
    *IDENTITY, *SELECTION, *SETTING, "group", "M", "form", "noise_floor", "minibatch", "options", "initial", "command",
    "base", "bias", "norm2_G", "arrays",
)  # fmt: skip  # how the names of the columns begin that figures read beside metrics


@dataclass(eq=False)
class Series:
    """One line. `points` has a row per x: x, mean, std, sem (or median, q25, q75 where the panel
    has them), repetitions, failed, and more where it applies."""

    line: Line
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    values: pd.DataFrame | None = (
        None  # of panels `sizes`: the metric by seed, a column for each n (or M)
    )
    draws: np.ndarray = field(
        default_factory=lambda: np.empty(0)
    )  # histograms: those of one repetition


@dataclass
class Measured:
    """The numbers of a panel, and what is to be said about them."""

    panel: Panel
    asked: str | None  # the protocol that is drawn
    others: list[
        tuple[str, int]
    ]  # options that draw other settings, and how many results they have
    series: list[Series]
    protocol: str | None = None  # of the rows; None where there are none
    changes: str = ""
    parameterisation: str = WHITENED
    coordinates: frozenset[str] = (
        frozenset()
    )  # parameterisations of q in this setting; none in regression
    task: str = ""
    n: int | None = None  # the training size, where the panel has one
    command: str = ""  # that made most of the rows
    notes: list[str] = field(default_factory=list)

    @property
    def filled(self) -> list[Series]:
        """The lines that have points."""
        return [series for series in self.series if not series.points.empty]

    @property
    def single(self) -> bool:
        """Whether all points are at one n: then there is nothing to join, and they are drawn as
        bars."""
        return (
            self.panel.kind == "sizes"
            and len({x for series in self.filled for x in series.points["x"]}) == 1
        )


def panel_rows(
    panel: Panel, results: ResultsFolder, by: Where, where: Iterable[str] = ()
) -> pd.DataFrame:
    """All rows that could be part of a panel, of every setting, size and parameterisation; `line`
    numbers its lines. `by`: column -> values that the rows have; datasets, methods and betas are
    chosen by panels and lines. `where` names columns that are looked at later."""
    of_effects, names, metric = (
        panel.kind == "effects",
        (*FACTS, panel.x, *where),
        panel.metric.removeprefix("excess_"),
    )
    parts = []
    for i, line in enumerate(panel.lines[:1] if of_effects else panel.lines):
        rows = results.candidates if _every_beta(panel, line) else results.table
        fits = (rows["dataset"] == panel.dataset) & (
            rows["role"] == (line.role or ROLES.get(panel.kind, "fit"))
        )
        fits &= rows["method"].isin(EFFECT_METHODS.values() if of_effects else [line.method])
        if not of_effects:
            fits &= rows["estimator"] == line.estimator
        if not of_effects and panel.x != "samples":
            fits &= rows["samples"].fillna(0) == (line.samples or 0)
        if line.beta is not None:
            fits &= np.isclose(rows["beta"].astype(float), line.beta)
        for name in {*by} - {"dataset", "method", "beta"}:
            fits &= named(rows[name], by[name])
        kept = [name for name in map(str, rows) if name.startswith(names) or name.endswith(metric)]
        rows = rows.loc[fits, kept].assign(line=i)
        if "selected_by" not in rows:
            rows = rows.assign(selected_by="nll")
        if line.role == "rivals":  # what the line shows is no setting
            use = "train" if line.version == "train" else ""
            rows = rows[
                rows["split"].str.extract(r"-(train|tenth)-", expand=False).fillna("") == use
            ]
            rows = rows.assign(split=rows["split"].str.replace(f"-{use}-", "-"))
        if line.version == "short":
            rows = select(rows[(rows["beta"] >= SHORTEST) & (rows["missing"] == 0)], "nll")
        if line.version == "recalibrated":
            used = [f"test_{panel.metric}", f"validation_{panel.metric}"]
            again = {
                name: rows.get(name.replace("_", "_recalibrated_", 1), np.nan) for name in used
            }
            rows = rows.assign(**again)
        if line.version in ("short", "recalibrated"):  # beside the same group as it is
            rows = rows.assign(group=-1 - rows["group"])
        parts.append(rows)
    rows = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    return rows.copy()  # which joins columns of one type: filters take half the time


def _every_beta(panel: Panel, line: Line) -> bool:
    """Whether a line is drawn from all candidates instead of the selected ones."""
    return panel.kind == "betas" or line.beta is not None or line.version == "short"


def measure(
    panel: Panel, results: ResultsFolder, rows: pd.DataFrame, protocol: str | None = PAPER, where: Where | None = None,
    parameterisation: str | None = None,
) -> Measured:  # fmt: skip
    """The numbers of a panel from `panel_rows`: of one setting, in one parameterisation of q (None:
    the usual)."""
    rows, others = select_setting(rows, protocol, where or {}, results.changes)
    about = Measured(panel, protocol, others, [Series(line) for line in panel.lines])
    if rows.empty:
        return about
    about.protocol, about.changes, about.task = rows[["protocol", "changes", "task"]].iloc[0]
    about.command = next(iter(rows["command"].dropna().mode()), "")
    if about.task != "regression":
        about.coordinates = frozenset(rows["parameterisation"])
    if panel.kind != "effects":
        rows, about.parameterisation = _in_coordinates(rows, parameterisation)
    if every := [i for i, line in enumerate(panel.lines) if _every_beta(panel, line)]:
        rows = rows[
            ~(rows["line"].isin(every) & rows.duplicated(["line", "key"]))
        ]  # a cell that two groups ask for
    if panel.kind != "sizes" or panel.x != "n":
        counts = rows["n"][(rows["size"] == panel.n) | (panel.n is None)].value_counts()
        about.n = max(
            counts.index, key=lambda n: (counts[n], n), default=None
        )  # the larger of equals
        rows = rows[rows["n"] == about.n]
    if panel.kind in ("sizes", "reliability", "effects"):
        rows = rows_for(
            rows.reset_index(drop=True), panel.metric
        )  # of each group the row that reports the metric
    make = {"sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram, "reliability": _reliability,
            "effects": _effects}  # fmt: skip
    rows = rows.sort_values("seed", kind="stable")
    for index, series in enumerate(about.series):
        own = rows[(rows["line"] == index) | (panel.kind == "effects")]
        complete = own[own["status"] != "incomplete"]
        notes = make[panel.kind](panel, series, complete, results) if len(complete) else []
        if lacking := len(own) - len(complete):
            notes = [
                f"{counted(lacking, 'repetition')} with candidates not yet run, not drawn",
                *notes,
            ]
        about.notes += [f"{series.line.label}: {note}" for note in notes]
    _add_differences(about)
    return about


def _in_coordinates(rows: pd.DataFrame, wanted: str | None) -> tuple[pd.DataFrame, str]:
    """The rows in one parameterisation of q: the one wanted, else whitened where there is any. Most
    methods of regression have a closed form over q, so there each line has its own."""
    if rows["task"].iloc[0] == "regression":
        fits = rows["parameterisation"] == (wanted or WHITENED)
        return rows[fits | ~rows["line"].isin(rows["line"][fits])], wanted or WHITENED
    how = wanted or max(rows["parameterisation"])  # whitened comes after unwhitened
    return rows[rows["parameterisation"] == how], how


def _metric(rows: pd.DataFrame, panel: Panel, of: str = "test") -> np.ndarray:
    """A metric of rows; NaN where it was not recorded, or the row is not done. `excess_nll` is over
    the truth's."""
    name = f"{of}_{panel.metric.removeprefix('excess_')}"
    values = rows[name].astype(float) if name in rows else pd.Series(np.nan, index=rows.index)
    truth = BAYES_NLL.get(panel.dataset, np.nan) if panel.metric == "excess_nll" else 0.0
    return values.where(rows["status"] == "done").to_numpy() - truth


def _by_seed(
    rows: pd.DataFrame, column: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The seeds, and values by seed and number of their column; NaN where there is none."""
    seeds, seed = np.unique(rows["seed"], return_inverse=True)
    table = np.full((len(seeds), column.max() + 1), np.nan)
    table[seed, column] = values
    return seeds, table


def _sizes(panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder) -> list[str]:
    """Test metric against n or M, beta selected on validation for every repetition."""
    values = _metric(rows, panel)
    if not np.isfinite(values).any() and (rows["status"] == "done").any():
        return [f"its records have no {metric_label(panel.metric)}"]
    by = panel.x if panel.x in ("n", "samples") else "M"
    sizes, size = np.unique(
        rows[by].fillna(0), return_inverse=True
    )  # no samples: an exact objective
    x = (
        np.where(sizes == 0, np.nan, sizes)
        if panel.x == by
        else rows.groupby(by)[panel.x].mean().to_numpy()
    )
    if panel.x != by and np.isnan(x).all():
        return [f"its records have no {panel.x}"]
    seeds, table = _by_seed(rows, size, values)
    series.values = pd.DataFrame(table, seeds, sizes)
    series.points = statistics(x, table, np.bincount(size))
    chosen, betas = (
        (rows["candidates"] > 1).to_numpy() & np.isfinite(values),
        rows["beta"].to_numpy(dtype=float),
    )
    series.points["betas"] = [
        " ".join(f"{beta:.4g}" for beta in betas[chosen & (size == i)]) for i in range(len(sizes))
    ]
    lost, failed = (
        int(series.points["failed"].max()),
        int(rows["failed"][rows["candidates"] > 1].sum()),
    )
    several = {f"up to {counted(lost, 'repetition')} of a point failed, not averaged": lost}
    several[f"{counted(failed, 'candidate')} failed; β is selected among the others"] = failed
    return [note for note, number in several.items() if number]


def _add_differences(about: Measured) -> None:
    """Where there is an ELBO: each line minus the ELBO of the same repetitions, with its 95 %
    interval."""
    lines = {one: one.values for one in about.filled if one.values is not None}
    elbo = [one for one in lines if one.line.method == "elbo" and not one.line.version]
    for one, values in lines.items() if elbo else ():
        if one not in elbo:
            table = (values - lines[elbo[0]]).reindex(columns=values.columns)
            difference = statistics(one.points["x"], table.to_numpy(), 0)
            mean, half = difference["mean"], half_width(difference)
            more = {
                "minus_elbo": mean,
                "low": mean - half,
                "high": mean + half,
                "minus_elbo_std": difference["std"],
            }
            one.points = one.points.assign(**more)


def _betas(panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder) -> list[str]:
    """Test metric against beta at one size; the mean validation metric beside it. A method without
    beta has x = NaN."""
    betas, at = np.unique(rows["beta"].to_numpy(dtype=float), return_inverse=True)
    test, validation = (
        _by_seed(rows, at, _metric(rows, panel, of))[1] for of in ("test", "validation")
    )
    series.points = statistics(betas, test, np.bincount(at)).assign(
        validation=statistics(betas, validation, 0)["mean"]
    )
    lost = int(series.points["failed"].sum())
    return [f"{counted(lost, 'result')} failed, not averaged"] * (lost > 0)


def _curve(panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder) -> list[str]:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last
    value."""
    curves = []
    for arrays in map(results.arrays, rows["key"].dropna()):
        x, y = (
            arrays.get("epochs" if panel.x == "epochs" else "evaluated_at"),
            arrays.get(f"test_{panel.metric}"),
        )
        if x is not None and y is not None and len(x) == len(y) > 0:
            curves.append(pd.Series(y, x, dtype=float))
    if curves:
        grid = np.unique(np.concatenate([one.index for one in curves]))
        values = np.stack([one.reindex(grid, method="ffill") for one in curves])
        series.points = statistics(grid.astype(float), values, len(rows), panel.median)
    lost = len(rows) - len(curves)
    return [f"{counted(lost, 'repetition')} without a learning curve"] * (lost > 0)


def _histogram(
    panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder
) -> list[str]:
    """The draws of the first repetition that has any, in units of |G|^2; x is the number of
    samples. Repetitions have gradients of different size, so draws of more than one would show
    their differences."""
    every = [
        np.asarray(results.arrays(key).get(panel.metric, []), dtype=float) for key in rows["key"]
    ]
    known = [i for i, values in enumerate(every) if np.isfinite(values).any()]
    if not known:
        return ["no gradient draws in its records"]
    row, draws, lost = rows.iloc[known[0]], every[known[0]], len(every) - len(known)
    size = row["norm2_G"]
    draws = draws[np.isfinite(draws)] / (
        1.0 if panel.metric == "condition_i" else size
    )  # (i) is relative already
    series.draws, count = draws, len(draws)
    series.points = statistics([series.line.samples or 0], draws[:, None], count).assign(
        repetitions=len(known), failed=lost, draws=count, seed=row["seed"], bias=row["bias"] / size,
        error_of_G=_error_of_truth(row, results) / size,
    )  # fmt: skip
    return []


def _error_of_truth(row: pd.Series, results: ResultsFolder) -> float:
    """|G - exact gradient|^2: how far G, from 10 000 bMC samples, is off itself.

    The mean of many uPS draws is the exact gradient but for 1 % of that distance. What it is off
    from G more than from quadrature is the error of G."""
    rows = results.candidates
    fits = (rows["role"] == "gradient") & (rows["estimator"] == "ups")
    for name in ("dataset", "base", "parameterisation", "beta"):
        fits &= rows[name] == row[name]
    best = rows.loc[fits, ["samples", "bias", "bias_quadrature"]].sort_values("samples")
    return float((best["bias"] - best["bias_quadrature"]).iloc[-1]) if len(best) else np.nan


def _reliability(
    panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder
) -> list[str]:
    """Observed shares of class 1 against predicted ones at the selected beta, in bins of equal
    numbers of rows."""
    bins = [results.arrays(key) for key in rows["key"][rows["status"] == "done"]]
    pairs = [(one["reliability_p"], one["reliability_y"]) for one in bins if "reliability_p" in one]
    if pairs:
        p, y = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
        series.points = statistics(statistics(range(p.shape[1]), p, len(p))["mean"], y, len(rows))
    return []


def _effects(panel: Panel, series: Series, rows: pd.DataFrame, results: ResultsFolder) -> list[str]:
    """What makes up a difference between methods at the selected beta."""
    series.points = measure_effect(series.line.effect, rows, panel.metric)
    return []
