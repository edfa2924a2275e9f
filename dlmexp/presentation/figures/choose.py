"""Which figures to draw, on which datasets.

Those are the datasets of the paper, stand-ins that were run, datasets that a user names, or a
user's own data with whatever was run on it (`own`).
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where, check_values
from dlmexp.presentation.figures.own import (
    OWN,
    experiments,
    of_experiment,
    own_datasets,
    own_figure,
    sweep_figure,
)
from dlmexp.presentation.figures.panels import (
    FIGURES,
    OF_BOARDS,
    OF_MODELS,
    VERDICTS,
    Figure,
    Line,
    Panel,
)

# The columns by which `--by` chooses results.
BY = ("dataset", "method", "n", "size", "seed", "beta", "estimator", "samples")
PAGE_ROWS = 6  # panels on a page, where protocols stand side by side


@dataclass(frozen=True)
class Request:
    """What `dlmexp plot` is to draw, figures aside.

    Attributes:
        by: The values to draw, by column (`parse_terms`).
        protocol: None: `paper`, or if nothing of it was run the one with most results.
        where: Changed settings (`parse_where`).
        parameterisation: Of q; None: whitened where it was run, and a second figure where both
            were.
        compare_protocols: Whether all protocols that were run stand side by side.
    """

    by: Where = field(default_factory=dict)
    protocol: str | None = None
    where: Where = field(default_factory=dict)
    parameterisation: str | None = None
    compare_protocols: bool = False


@dataclass(frozen=True)
class Page:
    """A figure, or one page of it, with the name of its files.

    Attributes:
        number: '1', '2' ... of the pages of a figure that needs more than one, else ''.
        results: What it is drawn from; None: all results.
    """

    figure: Figure
    name: str
    number: str = ""
    results: ResultsFolder | None = None


def pages(results: ResultsFolder, ids: Sequence[str], request: Request) -> Iterator[Page]:
    """Yield the figures `ids` (empty: all), each on the datasets that it is drawn on.

    Raises:
        UserError: A figure, a value or a protocol that is asked for is not there.
    """
    rows = results.candidates[["dataset", "task", "method", "protocol"]].drop_duplicates()
    task_of = dict(zip(rows["dataset"], rows["task"], strict=True))
    own = own_datasets(task_of)
    _check_ids(ids, own, experiments(results))
    _check_by(results, request.by)
    _check_protocol(request, sorted(rows["protocol"].unique()))
    named = request.by.get("dataset", [])
    chosen = [
        *_declared_figures(ids, named, own, task_of),
        *_own_figures(results, ids, named, own),
        *_sweep_figures(results, ids, own),
    ]
    _check_panels(chosen, ids, named)
    methods = {*catalogue.entries("method"), *rows["method"]}
    for page in chosen:
        panels = _with_lines(_measured_panels(page.figure, results), request.by)
        _check_methods(page.figure, panels, methods)
        yield from _pages_of(page, panels, request.compare_protocols)


def _check_ids(ids: Iterable[str], own: Iterable[str], sweeps: Iterable[str]) -> None:
    """Raise UserError for an id that no figure has.

    Args:
        ids: What was typed.
        own: The user's own datasets.
        sweeps: Names of sweeps.
    """
    names = dict.fromkeys([*own, *sweeps])
    valid = [*FIGURES.names(), *(f"{OWN}{name}" for name in names)]
    for name in ids:
        if name not in valid:
            close = nearest(name, [*valid, *OF_BOARDS, *OF_MODELS, VERDICTS])
            raise UserError(
                f"there is no figure '{name}': {close} (your own data and sweeps: {OWN}NAME)"
            )


def _check_panels(chosen: Iterable[Page], ids: Sequence[str], named: Sequence[str]) -> None:
    """Raise UserError where datasets are named and no figure has a panel on them."""
    if not named or any(page.figure.panels for page in chosen):
        return
    figures = ", ".join(ids) if ids else "any figure"
    raise UserError(
        f"--by dataset={','.join(named)}: {' and '.join(named)} has no panel in {figures}"
    )


def _check_by(results: ResultsFolder, by: Where) -> None:
    """Raise UserError for a value that no result has; a dataset need only exist."""
    for name, values in by.items():
        known = {*results.candidates[name].dropna().unique()}
        if name == "dataset":
            known |= catalogue.entries("dataset").keys()
        check_values("--by", name, values, known)


def _check_protocol(request: Request, known: list[str]) -> None:
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
    for panel in panels:
        for line in panel.lines:
            if line.method not in known:
                close = nearest(line.method, sorted(known))
                raise UserError(
                    f"figure '{figure.id}': there is no method '{line.method}': {close}"
                )


def _declared_figures(
    ids: Sequence[str], named: Sequence[str], own: Sequence[str], task_of: Mapping[str, str]
) -> Iterator[Page]:
    """Yield the declared figures that are named, or all that fit the datasets."""
    for name in _declared_ids(ids, named, own, task_of):
        figure = FIGURES[name]
        panels = _on_datasets(figure, named, task_of)
        file_name = f"{figure.id}-{'+'.join(named)}" if named else figure.id
        yield Page(replace(figure, panels=panels), file_name)


def _declared_ids(
    ids: Sequence[str], named: Sequence[str], own: Collection[str], datasets: Collection[str]
) -> list[str]:
    """Return the ids of the declared figures to draw.

    Args:
        ids: Those that the user named; empty: all that fit the datasets.
        named: The datasets that the user named.
        own: The user's own datasets, which have figures of their own.
        datasets: All datasets with results.
    """
    if ids:
        return [name for name in dict.fromkeys(ids) if name in FIGURES]
    if named and set(named).issubset(own):
        return []
    return [name for name in FIGURES.names() if _is_drawn_unasked(FIGURES[name], datasets)]


def _is_drawn_unasked(figure: Figure, datasets: Collection[str]) -> bool:
    """Return whether a figure is drawn where no figure is named."""
    if not figure.needs_all:
        return True
    return all(panel.dataset in datasets for panel in figure.panels)


def _own_figures(
    results: ResultsFolder, ids: Sequence[str], named: Sequence[str], own: Iterable[str]
) -> Iterator[Page]:
    """Yield the figures of a user's own data that are named, or all on the named datasets."""
    for dataset in own:
        name = f"{OWN}{dataset}"
        is_named = name in ids if ids else dataset in named
        all_are_drawn = not ids and not named
        if is_named or all_are_drawn:
            yield Page(own_figure(dataset, results), name)


def _sweep_figures(
    results: ResultsFolder, ids: Sequence[str], own: Collection[str]
) -> Iterator[Page]:
    """Yield the figures of sweeps that are named, by the name of the experiment.

    A user's own data of that name has a figure already.
    """
    for name in experiments(results):
        if f"{OWN}{name}" in ids and name not in own:
            part = of_experiment(results, name)
            yield Page(sweep_figure(name, part), f"{OWN}{name}", results=part)


def _measured_panels(figure: Figure, results: ResultsFolder) -> list[Panel]:
    """Return the panels but those over a column that is not there: only a benchmark adds times."""
    return [panel for panel in figure.panels if panel.kind != "sizes" or panel.x in results.table]


def _with_lines(panels: Iterable[Panel], by: Where) -> tuple[Panel, ...]:
    """Return the panels with the lines of the wanted methods and betas, without empty ones."""
    wanted: list[Panel] = []
    for panel in panels:
        lines = list(panel.lines)
        if "method" in by:
            lines = [line for line in lines if line.method in by["method"]]
        if panel.kind == "sizes" and "beta" in by:
            lines = _at_betas(lines, by["beta"])
        if lines:
            wanted.append(replace(panel, lines=tuple(lines)))
    return tuple(wanted)


def _at_betas(lines: Iterable[Line], betas: list[str]) -> list[Line]:
    """Return a line at each beta in place of one that selects its beta."""
    at_betas: list[Line] = []
    for line in lines:
        if line.beta is not None or not catalogue.selects(line.method):
            at_betas.append(line)
            continue
        names = "beta" if len(betas) > 1 else line.names
        at_betas += [replace(line, beta=float(beta), names=names) for beta in betas]
    return at_betas


def _pages_of(page: Page, panels: tuple[Panel, ...], side_by_side: bool) -> Iterator[Page]:
    """Yield the figure with these panels, on pages of equal length where it needs them.

    Where protocols stand side by side, each panel takes a row. Panels that compare methods take a
    column there, so that they always fit.
    """
    if not panels:
        return
    if not side_by_side or panels[0].facts.compares_methods or len(panels) <= PAGE_ROWS:
        yield replace(page, figure=replace(page.figure, panels=panels))
        return
    count = math.ceil(len(panels) / PAGE_ROWS)
    length = math.ceil(len(panels) / count)
    for number in range(count):
        on_page = panels[number * length : (number + 1) * length]
        figure = replace(page.figure, panels=on_page)
        yield replace(page, figure=figure, number=str(number + 1))


def _on_datasets(
    figure: Figure, named: Sequence[str], task_of: Mapping[str, str]
) -> tuple[Panel, ...]:
    """Return the panels of a figure on the datasets that are named, else on those with results.

    A panel on another dataset is drawn on the stand-in of that dataset (one that is drawn from a
    definition only if it is named), else on the named datasets of its task that are none of the
    paper's. Failing both, the panel stays as it is; it is left out if a dataset is named that is no
    stand-in.

    Returns:
        Nothing where datasets are named and no panel is drawn on them.
    """
    not_stand_ins = [name for name in named if not catalogue.stands_for(name)]
    datasets_of = _datasets_of_panels(figure, named, not_stand_ins, task_of)
    if named and not any(datasets_of.values()):
        return ()
    panels: dict[Panel, None] = {}
    for panel in figure.panels:
        datasets = datasets_of[panel.dataset]
        if not datasets and not not_stand_ins:
            datasets = [panel.dataset]
        panels |= dict.fromkeys(replace(panel, dataset=name) for name in datasets)
    return tuple(panels)


def _datasets_of_panels(
    figure: Figure,
    named: Sequence[str],
    not_stand_ins: Sequence[str],
    task_of: Mapping[str, str],
) -> dict[str, list[str]]:
    """Return the datasets to draw in place of each dataset of a figure: itself, if it is chosen."""
    chosen = named or list(task_of)
    stand_ins = _stand_ins(named or _with_files(task_of))
    others = [name for name in not_stand_ins if name not in catalogue.PAPER]
    datasets_of: dict[str, list[str]] = {}
    for panel in figure.panels:
        dataset = panel.dataset
        if dataset in chosen:
            datasets_of[dataset] = [dataset]
        else:
            datasets_of[dataset] = _replacements(dataset, stand_ins, others, task_of)
    return datasets_of


def _replacements(
    dataset: str, stand_ins: Mapping[str, str], others: Iterable[str], task_of: Mapping[str, str]
) -> list[str]:
    """Return the stand-in of a dataset, else which other datasets have its task."""
    family = catalogue.family(dataset)
    if family in stand_ins:
        return [stand_ins[family]]
    task = catalogue.entries("dataset").get(dataset, {}).get("task")
    return [name for name in others if task_of.get(name) == task]


def _with_files(datasets: Iterable[str]) -> list[str]:
    """Return the datasets that are not drawn from a definition."""
    known = catalogue.entries("dataset")
    return [name for name in datasets if known.get(name, {}).get("files", True)]


def _stand_ins(datasets: Sequence[str]) -> dict[str, str]:
    """Return the first stand-in of each family of the paper's datasets."""
    stand_ins: dict[str, str] = {}
    for name in datasets:
        if paper_dataset := catalogue.stands_for(name):
            stand_ins.setdefault(catalogue.family(paper_dataset), name)
    return stand_ins
