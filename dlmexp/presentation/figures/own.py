"""Make the figures of users' own datasets and of sweeps.

These figures show losses, betas, learning curves and calibration.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.kinds.kind import LOSSES
from dlmexp.presentation.figures.looks import METHOD_LOOKS
from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel

OWN_PREFIX = "own-"  # the beginning of the ids of these figures
# Losses of a user's own table. Beta is selected by NLL for all of them, as in the table that a run
# prints last.
OWN_LOSSES = ("nll", "rmse", "mae", "error")
CALIBRATION = ("coverage_50", "coverage_90", "coverage_95", "crps", "ece", "brier")


def own_datasets(datasets: Iterable[str]) -> list[str]:
    """Return those of the datasets that are a user's own and that no declared figure shows.

    A dataset that a plugin adds together with a figure is left out.
    """
    declared: set[str] = set()
    for figure_id in FIGURES:
        declared.update(panel.dataset for panel in FIGURES[figure_id].panels)
    return [name for name in datasets if name not in declared and catalogue.is_user_dataset(name)]


def own_figure(dataset: str, results: ResultsFolder) -> Figure:
    """Return the figure of a user's own dataset.

    The figure has all panels that the dataset can have. Panels without results are left out when
    the figure is drawn.
    """
    contents = _contents(dataset, results)
    return Figure(
        f"{OWN_PREFIX}{dataset}",
        _panels(contents),
        columns=3,
        title=dataset,
        caption=(
            f"{dataset}: test metrics, NLL against β, learning curves and calibration, "
            f"as far as there are any. {_selection_of_beta(contents)}."
        ),
    )


def experiment_names(results: ResultsFolder) -> list[str]:
    """Return the names of the experiments that have records."""
    names: dict[str, None] = {}  # an ordered set
    for text in results.candidates["experiment"].unique():
        for name in _experiments_in(text):
            names[name] = None
    return list(names)


def _experiments_in(text: object) -> list[str]:
    """Return the experiments that a text in the column `experiment` lists."""
    return str(text).split(", ")


def results_of_experiment(results: ResultsFolder, name: str) -> ResultsFolder:
    """Return a copy of the results with only the rows of one experiment."""
    results_of_one = copy.copy(results)
    results_of_one.candidates = _rows_of_experiment(results.candidates, name)
    results_of_one.table = _rows_of_experiment(results.table, name)
    return results_of_one


def _rows_of_experiment(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows whose experiments include the one with this name."""
    texts = frame["experiment"].astype(str)
    return frame[[name in _experiments_in(text) for text in texts]]


def sweep_figure(name: str, results: ResultsFolder) -> Figure:
    """Return the figure of a named sweep, with the panels of each of its datasets.

    Args:
        name: The name of the sweep, as in the command `dlmexp run name=NAME`.
        results: The results of the sweep alone.
    """
    panels: list[Panel] = []
    selection = ""
    for dataset in results.candidates["dataset"].unique():
        contents = _contents(dataset, results)
        panels += _panels(contents)
        # The figure has one caption. If some datasets have `LOSSES` and others `OWN_LOSSES`, it
        # states the selection of the last dataset.
        selection = _selection_of_beta(contents)
    return Figure(
        f"{OWN_PREFIX}{name}",
        tuple(panels),
        columns=3,
        title=name,
        caption=f"The sweep {name}, as far as there are results. {selection}.",
    )


@dataclass(frozen=True)
class Contents:
    """What the results of a dataset allow a figure to show.

    Attributes:
        dataset: The dataset.
        fits: A line for each method and estimator that has results after training.
        curves: A line for each method and estimator that has learning curves.
        has_selection: Whether beta was selected from several values.
        is_binary: Whether the task is binary classification.
        has_units: Whether errors are in units of the target, as on users' own tables alone.
        has_epochs: Whether the time of learning curves is counted in epochs, as with minibatches.
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
        """The losses that are drawn: those of users' own tables, or those of the paper."""
        # Binary targets have no units. NLL and error rate in `OWN_LOSSES` suit any binary data.
        return OWN_LOSSES if self.has_units or self.is_binary else LOSSES


def _contents(dataset: str, results: ResultsFolder) -> Contents:
    """Return what the results of a dataset allow a figure to show."""
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


def _selection_of_beta(contents: Contents) -> str:
    """Return the words of the caption that say which metric selects beta."""
    if contents.losses == LOSSES:
        return "β is selected by NLL, for the MSE by MSE"
    return "β is selected by NLL"


def _panels(contents: Contents) -> tuple[Panel, ...]:
    """Return all panels of a dataset; panels without lines are left out when drawn."""
    lines = (*contents.fits, *_without_fit(contents.curves, contents.fits))
    unit_of_time = "epochs" if contents.has_epochs else "iterations"
    dataset = contents.dataset
    panels = [Panel("sizes", dataset, metric, lines, experiment="") for metric in contents.losses]
    lines_with_beta = _lines_with_selected_beta(contents, lines)
    panels.append(Panel("betas", dataset, "nll", lines_with_beta, experiment=""))
    curve = Panel(
        "curve", dataset, "nll", contents.curves, experiment="", x=unit_of_time, title="β selected"
    )
    panels.append(curve)
    lines_with_classes = lines if contents.is_binary else ()
    panels.append(Panel("reliability", dataset, "reliability", lines_with_classes, experiment=""))
    panels += [Panel("sizes", dataset, metric, lines, experiment="") for metric in CALIBRATION]
    return tuple(panels)


def _lines_with_selected_beta(contents: Contents, lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return the lines of methods that have a beta, if it was selected from several values."""
    if not contents.has_selection:
        return ()
    return tuple(line for line in lines if catalogue.has_beta_to_select(line.method))


def _without_fit(curves: Iterable[Line], fits: Iterable[Line]) -> list[Line]:
    """Return the lines of methods and estimators that have learning curves but no fits.

    For them, the other panels show the results at the end of the learning curves.
    """
    fitted = {_method_and_estimator(line) for line in fits}
    return [line for line in curves if _method_and_estimator(line) not in fitted]


def _method_and_estimator(line: Line) -> tuple[str, str, int | None]:
    """Return the fields that distinguish a method with its estimator from others."""
    return line.method, line.estimator, line.samples


def _lines(rows: pd.DataFrame, role: str) -> tuple[Line, ...]:
    """Return a line for each method and estimator that has rows of a role, in order of the legend.

    A line does not name its estimator if this is exact and the only one of its method.
    """
    of_role = rows[rows["role"] == role]
    combinations = of_role[["method", "estimator", "samples"]].drop_duplicates()
    lines: list[Line] = []
    for method, estimator, samples in combinations.itertuples(index=False):
        is_only_estimator = (combinations["method"] == method).sum() == 1
        names = "method" if is_only_estimator and estimator == "exact" else "both"
        count = None if pd.isna(samples) else int(samples)
        lines.append(Line(method, estimator, count, names=names, role=role))
    return tuple(sorted(lines, key=_legend_order))


def _legend_order(line: Line) -> tuple[int, str, str, int]:
    """Return a sort key: our methods in their usual order, then those of plugins by name."""
    our_methods = list(METHOD_LOOKS)
    is_ours = line.method in our_methods
    position = our_methods.index(line.method) if is_ours else len(our_methods)
    return (position, line.method, line.estimator, line.samples or 0)
