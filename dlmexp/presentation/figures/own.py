"""The figures of users' own data and sweeps: losses, betas, learning curves and calibration."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

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
    declared: set[str] = set()
    for figure_id in FIGURES:
        declared.update(panel.dataset for panel in FIGURES[figure_id].panels)
    return [name for name in datasets if name not in declared and catalogue.is_own(name)]


def own_figure(dataset: str, results: ResultsFolder) -> Figure:
    """Return all panels that there may be; those without results are left out when drawn."""
    contents = _contents(dataset, results)
    return Figure(
        f"{OWN}{dataset}",
        _panels(contents),
        columns=3,
        title=dataset,
        caption=(
            f"{dataset}: test metrics, NLL against β, learning curves and calibration, "
            f"as far as there are any. {_selection(contents)}."
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
        contents = _contents(dataset, results)
        panels += _panels(contents)
        selection = _selection(contents)
    return Figure(
        f"{OWN}{name}",
        tuple(panels),
        columns=3,
        title=name,
        caption=f"The sweep {name}, as far as there are results. {selection}.",
    )


@dataclass(frozen=True)
class Contents:
    """What a figure can show of a dataset.

    Attributes:
        dataset: The dataset.
        fits: A line for each method and estimator that has fits.
        curves: Likewise, of learning curves.
        has_selection: Whether a beta was selected from several.
        is_binary: Whether the task is binary classification.
        has_units: Whether errors are in units of the target.
        has_epochs: Whether learning curves are from minibatches.
    """

    dataset: str
    fits: tuple[Line, ...]
    curves: tuple[Line, ...]
    has_selection: bool
    is_binary: bool
    has_units: bool
    has_epochs: bool

    @property
    def losses(self) -> tuple[str, ...]:
        """The losses that are drawn: those of users' tables, or those of the paper."""
        return OWN_LOSSES if self.has_units or self.is_binary else LOSSES


def _contents(dataset: str, results: ResultsFolder) -> Contents:
    """Return what a figure can show of a dataset."""
    rows = results.table[results.table["dataset"] == dataset]
    curve_batches = rows["minibatch"][rows["role"] == "curve"]
    return Contents(
        dataset=dataset,
        fits=_lines(rows, "fit"),
        curves=_lines(rows, "curve"),
        has_selection=bool((rows["candidates"] > 1).any()),
        is_binary=bool((rows["task"] == "binary").any()),
        has_units="test_rmse" in rows and bool(rows["test_rmse"].notna().any()),
        has_epochs=bool(curve_batches.notna().all()),
    )


def _selection(contents: Contents) -> str:
    """Return what selects beta, for the caption."""
    if contents.losses == LOSSES:
        return "β is selected by NLL, for the MSE by MSE"
    return "β is selected by NLL"


def _panels(contents: Contents) -> tuple[Panel, ...]:
    """Return all panels of a dataset; one without lines is never drawn."""
    dataset = contents.dataset
    lines = (*contents.fits, *_without_fit(contents.curves, contents.fits))
    selecting: tuple[Line, ...] = ()
    if contents.has_selection:
        selecting = tuple(line for line in lines if catalogue.selects(line.method))
    classifying = lines if contents.is_binary else ()
    time = "epochs" if contents.has_epochs else "iterations"
    return (
        *(Panel("sizes", dataset, metric, lines, "") for metric in contents.losses),
        Panel("betas", dataset, "nll", selecting, ""),
        Panel("curve", dataset, "nll", contents.curves, "", x=time, title="β selected"),
        Panel("reliability", dataset, "reliability", classifying, ""),
        *(Panel("sizes", dataset, metric, lines, "") for metric in CALIBRATION),
    )


def _without_fit(curves: Iterable[Line], fits: Iterable[Line]) -> list[Line]:
    """Return the learning curves of methods and estimators that have no fits."""
    fitted = {_method_and_estimator(line) for line in fits}
    return [line for line in curves if _method_and_estimator(line) not in fitted]


def _method_and_estimator(line: Line) -> tuple[str, str, int | None]:
    return line.method, line.estimator, line.samples


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
