"""Choose which figures to draw, and on which datasets.

A declared figure names datasets of the paper. It is drawn on those that have results. A dataset
without results is replaced by its stand-in, if it has one: a stand-in is another dataset that
represents a dataset of the paper which cannot be downloaded. Users can name datasets themselves. A
dataset of their own that no declared figure names has a figure to itself (module `own`).
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
        by: The values to draw, by column: the option `--by` (`parse_terms`).
        protocol: The protocol to draw. None means `paper`, or the protocol with most results where
            nothing was run under `paper`.
        where: The values of the setting to draw, by name: the option `--where` (`parse_where`).
        parameterisation: The parameterisation of q to draw, whitened or unwhitened. None means
            whitened where it was run, and a second figure where both were run.
        compare_protocols: Whether all protocols with results are drawn side by side.
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
        number: The number of the page as a text, '1', '2' ...; '' for a figure of one page.
        results: The results that the figure is drawn from; None means all results.
    """

    figure: Figure
    name: str
    number: str = ""
    results: ResultsFolder | None = None


@dataclass(frozen=True)
class Scope:
    """What a user named in the command, and which datasets have results.

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
    scope = Scope(
        figure_ids=ids,
        requested_datasets=request.by.get("dataset", []),
        task_of=task_of,
        own_datasets=own_datasets(task_of),
    )
    _check_ids(scope, experiment_names(results))
    _check_filters(results, request.by)
    _check_protocol(request, sorted(rows["protocol"].unique()))
    undivided_pages = [
        *_declared_figures(scope),
        *_own_figures(scope, results),
        *_sweep_figures(scope, results),
    ]
    _check_that_datasets_have_panels(undivided_pages, scope)
    known_methods = {*catalogue.entries("method"), *rows["method"]}
    for page in undivided_pages:
        panels = _with_known_x(page.figure.panels, results)
        panels = _with_requested_lines(panels, request.by)
        _check_methods(page.figure, panels, known_methods)
        if panels:
            yield from _split_into_pages(page, panels, request.compare_protocols)


def _check_ids(scope: Scope, sweeps: Iterable[str]) -> None:
    """Raise UserError if the user named a figure that does not exist.

    Args:
        scope: The figures that the user named, and the user's own datasets.
        sweeps: The names of all sweeps.
    """
    ids_of_own_figures: dict[str, None] = {}  # an ordered set
    for name in (*scope.own_datasets, *sweeps):
        ids_of_own_figures[OWN_PREFIX + name] = None
    valid_ids = [*FIGURES.names(), *ids_of_own_figures]
    for figure_id in scope.figure_ids:
        if figure_id not in valid_ids:
            suggestions = [*valid_ids, *LEADERBOARD_FIGURES, *MODEL_FIGURES, VERDICTS_FIGURE]
            raise UserError(
                f"there is no figure '{figure_id}': {nearest(figure_id, suggestions)} "
                f"(your own data and sweeps: {OWN_PREFIX}NAME)"
            )


def _check_that_datasets_have_panels(pages_to_draw: Iterable[Page], scope: Scope) -> None:
    """Raise UserError if the user named datasets, and no figure has a panel on any of them."""
    datasets = scope.requested_datasets
    if not datasets or any(page.figure.panels for page in pages_to_draw):
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
    """Yield the declared figures to draw, with their panels on the datasets to draw."""
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
    requested_datasets = set(scope.requested_datasets)
    if requested_datasets and requested_datasets.issubset(scope.own_datasets):
        return []  # `_own_figures` yields the figures of the user's own datasets
    return [
        figure_id
        for figure_id in FIGURES.names()
        if _is_drawn_by_default(FIGURES[figure_id], scope.task_of)
    ]


def _is_drawn_by_default(figure: Figure, datasets: Collection[str]) -> bool:
    """Return whether a figure is drawn if the user names no figure.

    Args:
        figure: The figure.
        datasets: All datasets with results.
    """
    if not figure.needs_all:
        return True
    return all(panel.dataset in datasets for panel in figure.panels)


def _own_figures(scope: Scope, results: ResultsFolder) -> Iterator[Page]:
    """Yield figures of the user's own datasets.

    If the user named figures, those among them are drawn. If the user named only datasets, their
    figures are drawn. If the user named neither, the figures of all own datasets are drawn.
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

    The prediction time is such a column: only a benchmark adds it to the table.
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
            lines = _with_fixed_betas(lines, by["beta"])
        if lines:
            remaining.append(replace(panel, lines=tuple(lines)))
    return tuple(remaining)


def _with_fixed_betas(lines: Iterable[Line], betas: list[str]) -> list[Line]:
    """Return the lines with a line per beta in place of each line whose beta is selected."""
    with_fixed_betas: list[Line] = []
    for line in lines:
        selects_beta = line.beta is None and catalogue.has_beta_to_select(line.method)
        if not selects_beta:
            with_fixed_betas.append(line)
            continue
        # The legend names beta only if it distinguishes lines.
        names = "beta" if len(betas) > 1 else line.names
        with_fixed_betas += [replace(line, beta=float(beta), names=names) for beta in betas]
    return with_fixed_betas


def _split_into_pages(
    page: Page, panels: tuple[Panel, ...], compare_protocols: bool
) -> Iterator[Page]:
    """Yield a figure with these panels, on several pages of about equal length if it is long.

    A figure is long only where protocols stand side by side, as each panel takes a row there.
    Panels that compare methods take a column instead, and always fit on a page.
    """
    has_row_per_panel = compare_protocols and not panels[0].panel_kind.compares_methods
    if not has_row_per_panel or len(panels) <= MAX_PANELS_ON_PAGE:
        yield replace(page, figure=replace(page.figure, panels=panels))
        return
    page_count = math.ceil(len(panels) / MAX_PANELS_ON_PAGE)
    panels_per_page = math.ceil(len(panels) / page_count)
    for index in range(page_count):
        first = index * panels_per_page
        on_page = panels[first : first + panels_per_page]
        figure = replace(page.figure, panels=on_page)
        yield replace(page, figure=figure, number=str(index + 1))


def _panels_on_datasets(figure: Figure, scope: Scope) -> tuple[Panel, ...]:
    """Return the panels of a figure, each on the datasets to draw in place of its own dataset.

    A panel whose dataset cannot be drawn or replaced is kept, so that the notes of the figure can
    say what was not run. It is left out if the user named a dataset that is not a stand-in.

    Returns:
        No panels if the user named datasets and the figure can be drawn on none of them.
    """
    datasets_to_draw = _datasets_to_draw(figure, scope)
    if scope.requested_datasets and not any(datasets_to_draw.values()):
        return ()
    keeps_panels_without_results = not _requested_without_stand_ins(scope)
    panels: dict[Panel, None] = {}  # an ordered set
    for panel in figure.panels:
        datasets = datasets_to_draw[panel.dataset]
        if not datasets and keeps_panels_without_results:
            datasets = [panel.dataset]
        for dataset in datasets:
            panels[replace(panel, dataset=dataset)] = None
    return tuple(panels)


def _datasets_to_draw(figure: Figure, scope: Scope) -> dict[str, list[str]]:
    """Return the datasets to draw in place of each dataset of a figure.

    1. A dataset is drawn itself if the user named it, or has results if the user named none.
    2. Otherwise its stand-in is drawn, by the same rule. A stand-in that is sampled from a
       definition has no files; it is drawn only if the user named it.
    3. Otherwise the datasets of the same task are drawn that the user named, except stand-ins and
       datasets of the paper.
    """
    requested = scope.requested_datasets
    available = requested or list(scope.task_of)
    stand_ins = _stand_ins(requested or _with_files(scope.task_of))
    not_stand_ins = _requested_without_stand_ins(scope)
    not_of_paper = [name for name in not_stand_ins if name not in catalogue.PAPER]
    datasets_to_draw: dict[str, list[str]] = {}
    for panel in figure.panels:
        dataset = panel.dataset
        family = catalogue.family(dataset)
        if dataset in available:
            datasets_to_draw[dataset] = [dataset]
        elif family in stand_ins:
            datasets_to_draw[dataset] = [stand_ins[family]]
        else:
            datasets_to_draw[dataset] = _with_same_task(dataset, not_of_paper, scope.task_of)
    return datasets_to_draw


def _requested_without_stand_ins(scope: Scope) -> list[str]:
    """Return the datasets that the user named, without stand-ins."""
    return [name for name in scope.requested_datasets if not catalogue.stands_for(name)]


def _with_same_task(dataset: str, names: Iterable[str], task_of: Mapping[str, str]) -> list[str]:
    """Return which of the named datasets have the task that the catalogue states for a dataset."""
    task = catalogue.entries("dataset").get(dataset, {}).get("task")
    return [name for name in names if task_of.get(name) == task]


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
