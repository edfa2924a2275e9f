"""Which figures to draw, on which datasets: the paper's, stand-ins that were run, those that a user
names, or own data with whatever was run on it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where, check_values
from dlmexp.presentation.figures.panels import (
    FIGURES,
    LOSSES,
    METHOD_LOOKS,
    PREDICTIONS,
    Figure,
    Line,
    Panel,
)

BY = (
    "dataset",
    "method",
    "n",
    "size",
    "seed",
    "beta",
    "estimator",
    "samples",
)  # what tells results apart
PAGE_ROWS = 6  # panels on a page, where protocols stand side by side
OWN = "own-"  # how the ids of figures of own data begin
CALIBRATION = ("coverage_50", "coverage_90", "coverage_95", "crps", "ece", "brier")


@dataclass(frozen=True)
class Request:
    """What is asked of `dlmexp plot`, figures aside."""

    by: Where = field(default_factory=dict)  # column -> the values to draw (`parse_terms`)
    protocol: str | None = (
        None  # None: paper, or if nothing of it was run the one with most results
    )
    where: Where = field(default_factory=dict)  # changed settings (`parse_where`)
    parameterisation: str | None = (
        None  # of q; None: whitened, or what there is, and a variant where both were run
    )
    compare_protocols: bool = False  # all that were run, side by side


def figures(
    results: ResultsFolder, ids: list[str], request: Request
) -> Iterator[tuple[Figure, str, str]]:
    """The figures to draw with the names of their files, and the number of the page where a figure
    with protocols side by side needs more than one. UserError for what was asked for and is not
    there."""
    by, protocol, side_by_side = request.by, request.protocol, request.compare_protocols
    rows = results.candidates[["dataset", "task", "method", "protocol"]].drop_duplicates()
    present = dict(zip(rows["dataset"], rows["task"], strict=True))
    named, own = by.get("dataset", []), own_datasets(present)
    _check_asked(results, ids, by, own)
    have = sorted(rows["protocol"].unique())
    if protocol is not None and protocol not in have:
        raise UserError(
            f"--protocol {protocol}: nothing was run under it: {nearest(protocol, have)}"
        )
    if side_by_side and len(have) < 2:
        only = f"all results are of protocol {have[0]}; protocol=NAME makes a run use another"
        raise UserError(f"--compare-protocols: {only}")
    found: list[tuple[Figure, str]] = []
    for figure in (
        FIGURES[name] for name in dict.fromkeys(ids or FIGURES.names()) if name in FIGURES
    ):
        if named and not ids and all(name in own for name in named):
            continue
        if (
            figure.needs_all
            and not ids
            and not {panel.dataset for panel in figure.panels} <= {*present}
        ):
            continue
        panels = _on_datasets(figure, named, present)
        found.append(
            (
                replace(figure, panels=panels),
                "-".join([figure.id, *(["+".join(named)] if named else [])]),
            )
        )
    for dataset in own:
        asked = f"{OWN}{dataset}" in ids or (not ids and (not named or dataset in named))
        found += [(own_figure(dataset, results), f"{OWN}{dataset}")] if asked else []
    if named and not any(figure.panels for figure, _ in found):
        which = ", ".join(ids) if ids else "any figure"
        raise UserError(
            f"--by dataset={','.join(named)}: {' and '.join(named)} has no panel in {which}"
        )
    methods = {*catalogue.entries("method"), *rows["method"]}
    for figure, name in found:
        measured = [
            panel for panel in figure.panels if panel.kind != "sizes" or panel.x in results.table
        ]
        panels = _with_lines(measured, by)
        for odd in (
            line.method for panel in panels for line in panel.lines if line.method not in methods
        ):
            raise UserError(
                f"figure '{figure.id}': there is no method '{odd}': {nearest(odd, sorted(methods))}"
            )
        count = (
            -(-len(panels) // PAGE_ROWS)
            if side_by_side and panels and panels[0].kind != "effects"
            else 1
        )
        length = -(-len(panels) // count)
        for page in range(count if panels else 0):
            on_page = panels[page * length : (page + 1) * length]
            yield replace(figure, panels=on_page), name, str(page + 1) if count > 1 else ""


def _check_asked(results: ResultsFolder, ids: Iterable[str], by: Where, own: list[str]) -> None:
    """UserError for an id that is no figure, or one of own data of which there are no results; and
    for a value of `by` that no result has (a dataset need only exist)."""
    valid = [*FIGURES.names(), *(f"{OWN}{dataset}" for dataset in own)]
    for name in ids:
        if name not in valid:
            of_own = f" (that of data of your own is {OWN}NAME)"
            raise UserError(
                f"there is no figure '{name}': {nearest(name, [*valid, PREDICTIONS])}{of_own}"
            )
    for name, values in by.items():
        have = {*results.candidates[name].dropna().unique()}
        have |= {*catalogue.entries("dataset")} if name == "dataset" else set()
        check_values("--by", name, values, have)


def _with_lines(panels: Iterable[Panel], by: Where) -> tuple[Panel, ...]:
    """The panels with lines of the wanted methods alone, at the wanted beta where they have one to
    choose."""
    kept = []
    for panel in panels:
        lines = [line for line in panel.lines if line.method in by.get("method", [line.method])]
        if panel.kind == "sizes" and "beta" in by:
            lines = [at for line in lines for at in _at_betas(line, by["beta"])]
        if lines:
            kept.append(replace(panel, lines=tuple(lines)))
    return tuple(kept)


def _at_betas(line: Line, betas: list[str]) -> list[Line]:
    if line.beta is not None or not catalogue.selects(line.method):
        return [line]
    return [
        replace(line, beta=float(beta), names="beta" if len(betas) > 1 else line.names)
        for beta in betas
    ]


def _on_datasets(figure: Figure, named: list[str], present: Mapping[str, str]) -> tuple[Panel, ...]:
    """The figure on the datasets that the user names, else on those that were run: a stand-in has
    the panels of the dataset that it stands for (one that is drawn from a definition only if it is
    named), and the other panels stay. For any other dataset that is named its own panels, or those
    of the same task, are drawn alone."""
    known = catalogue.entries("dataset")
    chosen = named or [name for name in present if known.get(name, {}).get("files", True)]
    stand_ins = {
        catalogue.family(of): name
        for name in reversed(chosen)
        if (of := catalogue.stands_for(name))
    }
    alone = [name for name in named if not catalogue.stands_for(name)]
    panels: list[Panel] = []
    changed = not named
    for panel in figure.panels:
        if panel.dataset in (named or present):
            fitting = [panel]
        elif (stand_in := stand_ins.get(catalogue.family(panel.dataset))) is not None:
            fitting = [replace(panel, dataset=stand_in)]
        else:
            task = known.get(panel.dataset, {}).get("task")
            alike = [
                name for name in alone if name not in catalogue.PAPER and present.get(name) == task
            ]
            fitting = [replace(panel, dataset=name) for name in alike]
        changed = changed or bool(fitting)
        panels += fitting or ([] if alone else [panel])
    return tuple(dict.fromkeys(panels)) if changed else ()


def own_datasets(datasets: Iterable[str]) -> list[str]:
    """Those that are neither ours nor in a figure that a plugin declares; also tables without a
    name of their own."""
    known = {panel.dataset for name in FIGURES for panel in FIGURES[name].panels}
    return [name for name in datasets if name not in known and catalogue.is_own(name)]


def own_figure(dataset: str, results: ResultsFolder) -> Figure:
    """Panels of losses, betas, learning curves and calibration: of all that there may be, as those
    without results are left out."""
    rows = results.table[results.table["dataset"] == dataset]
    fits, curves = _lines(rows, "fit"), _lines(rows, "curve")
    fitted = [replace(line, role="curve", names="both") for line in fits]
    ends = (*fits, *(line for line in curves if replace(line, names="both") not in fitted))
    selecting = [
        line for line in ends if catalogue.selects(line.method) and (rows["candidates"] > 1).any()
    ]
    by = "epochs" if rows["minibatch"][rows["role"] == "curve"].notna().all() else "iterations"
    panels = (
        *(Panel("sizes", dataset, metric, ends, "") for metric in LOSSES),
        Panel("betas", dataset, "nll", tuple(selecting), ""),
        Panel("curve", dataset, "nll", curves, "", x=by, title="β selected"),
        Panel(
            "reliability",
            dataset,
            "reliability",
            ends if (rows["task"] == "binary").any() else (),
            "",
        ),
        *(Panel("sizes", dataset, metric, ends, "") for metric in CALIBRATION),
    )
    caption = f"{dataset}: test metrics, NLL against β, learning curves and calibration, as far as there are any."
    return Figure(
        f"{OWN}{dataset}",
        panels,
        3,
        f"{caption} β is selected by NLL, for the MSE by MSE.",
        dataset,
    )


def _lines(rows: pd.DataFrame, role: str) -> tuple[Line, ...]:
    """A line for each method and estimator; the estimator is named where it does not go without
    saying."""
    keys = rows[["method", "estimator", "samples"]][rows["role"] == role].drop_duplicates()
    lines = []
    for method, estimator, samples in keys.itertuples(index=False):
        alone = (keys["method"] == method).sum() == 1 and estimator == "exact"
        count = None if pd.isna(samples) else int(samples)
        lines.append(Line(method, estimator, count, names="method" if alone else "both", role=role))
    places = {name: place for place, name in enumerate(METHOD_LOOKS)}
    lines.sort(
        key=lambda one: (places.get(one.method, 99), one.method, one.estimator, one.samples or 0)
    )
    return tuple(lines)
