"""Figures of users' own data: whatever was run on it, with the estimators that were used."""

from collections.abc import Iterable, Sequence
from typing import Literal

import pandas as pd

from dlmexp import catalogue
from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.panels import LOSSES, Figure, Kind, Line, Panel
from dlmexp.figures.registry import FIGURES
from dlmexp.records.results import Results

OWN = "own-"  # how the ids of these figures begin
CALIBRATION = {
    "regression": ("coverage_50", "coverage_90", "coverage_95", "crps"),
    "binary": ("ece", "brier"),
    "count": ("coverage_95", "crps"),
}
SHOWN = {"sizes": "test metrics", "betas": "NLL against β", "curve": "learning curves", "reliability": "calibration"}


def own_datasets(datasets: Iterable[str]) -> list[str]:
    """Those that are neither ours nor in a figure that a plugin declares; also tables without a name of their own."""
    known = {panel.dataset for name in FIGURES for panel in FIGURES[name].panels}
    return [name for name in datasets if name not in known and catalogue.is_own(name)]


def check_ids(ids: Iterable[str], datasets: Iterable[str]) -> None:
    """UserError if one of them is a figure of own data of which there are no results."""
    valid = [f"{OWN}{dataset}" for dataset in own_datasets(datasets)]
    for name in ids:
        if name.startswith(OWN) and name not in valid:
            raise UserError(f"there are no results on data of your own named '{name.removeprefix(OWN)}'"
                            + (f": {nearest(name, valid)}" if valid else ""))  # fmt: skip


def own_figure(dataset: str, several: Sequence[Results]) -> Figure | None:
    """A panel per loss of the task, then betas, learning curves and calibration, each where there is something."""
    tables = [results.table[results.table["dataset"] == dataset] for results in several]
    rows = pd.concat(tables) if len(tables) > 1 else tables[0]
    if rows.empty:
        return None
    task = rows["task"].iloc[0]
    fits, curves = _lines(rows, "fit"), _lines(rows, "curve")
    fitted = {(line.method, line.estimator, line.samples) for line in fits}
    ends = (*fits, *(line for line in curves if (line.method, line.estimator, line.samples) not in fitted))
    panels: list[Panel] = []

    def add(
        kind: Kind, metric: str, lines: tuple[Line, ...], x: Literal["epochs", "iterations"] = "iterations",
        title: str = "",
    ) -> None:  # fmt: skip
        column = "test_ece" if metric == "reliability" else f"test_{metric}"
        having = tuple(line for line in lines if column in rows and _own(rows, line)[column].notna().any())
        if having:
            panels.append(Panel(kind, dataset, metric, having, "", x=x, title=title))

    for metric in LOSSES:
        add("sizes", metric, ends)
    add("betas", "nll", tuple(line for line in ends if (_own(rows, line)["candidates"] > 1).any()))
    by_epoch = bool(rows["minibatch"][rows["role"] == "curve"].notna().all())
    add("curve", "nll", curves, "epochs" if by_epoch else "iterations", "β selected")
    add("reliability", "reliability", ends if task == "binary" else ())
    for metric in CALIBRATION.get(task, ()):
        add("sizes", metric, ends)
    shown = ", ".join(SHOWN[kind] for kind in dict.fromkeys(panel.kind for panel in panels))
    by_mse = ", for the MSE by MSE" if any(panel.metric == "mse" for panel in panels) else ""
    caption = f"{dataset}: {shown} (β selected by NLL{by_mse})."
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    return Figure(f"{OWN}{dataset}", tuple(panels), columns, caption, dataset) if panels else None


def _own(rows: pd.DataFrame, line: Line) -> pd.DataFrame:
    samples = rows["samples"].isna() if line.samples is None else rows["samples"] == line.samples
    fits = (rows["method"] == line.method) & (rows["estimator"] == line.estimator) & (rows["role"] == line.role)
    return rows[fits & samples]


def _lines(rows: pd.DataFrame, role: str) -> tuple[Line, ...]:
    """One line for each method and estimator; the estimator is named where it does not go without saying."""
    keys = rows[["method", "estimator", "samples"]][rows["role"] == role].drop_duplicates()
    known = list(style.METHODS)
    found = []
    for method, estimator, samples in keys.itertuples(index=False):
        alone = (keys["method"] == method).sum() == 1 and estimator == "exact"
        count = None if pd.isna(samples) else int(samples)
        found.append(Line(method, estimator, count, names="method" if alone else "both", role=role))

    def order(one: Line) -> tuple[int, str, str, int]:
        place = known.index(one.method) if one.method in known else len(known)
        return place, one.method, one.estimator, one.samples or 0

    return tuple(sorted(found, key=order))
