"""Figures of users' own data: whatever was run on it, with the estimators that were used. No experiment of ours says
what there should be, so nothing of it is missing but cells that a run asked for and has not trained yet."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from dlmexp import catalogue
from dlmexp.config import PARAMETERISATIONS
from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.panels import Figure, Kind, Line, Panel
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results
from dlmexp.records.selection import Choice

OWN = "own-"  # how the ids of these figures begin
LOSSES = {"regression": ("nll", "mse"), "binary": ("nll", "error"), "count": ("nll", "mre")}
RELIABILITY = {"regression": ("coverage", "coverage_95"), "binary": ("reliability", "ece")}  # and a metric that tells
CALIBRATION = {"regression": ("crps",), "binary": ("ece",), "count": ("coverage_95", "crps")}
COLUMNS = 3
X = Literal["epochs", "iterations"]


def own_datasets(several: Iterable[Results]) -> list[str]:
    """Datasets with records that are neither ours nor in a figure that a plugin declares; also tables without a name of
    their own."""
    known = {panel.dataset for name in FIGURES for panel in FIGURES[name].panels}
    found = dict.fromkeys(name for results in several for name in results.tasks if name not in known)
    return [name for name in found if catalogue.is_own(name)]


def own_drawings(several: Sequence[Results], datasets: Iterable[str], wanted: str | None = None) -> list[Drawing]:
    """A drawing per dataset and parameterisation of q that was run (`wanted`: of this one alone)."""
    found = []
    for dataset in datasets:
        choices = [one for results in several for one in results.choices if one.cell.dataset == dataset]
        run = {one.cell.parameterisation for one in choices if one.cell.task != "regression"} or {PARAMETERISATIONS[0]}
        for how in (one for one in PARAMETERISATIONS if one in run and wanted in (None, one)):
            fitting = [one for one in choices if one.cell.task == "regression" or one.cell.parameterisation == how]
            panels = _panels(dataset, fitting, _command(several, dataset))
            figure = Figure(f"{OWN}{dataset}", panels, _columns(len(panels)), _caption(dataset, panels, fitting))
            name = figure.id if how == min(run, key=PARAMETERISATIONS.index) else f"{figure.id}-{how}"
            if panels:
                found.append(Drawing(figure, name, panels, how))
    return found


def check_ids(ids: Iterable[str], several: Sequence[Results]) -> None:
    """UserError if one of them is a figure of own data of which there are no results."""
    at_hand = own_datasets(several)
    for name in (name for name in ids if name.startswith(OWN)):
        if name.removeprefix(OWN) not in at_hand:
            valid = [f"{OWN}{dataset}" for dataset in at_hand]
            raise UserError(f"there are no results on data of your own named '{name.removeprefix(OWN)}'"
                            + (f": {nearest(name, valid)}" if valid else ""))  # fmt: skip


def _panels(dataset: str, choices: list[Choice], command: str) -> tuple[Panel, ...]:
    curves = [one for one in choices if one.records[0].part == "curves"]
    fits = [one for one in choices if one.records[0].part == "fits"]
    fitted = {_line_key(one) for one in fits}
    ends = fits + [one for one in curves if _line_key(one) not in fitted]  # a learning curve has its end as well
    task = choices[0].cell.task if choices else ""
    panels = []

    def add(kind: Kind, metric: str, lines: tuple[Line, ...], x: X = "iterations", title: str = "") -> None:
        if lines:
            panels.append(Panel(kind, dataset, metric, lines, "", x=x, title=title, command=command))

    def lines(several: list[Choice], metric: str) -> tuple[Line, ...]:
        """One line for each method and estimator with this metric, in the usual order."""
        found = {_line_key(one): _line(one, choices) for one in several if _has(one, metric)}
        return tuple(found[key] for key in sorted(found, key=_order))

    for metric in LOSSES.get(task, ("nll",)):
        add("sizes", metric, lines(ends, metric))
    chosen = [one for one in ends if len({record.cell.beta for record in one.records}) > 1]
    against = "nll" if any(_has(one, "nll") for one in chosen) else "mse"
    add("betas", against, lines(chosen, against))
    epochs = bool(curves) and all(one.cell.minibatch is not None for one in curves)
    add("curve", "nll", lines(curves, "nll"), "epochs" if epochs else "iterations", "β selected")
    if task in RELIABILITY:
        kind, told_by = RELIABILITY[task]
        add("reliability", kind, lines(ends, told_by))
    for metric in CALIBRATION.get(task, ()):
        add("sizes", metric, lines(ends, metric))
    return tuple(panels)


def _line_key(one: Choice) -> tuple[str, str, int | None]:
    return one.method, one.cell.estimator, one.cell.samples


def _line(one: Choice, choices: list[Choice]) -> Line:
    """The estimator is named where it does not go without saying."""
    alone = len({_line_key(other) for other in choices if other.method == one.method}) == 1
    names = "method" if one.cell.estimator == "exact" and alone else "both"
    return Line(one.method, one.cell.estimator, one.cell.samples, names=names, part=one.records[0].part)


def _order(key: tuple[str, str, int | None]) -> tuple[int, str, str, int]:
    method, estimator, samples = key
    known = list(style.METHODS)
    return (known.index(method) if method in known else len(known), method, estimator, samples or 0)


def _has(one: Choice, metric: str) -> bool:
    return any(metric in record.result.test for record in one.records)


def _columns(panels: int) -> int:
    return 2 if panels in (2, 4) else min(COLUMNS, panels)


def _caption(dataset: str, panels: tuple[Panel, ...], choices: list[Choice]) -> str:
    """What is shown, and by which metric beta is selected where it is not NLL alone."""
    shown = {"sizes": "test metrics against training size", "betas": "against β", "curve": "learning curves",
             "reliability": "calibration"}  # fmt: skip
    what = ", ".join(shown[kind] for kind in dict.fromkeys(panel.kind for panel in panels))
    by_mse = any(panel.metric == "mse" for panel in panels) and any(one.selected_by("mse") == "mse" for one in choices)
    return f"{dataset}: {what}" + (" (β selected by NLL, for the MSE by MSE)." if by_mse else ".")


def with_commands(drawing: Drawing, several: Sequence[Results]) -> Drawing:
    """A figure of the paper on a user's own data: its panels name what computes them, which no file of ours says."""
    own = own_datasets(several)
    panels = tuple(
        replace(panel, command=_command(several, panel.dataset, panel.experiment)) if panel.dataset in own else panel
        for panel in drawing.panels
    )
    return replace(drawing, panels=panels)


def _command(several: Sequence[Results], dataset: str, experiment: str = "") -> str:
    """The command that made most of the records on a dataset; of an experiment, what says which data is meant."""
    made = Counter(
        record.made.command
        for results in several
        for record in results.records.values()
        if record.cell.dataset == dataset and record.made.command
    )
    command = max(made, key=lambda command: (made[command], command)) if made else ""
    if not experiment or not command:
        return command
    words = shlex.split(command)
    kept = [
        word
        for before, word in pairwise(["", *words])
        if word.startswith(("dataset=", "csv.", "plugins=", "dataset.", "--config-dir")) or before == "--config-dir"
    ]
    return shlex.join(["dlmexp", "run", f"experiment={experiment}", *kept])
