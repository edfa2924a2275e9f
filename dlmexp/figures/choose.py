"""Which figures to draw, on which datasets: the paper's, stand-ins that were run, those that a user names, or own data
with whatever was run on it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import pandas as pd

from dlmexp import catalogue
from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import FIGURES, LOSSES, METHOD_LOOKS, PREDICTIONS, Figure, Kind, Line, Panel
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import check_values

BY = ("dataset", "method", "n", "size", "seed", "beta", "estimator", "samples")  # what tells results apart
PAGE_ROWS = 6  # panels on a page, where protocols stand side by side
OWN = "own-"  # how the ids of figures of own data begin
CALIBRATION = {
    "regression": ("coverage_50", "coverage_90", "coverage_95", "crps"),
    "binary": ("ece", "brier"),
    "count": ("coverage_95", "crps"),
}
SHOWN = {"sizes": "test metrics", "betas": "NLL against β", "curve": "learning curves", "reliability": "calibration"}


def figures(
    results: ResultsFolder, ids: list[str], by: Mapping[str, list[str]], protocol: str | None, side_by_side: bool
) -> Iterator[tuple[Figure, str, str]]:
    """The figures to draw with the names of their files, and the number of the page where a figure with protocols side
    by side needs more than one. UserError for what was asked for and is not there."""
    rows = _run(results)
    present = dict(zip(rows["dataset"], rows["task"], strict=True))
    named, own = by.get("dataset", []), own_datasets(present)
    _check_asked(results, ids, by, own)
    have = sorted(rows["protocol"].unique())
    if protocol is not None and protocol not in have:
        raise UserError(f"--protocol {protocol}: nothing was run under it: {nearest(protocol, have)}")
    if side_by_side and len(have) < 2:
        only = f"all results are of protocol {have[0]}; protocol=NAME makes a run use another"
        raise UserError(f"--compare-protocols: {only}")
    found: list[tuple[Figure, str]] = []
    for figure in (FIGURES[name] for name in dict.fromkeys(ids or FIGURES.names()) if name in FIGURES):
        if named and not ids and all(name in own for name in named):
            continue
        if figure.needs_all and not ids and not {panel.dataset for panel in figure.panels} <= {*present}:
            continue
        panels = _on_datasets(figure, named, present) if named else _on_stand_ins(figure, rows)
        found.append((replace(figure, panels=panels), "-".join([figure.id, *(["+".join(named)] if named else [])])))
    for dataset in own:
        asked = f"{OWN}{dataset}" in ids or (not ids and (not named or dataset in named))
        if asked and (figure := own_figure(dataset, results)):
            found.append((figure, figure.id))
    if named and not any(figure.panels for figure, _ in found):
        which = ", ".join(ids) if ids else "any figure"
        raise UserError(f"--by dataset={','.join(named)}: {' and '.join(named)} has no panel in {which}")
    methods = {*catalogue.entries("method"), *rows["method"]}
    for figure, name in found:
        measured = [panel for panel in figure.panels if panel.kind != "sizes" or panel.x in results.table]
        panels = _with_lines(measured, by)
        for odd in (line.method for panel in panels for line in panel.lines if line.method not in methods):
            raise UserError(f"figure '{figure.id}': there is no method '{odd}': {nearest(odd, sorted(methods))}")
        count = -(-len(panels) // PAGE_ROWS) if side_by_side and panels and panels[0].kind != "effects" else 1
        length = -(-len(panels) // count)
        for page in range(count if panels else 0):
            on_page = panels[page * length : (page + 1) * length]
            yield replace(figure, panels=on_page), name, str(page + 1) if count > 1 else ""


@lru_cache(maxsize=8)
def _run(results: ResultsFolder) -> pd.DataFrame:
    """What was run on which dataset, under which protocol."""
    names = ["dataset", "task", "stands_for", "method", "protocol"]
    both = [frame[names].drop_duplicates() for frame in (results.table, results.candidates)]
    return pd.concat(both).drop_duplicates()


def _check_asked(results: ResultsFolder, ids: Iterable[str], by: Mapping[str, list[str]], own: list[str]) -> None:
    """UserError for an id that is no figure, or one of own data of which there are no results; and for a value of `by`
    that no result has (a dataset need only exist)."""
    valid = [*FIGURES.names(), *(f"{OWN}{dataset}" for dataset in own)]
    for name in ids:
        if name not in valid:
            of_own = f" (that of data of your own is {OWN}NAME)"
            raise UserError(f"there is no figure '{name}': {nearest(name, [*valid, PREDICTIONS])}{of_own}")
    for name, values in by.items():
        have = {*results.candidates[name].dropna().unique()}
        have |= {*catalogue.entries("dataset")} if name == "dataset" else set()
        check_values("--by", name, values, have)


def _with_lines(panels: Iterable[Panel], by: Mapping[str, list[str]]) -> tuple[Panel, ...]:
    """The panels with lines of the wanted methods alone, at the wanted beta where they have one to choose."""
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
    return [replace(line, beta=float(beta), names="beta" if len(betas) > 1 else line.names) for beta in betas]


def _on_stand_ins(figure: Figure, rows: pd.DataFrame) -> tuple[Panel, ...]:
    """Panels of a dataset of the paper without results are given to a stand-in that has some; one that is drawn from a
    definition does not pose as the paper's data. Panels that become equal are drawn once."""
    families: dict[str, str] = {}
    for name, of in zip(rows["dataset"], rows["stands_for"], strict=True):
        if isinstance(of, str) and catalogue.entries("dataset").get(name, {}).get("files", True):
            families.setdefault(catalogue.family(of), name)
    run = {*rows["dataset"]}
    panels = (
        panel if panel.dataset in run or panel.dataset not in catalogue.PAPER
        else replace(panel, dataset=families.get(catalogue.family(panel.dataset), panel.dataset))
        for panel in figure.panels
    )  # fmt: skip
    return tuple(dict.fromkeys(panels))


def _on_datasets(figure: Figure, named: list[str], present: Mapping[str, str]) -> tuple[Panel, ...]:
    """The figure on the datasets that the user names: a stand-in replaces the dataset that it stands for, and the other
    panels stay; for any other dataset its own panels, or those of the same task, are drawn alone."""
    stand_ins = {catalogue.family(of): name for name in named if (of := catalogue.stands_for(name))}
    alone = [name for name in named if not catalogue.stands_for(name)]
    panels: list[Panel] = []
    changed = False
    for panel in figure.panels:
        task = catalogue.entries("dataset").get(panel.dataset, {}).get("task")
        if panel.dataset in named:
            fitting = [panel]
        elif (stand_in := stand_ins.get(catalogue.family(panel.dataset))) is not None:
            fitting = [replace(panel, dataset=stand_in)]
        else:
            alike = [name for name in alone if name not in catalogue.PAPER and present.get(name) == task]
            fitting = [replace(panel, dataset=name) for name in alike]
        changed = changed or bool(fitting)
        panels += fitting or ([] if alone else [panel])
    return tuple(dict.fromkeys(panels)) if changed else ()


def own_datasets(datasets: Iterable[str]) -> list[str]:
    """Those that are neither ours nor in a figure that a plugin declares; also tables without a name of their own."""
    known = {panel.dataset for name in FIGURES for panel in FIGURES[name].panels}
    return [name for name in datasets if name not in known and catalogue.is_own(name)]


def own_figure(dataset: str, results: ResultsFolder) -> Figure | None:
    """A panel per loss of the task, then betas, learning curves and calibration, each where there is something."""
    rows = results.table[results.table["dataset"] == dataset]
    if rows.empty:
        return None
    task = rows["task"].iloc[0]
    fits, curves = _lines(rows, "fit"), _lines(rows, "curve")
    fitted = [replace(line, role="curve", names="both") for line in fits]
    ends = fits + [line for line in curves if replace(line, names="both") not in fitted]
    selecting = [line for line in ends if (_own(rows, line)["candidates"] > 1).any()]
    by = "epochs" if rows["minibatch"][rows["role"] == "curve"].notna().all() else "iterations"
    wanted: list[tuple[Kind, str, list[Line]]] = [
        *(("sizes", metric, ends) for metric in LOSSES),
        ("betas", "nll", selecting),
        ("curve", "nll", curves),
        ("reliability", "reliability", ends if task == "binary" else []),
        *(("sizes", metric, ends) for metric in CALIBRATION.get(task, ())),
    ]
    panels: list[Panel] = []
    for kind, metric, lines in wanted:
        column = "test_ece" if metric == "reliability" else f"test_{metric}"
        having = tuple(line for line in lines if column in rows and _own(rows, line)[column].notna().any())
        x, title = (by, "β selected") if kind == "curve" else ("n", "")
        panels += [Panel(kind, dataset, metric, having, "", x=x, title=title)] if having else []
    shown = ", ".join(SHOWN[kind] for kind in dict.fromkeys(panel.kind for panel in panels))
    by_mse = ", for the MSE by MSE" if any(panel.metric == "mse" for panel in panels) else ""
    caption = f"{dataset}: {shown} (β selected by NLL{by_mse})."
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    return Figure(f"{OWN}{dataset}", tuple(panels), columns, caption, dataset) if panels else None


def _own(rows: pd.DataFrame, line: Line) -> pd.DataFrame:
    samples = rows["samples"].isna() if line.samples is None else rows["samples"] == line.samples
    fits = (rows["method"] == line.method) & (rows["estimator"] == line.estimator) & (rows["role"] == line.role)
    return rows[fits & samples]


def _lines(rows: pd.DataFrame, role: str) -> list[Line]:
    """A line for each method and estimator; the estimator is named where it does not go without saying."""
    keys = rows[["method", "estimator", "samples"]][rows["role"] == role].drop_duplicates()
    lines = []
    for method, estimator, samples in keys.itertuples(index=False):
        alone = (keys["method"] == method).sum() == 1 and estimator == "exact"
        count = None if pd.isna(samples) else int(samples)
        lines.append(Line(method, estimator, count, names="method" if alone else "both", role=role))
    places = {name: place for place, name in enumerate(METHOD_LOOKS)}
    return sorted(lines, key=lambda one: (places.get(one.method, 99), one.method, one.estimator, one.samples or 0))
