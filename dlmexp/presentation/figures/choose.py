"""Choose which figures to draw, and on which datasets.

A declared figure names datasets of the paper. It is drawn on those that have results. Where a
dataset has none, a stand-in takes its place: another dataset that represents it because the
original cannot be downloaded. Users can name datasets themselves. A dataset of their own that no
figure names has a figure to itself (`own`).
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where, check_values
from dlmexp.presentation.figures.own import (
    OWN_PREFIX,
    experiment_names,
    own_datasets,
    own_figure,
    results_of_experiment,
    sweep_figure,
)
from dlmexp.presentation.figures.panels import (
    FIGURES,
    LEADERBOARD_FIGURES,
    MODEL_FIGURES,
    VERDICTS_FIGURE,
    Figure,
    Line,
    Panel,
)

# The columns of the tidy table by which the option `--by` filters results.
FILTER_COLUMNS = ("dataset", "method", "n", "size", "seed", "beta", "estimator", "samples")
MAX_PANELS_ON_PAGE = 6  # where each panel takes a row, with its protocols side by side


@dataclass(frozen=True)
class Request:
    """The options of `dlmexp plot` that choose results, for all figures alike.

    Attributes:
        by: The values to draw, by column (`parse_terms`).
        protocol: The protocol to draw. None means `paper`, or the protocol with most results where
            nothing was run under `paper`.
        where: Changed settings (`parse_where`).
        parameterisation: The parameterisation of q to draw, whitened or unwhitened. None means
            whitened where it was run, and a second figure where both were run.
        compare_protocols: Whether all protocols that were run stand side by side.
    """

    by: Where = field(default_factory=dict)
    protocol: str | None = None
    where: Where = field(default_factory=dict)
    parameterisation: str | None = None
    compare_protocols: bool = False


@dataclass(frozen=True)
class Page:
    """A figure, or one page of a long figure, with the name of its files.

    Attributes:
        figure: The figure, with the panels of this page.
        name: The name of the files, without the number of the page.
        number: '1', '2' ... for the pages of a long figure; '' for a figure of one page.
        results: The results that the figure is drawn from; None means all results.
    """

    figure: Figure
    name: str
    number: str = ""
    results: ResultsFolder | None = None


@dataclass(frozen=True)
class Scope:
    """What a user named, and which datasets have results.

    Attributes:
        figure_ids: The figures that the user named; empty if none is named.
        requested_datasets: The datasets that the user named with `--by dataset=`.
        task_of: The task of each dataset that has results.
        own_datasets: The datasets with results that are the user's own.
    """

    figure_ids: Sequence[str]
    requested_datasets: Sequence[str]
    task_of: Mapping[str, str]
    own_datasets: Sequence[str]


def pages(results: ResultsFolder, ids: Sequence[str], request: Request) -> Iterator[Page]:
    """Yield the pages of figures, with the panels and lines that are to be drawn.

    Args:
        results: The tidy table and its candidates.
        ids: The figures to draw; empty means all that fit the results.
        request: The other options of the command.

    Raises:
        UserError: There is no such figure, value or protocol.
    """
    rows = results.candidates[["dataset", "task", "method", "protocol"]].drop_duplicates()
    task_of = dict(zip(rows["dataset"], rows["task"], strict=True))
    scope = Scope(ids, request.by.get("dataset", []), task_of, own_datasets(task_of))
    _check_ids(scope, experiment_names(results))
    _check_filters(results, request.by)
    _check_protocol(request, sorted(rows["protocol"].unique()))
    figures = [
        *_declared_figures(scope),
        *_own_figures(scope, results),
        *_sweep_figures(scope, results),
    ]
    _check_that_datasets_have_panels(figures, scope)
    known_methods = {*catalogue.entries("method"), *rows["method"]}
    for page in figures:
        panels = _with_known_x(page.figure.panels, results)
        panels = _with_requested_lines(panels, request.by)
        _check_methods(page.figure, panels, known_methods)
        if panels:
            yield from _split_into_pages(page, panels, request.compare_protocols)


def _check_ids(scope: Scope, sweeps: Iterable[str]) -> None:
    """Raise UserError if the user named a figure that does not exist.

    Args:
        scope: The named figures, and the user's own datasets.
        sweeps: The names of all sweeps.
    """
    ids_of_own_figures: dict[str, None] = {}  # an ordered set
    for name in (*scope.own_datasets, *sweeps):
        ids_of_own_figures[OWN_PREFIX + name] = None
    valid = [*FIGURES.names(), *ids_of_own_figures]
    for figure_id in scope.figure_ids:
        if figure_id not in valid:
            suggestions = [*valid, *LEADERBOARD_FIGURES, *MODEL_FIGURES, VERDICTS_FIGURE]
            raise UserError(
                f"there is no figure '{figure_id}': {nearest(figure_id, suggestions)} "
                f"(your own data and sweeps: {OWN_PREFIX}NAME)"
            )


def _check_that_datasets_have_panels(figures: Iterable[Page], scope: Scope) -> None:
    """Raise UserError if the user named datasets on which no figure has a panel."""
    datasets = scope.requested_datasets
    if not datasets or any(page.figure.panels for page in figures):
        return
    figure_names = ", ".join(scope.figure_ids) or "any figure"
    raise UserError(
        f"--by dataset={','.join(datasets)}: {' and '.join(datasets)} has no panel in "
        f"{figure_names}"
    )


def _check_filters(results: ResultsFolder, by: Where) -> None:
    """Raise UserError for a value of `--by` that no result has.

    A dataset without results is accepted if it is in the catalogue.
    """
    for column, values in by.items():
        known = {*results.candidates[column].dropna().unique()}
        if column == "dataset":
            known |= catalogue.entries("dataset").keys()
        check_values("--by", column, values, known)


def _check_protocol(request: Request, known: list[str]) -> None:
    """Raise UserError for a protocol without results, or if there is no second one to compare."""
    protocol = request.protocol
    if protocol is not None and protocol not in known:
        raise UserError(
            f"--protocol {protocol}: nothing was run under it: {nearest(protocol, known)}"
        )
    if request.compare_protocols and len(known) < 2:
        raise UserError(
            f"--compare-protocols: all results are of protocol {known[0]}; "
            "protocol=NAME makes a run use another"
        )


def _check_methods(figure: Figure, panels: Iterable[Panel], known: set[str]) -> None:
    """Raise UserError if a figure has a line of a method that does not exist."""
    for panel in panels:
        for line in panel.lines:
            if line.method not in known:
                close = nearest(line.method, sorted(known))
                raise UserError(
                    f"figure '{figure.id}': there is no method '{line.method}': {close}"
                )


def _declared_figures(scope: Scope) -> Iterator[Page]:
    """Yield the declared figures to draw, each on the datasets to draw it on."""
    for figure_id in _declared_ids(scope):
        figure = FIGURES[figure_id]
        name = figure.id
        if scope.requested_datasets:
            name = f"{figure.id}-{'+'.join(scope.requested_datasets)}"
        yield Page(replace(figure, panels=_panels_on_datasets(figure, scope)), name)


def _declared_ids(scope: Scope) -> list[str]:
    """Return the ids of the declared figures to draw."""
    if scope.figure_ids:
        return [figure_id for figure_id in dict.fromkeys(scope.figure_ids) if figure_id in FIGURES]
    requested = set(scope.requested_datasets)
    if requested and requested.issubset(scope.own_datasets):
        return []  # such datasets have figures of their own
    return [
        figure_id
        for figure_id in FIGURES.names()
        if _is_drawn_by_default(FIGURES[figure_id], scope.task_of)
    ]


def _is_drawn_by_default(figure: Figure, datasets: Collection[str]) -> bool:
    """Return whether a figure is drawn where the user names no figure.

    Args:
        figure: The figure.
        datasets: All datasets with results.
    """
    if not figure.needs_all:
        return True
    return all(panel.dataset in datasets for panel in figure.panels)


def _own_figures(scope: Scope, results: ResultsFolder) -> Iterator[Page]:
    """Yield the figures of the user's own datasets.

    These are the figures that the user named. If none is named, they are those of the datasets
    that the user named, or of all own datasets.
    """
    for dataset in scope.own_datasets:
        figure_id = f"{OWN_PREFIX}{dataset}"
        if scope.figure_ids:
            is_drawn = figure_id in scope.figure_ids
        elif scope.requested_datasets:
            is_drawn = dataset in scope.requested_datasets
        else:
            is_drawn = True
        if is_drawn:
            yield Page(own_figure(dataset, results), figure_id)


def _sweep_figures(scope: Scope, results: ResultsFolder) -> Iterator[Page]:
    """Yield the figures of sweeps that the user named: `own-NAME` for the experiment NAME.

    Where an own dataset has the same name, `own-NAME` is the figure of that dataset.
    """
    for experiment in experiment_names(results):
        figure_id = f"{OWN_PREFIX}{experiment}"
        if figure_id in scope.figure_ids and experiment not in scope.own_datasets:
            of_experiment = results_of_experiment(results, experiment)
            figure = sweep_figure(experiment, of_experiment)
            yield Page(figure, figure_id, results=of_experiment)


def _with_known_x(panels: Iterable[Panel], results: ResultsFolder) -> list[Panel]:
    """Return the panels without those whose x-axis is a column that the tidy table lacks.

    Such a column is the prediction time, which only a benchmark adds.
    """
    return [panel for panel in panels if panel.kind != "sizes" or panel.x in results.table]


def _with_requested_lines(panels: Iterable[Panel], by: Where) -> tuple[Panel, ...]:
    """Return panels with only the lines of the requested methods and betas.

    Panels in which no line remains are left out.
    """
    remaining: list[Panel] = []
    for panel in panels:
        lines = list(panel.lines)
        if "method" in by:
            lines = [line for line in lines if line.method in by["method"]]
        if panel.kind == "sizes" and "beta" in by:
            lines = _at_betas(lines, by["beta"])
        if lines:
            remaining.append(replace(panel, lines=tuple(lines)))
    return tuple(remaining)


def _at_betas(lines: Iterable[Line], betas: list[str]) -> list[Line]:
    """Return the lines at fixed betas: a line whose beta is selected becomes a line per beta."""
    at_betas: list[Line] = []
    for line in lines:
        selects_beta = line.beta is None and catalogue.has_beta_to_select(line.method)
        if not selects_beta:
            at_betas.append(line)
            continue
        names = "beta" if len(betas) > 1 else line.names
        at_betas += [replace(line, beta=float(beta), names=names) for beta in betas]
    return at_betas


def _split_into_pages(
    page: Page, panels: tuple[Panel, ...], compare_protocols: bool
) -> Iterator[Page]:
    """Yield a figure with these panels, on several pages of equal length if it is long.

    A figure is long only where protocols stand side by side, as each panel takes a row there.
    Panels that compare methods take a column instead, and always fit on a page.
    """
    in_rows = compare_protocols and not panels[0].panel_kind.compares_methods
    if not in_rows or len(panels) <= MAX_PANELS_ON_PAGE:
        yield replace(page, figure=replace(page.figure, panels=panels))
        return
    page_count = math.ceil(len(panels) / MAX_PANELS_ON_PAGE)
    length = math.ceil(len(panels) / page_count)
    for index in range(page_count):
        on_page = panels[index * length : (index + 1) * length]
        figure = replace(page.figure, panels=on_page)
        yield replace(page, figure=figure, number=str(index + 1))


def _panels_on_datasets(figure: Figure, scope: Scope) -> tuple[Panel, ...]:
    """Return the panels of a figure, each on the datasets that replace its own one.

    If no dataset replaces that of a panel, the panel keeps it: its notes say what was not run. But
    if the user named a dataset that is not a stand-in, the panel is left out.

    Returns:
        No panels if the user named datasets and the figure can be drawn on none of them.
    """
    replacements = _replacements_by_dataset(figure, scope)
    if scope.requested_datasets and not any(replacements.values()):
        return ()
    keeps_others = not _requested_without_stand_ins(scope)
    panels: dict[Panel, None] = {}  # an ordered set
    for panel in figure.panels:
        datasets = replacements[panel.dataset]
        if not datasets and keeps_others:
            datasets = [panel.dataset]
        for dataset in datasets:
            panels[replace(panel, dataset=dataset)] = None
    return tuple(panels)


def _replacements_by_dataset(figure: Figure, scope: Scope) -> dict[str, list[str]]:
    """Return the datasets to draw in place of each dataset of a figure.

    A dataset is drawn itself if the user named it or, where none is named, if it has results. Else
    its stand-in is drawn; a stand-in without files is drawn only if the user named it. Failing
    both, the datasets are those that the user named which have the same task, and are neither
    stand-ins nor datasets of the paper.
    """
    requested = scope.requested_datasets
    drawn = requested or list(scope.task_of)
    stand_ins = _stand_ins(requested or _with_files(scope.task_of))
    not_stand_ins = _requested_without_stand_ins(scope)
    candidates = [name for name in not_stand_ins if name not in catalogue.PAPER]
    replacements: dict[str, list[str]] = {}
    for panel in figure.panels:
        dataset = panel.dataset
        family = catalogue.family(dataset)
        if dataset in drawn:
            replacements[dataset] = [dataset]
        elif family in stand_ins:
            replacements[dataset] = [stand_ins[family]]
        else:
            replacements[dataset] = _with_same_task(dataset, candidates, scope.task_of)
    return replacements


def _requested_without_stand_ins(scope: Scope) -> list[str]:
    """Return the datasets that the user named, without stand-ins."""
    return [name for name in scope.requested_datasets if not catalogue.stands_for(name)]


def _with_same_task(
    dataset: str, candidates: Iterable[str], task_of: Mapping[str, str]
) -> list[str]:
    """Return which candidates have the task of a dataset, as far as their tasks are known."""
    task = catalogue.entries("dataset").get(dataset, {}).get("task")
    return [name for name in candidates if task_of.get(name) == task]


def _with_files(datasets: Iterable[str]) -> list[str]:
    """Return the datasets that are read from files; others are sampled from a definition."""
    settings = catalogue.entries("dataset")
    return [name for name in datasets if settings.get(name, {}).get("files", True)]


def _stand_ins(datasets: Sequence[str]) -> dict[str, str]:
    """Return the first stand-in among these datasets for each family of the paper's datasets."""
    stand_ins: dict[str, str] = {}
    for name in datasets:
        if paper_dataset := catalogue.stands_for(name):
            stand_ins.setdefault(catalogue.family(paper_dataset), name)
    return stand_ins
