"""The figures of users' own data and sweeps: losses, betas, learning curves and calibration."""

import copy
from collections.abc import Iterable

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.kinds.kind import LOSSES
from dlmexp.presentation.figures.looks import METHOD_LOOKS
from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel

OWN = "own-"  # how the ids of these figures begin
OWN_LOSSES = ("nll", "rmse", "mae", "error")
"""Losses of a user's own table; like the closing table they are at the beta selected by NLL."""
CALIBRATION = ("coverage_50", "coverage_90", "coverage_95", "crps", "ece", "brier")


def own_datasets(datasets: Iterable[str]) -> list[str]:
    """Return the datasets that are neither ours nor in a figure that a plugin declares.

    Tables without a name of their own are among them.
    """
    known = {panel.dataset for name in FIGURES for panel in FIGURES[name].panels}
    return [name for name in datasets if name not in known and catalogue.is_own(name)]


def own_figure(dataset: str, results: ResultsFolder) -> Figure:
    """Return all panels that there may be; those without results are left out when drawn."""
    panels, selection = _panels(dataset, results)
    return Figure(
        f"{OWN}{dataset}",
        panels,
        columns=3,
        title=dataset,
        caption=(
            f"{dataset}: test metrics, NLL against β, learning curves and calibration, "
            f"as far as there are any. {selection}."
        ),
    )


def experiments(results: ResultsFolder) -> list[str]:
    """Return the names of the experiments that have records."""
    names: dict[str, None] = {}
    for text in results.candidates["experiment"].unique():
        names |= dict.fromkeys(str(text).split(", "))
    return list(names)


def of_experiment(results: ResultsFolder, name: str) -> ResultsFolder:
    """Return results with the rows of one experiment alone."""

    def rows(frame: pd.DataFrame) -> pd.DataFrame:
        texts = frame["experiment"].astype(str)
        return frame[[name in text.split(", ") for text in texts]]

    part = copy.copy(results)
    part.candidates = rows(results.candidates)
    part.table = rows(results.table)
    return part


def sweep_figure(name: str, results: ResultsFolder) -> Figure:
    """Return the panels of a sweep with a name, `name=NAME`: those of each of its datasets."""
    panels: list[Panel] = []
    selection = ""
    for dataset in results.candidates["dataset"].unique():
        of_dataset, selection = _panels(dataset, results)
        panels += of_dataset
    return Figure(
        f"{OWN}{name}",
        tuple(panels),
        columns=3,
        title=name,
        caption=f"The sweep {name}, as far as there are results. {selection}.",
    )


def _panels(dataset: str, results: ResultsFolder) -> tuple[tuple[Panel, ...], str]:
    """Return all panels of a dataset, and what selects beta in them."""
    rows = results.table[results.table["dataset"] == dataset]
    fits = _lines(rows, "fit")
    curves = _lines(rows, "curve")
    lines = (*fits, *_without_fit(curves, fits))
    selecting = tuple(line for line in lines if catalogue.selects(line.method))
    has_selection = bool((rows["candidates"] > 1).any())
    is_binary = bool((rows["task"] == "binary").any())
    has_units = "test_rmse" in rows and bool(rows["test_rmse"].notna().any())
    losses = OWN_LOSSES if has_units or is_binary else LOSSES
    selection = "β is selected by NLL"
    if losses == LOSSES:
        selection += ", for the MSE by MSE"
    has_epochs = rows["minibatch"][rows["role"] == "curve"].notna().all()
    panels = (
        *(Panel("sizes", dataset, metric, lines, "") for metric in losses),
        Panel("betas", dataset, "nll", selecting if has_selection else (), ""),
        Panel(
            "curve",
            dataset,
            "nll",
            curves,
            "",
            x="epochs" if has_epochs else "iterations",
            title="β selected",
        ),
        Panel("reliability", dataset, "reliability", lines if is_binary else (), ""),
        *(Panel("sizes", dataset, metric, lines, "") for metric in CALIBRATION),
    )
    return panels, selection


def _without_fit(curves: Iterable[Line], fits: Iterable[Line]) -> list[Line]:
    """Return the learning curves of methods and estimators that have no fits."""
    fitted = {(line.method, line.estimator, line.samples) for line in fits}
    return [line for line in curves if (line.method, line.estimator, line.samples) not in fitted]


def _lines(rows: pd.DataFrame, role: str) -> tuple[Line, ...]:
    """Return a line for each method and estimator, which names the estimator unless it is obvious.

    It is where a method has only one, which is exact.
    """
    keys = rows[["method", "estimator", "samples"]][rows["role"] == role].drop_duplicates()
    lines: list[Line] = []
    for method, estimator, samples in keys.itertuples(index=False):
        is_obvious = (keys["method"] == method).sum() == 1 and estimator == "exact"
        names = "method" if is_obvious else "both"
        count = None if pd.isna(samples) else int(samples)
        lines.append(Line(method, estimator, count, names=names, role=role))
    return tuple(sorted(lines, key=_legend_order))


def _legend_order(line: Line) -> tuple[int, str, str, int]:
    """Return the key by which lines are sorted: our methods in their order, then others."""
    order = list(METHOD_LOOKS)
    place = order.index(line.method) if line.method in order else len(order)
    return (place, line.method, line.estimator, line.samples or 0)
