"""The work of `dlmexp plot`: which figures to draw from which rows, their numbers, notes and files."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp import catalogue
from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.notes import commands, notes
from dlmexp.figures.numbers import WHITENED, Choice, Measured, measure, panel_rows
from dlmexp.figures.own import OWN, check_ids, own_command, own_datasets, own_figure
from dlmexp.figures.panels import Figure, Panel, check_methods
from dlmexp.figures.registry import find
from dlmexp.figures.stats import ERRORS
from dlmexp.figures.style import Page
from dlmexp.records.results import Results
from dlmexp.records.table import Term, parse_where, select_setting

FORMATS = ("pdf", "png", "svg")
# Without these, matplotlib writes the time and its version.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}
BY = ("dataset", "method", "n", "size", "seed", "beta", "estimator", "samples")
PAGE_ROWS = 6  # panels on a page, where protocols stand side by side
PROTOCOLS = ("paper", "released", "converged")  # in the order in which they stand side by side


@dataclass(frozen=True)
class Request:
    """What is asked of `dlmexp plot`, figures aside."""

    by: Mapping[str, list[str]] = field(default_factory=dict)  # column -> the values to draw
    protocol: str | None = None
    where: tuple[Term, ...] = ()  # `parse_where`
    parameterisation: str | None = None
    compare_protocols: bool = False
    error: str = "ci95"


@dataclass
class Drawn:
    """A figure with its numbers: `measured` by panel, protocol (one, unless they stand side by side) and folder."""

    figure: Figure
    name: str  # of its files
    measured: list[list[list[Measured]]]
    commands: list[str]  # what computes its panels
    notes: list[str]
    protocols: tuple[str, ...] = ()  # side by side
    folders: list[str] = field(default_factory=list)  # that are compared
    error: str = "ci95"
    page: Page = field(default_factory=Page)

    @property
    def caption(self) -> str:
        return self.figure.caption

    @property
    def cells(self) -> list[Measured]:
        return [one for panel in self.measured for column in panel for one in column]

    @property
    def empty(self) -> bool:
        return all(one.empty for one in self.cells)

    @cached_property
    def canvas(self) -> Canvas:
        """The picture, as a matplotlib figure."""
        from dlmexp.figures.compose import render

        with style.use(self.page.style):
            return render(self, self.page.width)

    @cached_property
    def table(self) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The numbers, and what is the same in all of their rows where they are points of curves."""
        return numbers(self)

    @property
    def csv(self) -> pd.DataFrame:
        """A row per point. Of learning curves, columns with one value are left out: the notes have them."""
        return self.table[0]

    @property
    def text(self) -> str:
        """The caption file, in Markdown."""
        title = self.figure.title or self.figure.id
        return "\n".join([f"# {title}", "", self.caption, "", *(f"- {note}" for note in self.notes), ""])


def numbers(drawn: Drawn) -> tuple[pd.DataFrame, dict[str, Any]]:
    tables = []
    for one in drawn.cells:
        for series in one.series:
            if series.empty:
                continue
            line, panel = series.line, one.panel
            against = {"sizes": "n", "betas": "beta", "histogram": "samples", "reliability": "predicted"}
            about: dict[str, Any] = {
                "dataset": panel.dataset, "metric": panel.metric,
                "against": against.get(panel.kind, "effect" if panel.kind == "effects" else panel.x), "n": one.n,
                "method": line.method, "estimator": line.estimator, "samples": line.samples, "beta": line.beta,
                "parameterisation": one.parameterisation, "folder": series.folder or None,
                "setting": _setting(one) if drawn.protocols or one.protocol != "paper" or one.changes else None,
            }  # fmt: skip
            tables.append(series.points.assign(**about)[[*about, *series.points.columns]])
    if not tables:
        return pd.DataFrame(), {}
    table = pd.concat(tables, ignore_index=True).dropna(axis="columns", how="all")
    same: dict[str, Any] = {}
    if all(one.panel.kind == "curve" for one in drawn.cells):
        same = {name: table[name].iloc[0] for name in table if table[name].nunique(dropna=False) == 1}
    return table.drop(columns=[*same]), same


def _setting(one: Measured) -> str:
    return f"{one.protocol} with {one.changes}" if one.changes else one.protocol or ""


def parse_by(terms: Iterable[str]) -> dict[str, list[str]]:
    """`column=value[,value...]` terms as a dictionary; UserError for a column that does not tell results apart."""
    wanted: dict[str, list[str]] = {}
    for term in terms:
        name, equals, values = term.partition("=")
        if not equals or not values:
            raise UserError(f"--by {term}: write field=value, for instance dataset=flights")
        if name not in BY:
            close = nearest(name, [*BY])
            raise UserError(f"--by {term}: results are not told apart by '{name}': {close} Settings: --where {term}")
        wanted.setdefault(name, []).extend(values.split(","))
    return wanted


class Restricted:
    """Results with some of their rows."""

    def __init__(self, results: Results, table: pd.DataFrame, candidates: pd.DataFrame):
        self._results, self.table, self.candidates = results, table, candidates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)


def restrict(results: Results, by: Mapping[str, list[str]]) -> Results:
    """The results with the wanted values in each column. A beta is wanted of methods that have one to choose: they are
    drawn at it, and others, such as the ELBO, stay. `dataset` is ignored here: it chooses panels."""
    table, candidates = results.table, results.candidates
    for name, values in by.items():
        if name == "dataset":
            continue
        fits = _has(candidates[name], values)
        if name == "beta":
            fits |= candidates["candidates"] == 1
        if not fits.any():
            known = ", ".join(f"{value:g}" if isinstance(value, float) else str(value)
                              for value in sorted(candidates[name].dropna().unique())[:12])  # fmt: skip
            raise UserError(f"--by {name}={','.join(values)}: no result has this value; there are {known}")
        candidates = candidates[fits]
        if name == "beta":
            chosen = candidates[candidates["candidates"] > 1]
            by_metric = "selected_by" if "selected_by" in table else ""
            table = pd.concat([table[table["candidates"] == 1], chosen.assign(**{by_metric: "nll", "edge": ""})])
        else:
            table = table[_has(table[name], values)]
    return Restricted(results, table, candidates)  # pyright: ignore[reportReturnType]


def _has(column: pd.Series, values: list[str]) -> pd.Series:
    if not pd.api.types.is_numeric_dtype(column):
        return column.isin(values)
    try:
        wanted = [float(value) for value in values]
    except ValueError:
        raise UserError(f"--by {column.name}={','.join(values)}: give a number") from None
    return column.isin(wanted)


def drawings(several: list[Results], ids: list[str], request: Request, page: Page | None = None) -> Iterator[Drawn]:
    """The figures `ids` (empty: all) with their numbers; one without results is empty. `-unwhitened` variants follow
    where both parameterisations of q were run and none is asked for."""
    names = ["dataset", "task", "stands_for", "method", "protocol"]
    parts = [one[names].drop_duplicates() for results in several for one in (results.table, results.candidates)]
    rows = pd.concat(parts).drop_duplicates()
    check_ids(ids, rows["dataset"].unique())
    _check_protocol(request, [*rows["protocol"].unique()])
    kept = [restrict(results, request.by) if set(request.by) - {"dataset"} else results for results in several]
    for figure, suffix in _figures(several, ids, request, rows):
        check_methods(figure, {*catalogue.methods(), *rows["method"]})
        found = [[panel_rows(panel, results, bool(request.where)) for results in kept] for panel in figure.panels]
        plain = _measured(figure, suffix, kept, found, request, page)
        yield from _pages(plain, kept[0], request)
        run = [one for one in plain.cells if not one.empty]
        if run and request.parameterisation is None and all({WHITENED, "unwhitened"} <= one.coordinates for one in run):
            other = replace(request, parameterisation="unwhitened")
            yield from _pages(_measured(figure, suffix, kept, found, other, page), kept[0], other)
        elif request.compare_protocols and request.parameterisation is None and all(one.coordinates for one in run):
            other = replace(request, parameterisation="unwhitened")
            if len((beside := _measured(figure, suffix, kept, found, other, page)).protocols) > 1:
                yield from _pages(beside, kept[0], other)


def draw(
    results: Results, figure_id: str, protocol: str | None = None, where: Sequence[str] = (), *,
    by: Mapping[str, list[str]] | None = None, parameterisation: str | None = None, compare_protocols: bool = False,
    error: str = "ci95", page: Page | None = None,
) -> Drawn:  # fmt: skip
    """A figure with its numbers, caption and notes; its `canvas` is drawn when it is first asked for.

    Args:
        results: A results folder.
        figure_id: As in `dlmexp plot --list`, or `own-NAME`.
        protocol: The protocol to draw; None: paper, or if nothing of it was run the one with most results.
        where: Changed settings, such as `training.lr=0.01`.
        by: Column -> the values to draw, such as `{"dataset": ["ringnorm"]}`.
        parameterisation: Of q, where both were run; None: whitened, or what there is.
        compare_protocols: All protocols that were run, side by side.
        error: `ci95`, `std` or `sem`.
        page: Width and style.

    Raises:
        UserError: There is no such figure, or nothing of it was run.
    """
    if error not in ERRORS:
        raise UserError(f"error={error}: {nearest(error, [*ERRORS])}")
    if not figure_id.startswith(OWN):
        find([figure_id])
    terms = parse_where(where, results.candidates)
    request = Request(by or {}, protocol, terms, parameterisation, compare_protocols, error)
    drawn = next(drawings([results], [figure_id], request, page), None)
    if drawn is None or drawn.empty:
        raise UserError(no_results([figure_id], drawn.commands if drawn else []))
    return drawn


def no_results(ids: Iterable[str], run: Iterable[str]) -> str:
    """A sentence on figures of which nothing was run."""
    computed = "; ".join(dict.fromkeys(run))
    return f"there are no results for {', '.join(ids)}" + (f"; what computes them: {computed}" if computed else "")


def _check_protocol(request: Request, have: list[str]) -> None:
    if request.protocol is not None and request.protocol not in have:
        raise UserError(
            f"--protocol {request.protocol}: nothing was run under it; there are {', '.join(sorted(have)) or 'none'}"
        )
    if request.compare_protocols and len(have) < 2:
        only = f"all results are of protocol {have[0]}" if have else "there are no results"
        raise UserError(f"--compare-protocols: {only}; protocol=NAME makes a run use another")


def _figures(
    several: list[Results], ids: list[str], request: Request, rows: pd.DataFrame
) -> Iterator[tuple[Figure, str]]:
    """The figures to draw, on the datasets to use, with what their names end with."""
    present = dict(zip(rows["dataset"], rows["task"], strict=True))
    stand_ins = dict(zip(rows["dataset"], rows["stands_for"], strict=True))
    wanted = [figure for name in ids or [""] if not name.startswith(OWN) for figure in find([name] if name else [])]
    named = request.by.get("dataset", [])
    for name in named:
        known = {*catalogue.datasets(), *present}
        if name not in known:
            raise UserError(f"--by dataset={name}: there is no such dataset: {nearest(name, sorted(known))}")
    own = own_datasets(present)
    count = 0
    for figure in wanted:
        if named and not ids and all(name in own for name in named):
            continue
        panels = _on_datasets(figure, named, present) if named else _at_hand(figure, present, stand_ins)
        panels = tuple(
            replace(panel, command=own_command(panel.dataset, several)) if panel.dataset in own else panel
            for panel in panels
        )
        if panels:
            count += 1
            yield replace(figure, panels=_with_methods(panels, request.by)), "-" + "+".join(named) if named else ""
    for dataset in own:
        asked = f"{OWN}{dataset}" in ids or (not ids and (not named or dataset in named))
        if asked and (figure := own_figure(dataset, several)) is not None:
            count += 1
            yield replace(figure, panels=_with_methods(figure.panels, request.by)), ""
    if named and not count:
        which = ", ".join(figure.id for figure in wanted) if len(wanted) < 4 else "any figure"
        raise UserError(f"--by dataset={','.join(named)}: {' and '.join(named)} has no panel in {which}")


def _with_methods(panels: tuple[Panel, ...], by: Mapping[str, list[str]]) -> tuple[Panel, ...]:
    """The panels with the lines of the wanted methods alone."""
    if not (wanted := by.get("method")):
        return panels
    kept = [replace(panel, lines=tuple(line for line in panel.lines if line.method in wanted)) for panel in panels]
    return tuple(panel for panel in kept if panel.lines) or panels


def _at_hand(figure: Figure, present: Mapping[str, str], stand_ins: Mapping[str, Any]) -> tuple[Panel, ...]:
    """Panels of a dataset without results are given to a stand-in that has some; one that is drawn from a definition
    does not pose as the paper's data. Panels that become equal are drawn once."""
    families: dict[str, str] = {}
    for name, of in stand_ins.items():
        if isinstance(of, str) and catalogue.datasets().get(name, {}).get("files", True):
            families.setdefault(catalogue.family(of), name)
    return tuple(
        dict.fromkeys(
            panel.on(families.get(catalogue.family(panel.dataset), panel.dataset))
            if panel.dataset not in present and panel.dataset in catalogue.PAPER
            else panel
            for panel in figure.panels
        )
    )


def _on_datasets(figure: Figure, named: list[str], present: Mapping[str, str]) -> tuple[Panel, ...]:
    """The figure on the datasets that the user names: a stand-in replaces the dataset that it stands for, and the other
    panels stay; for any other dataset its own panels, or those of the same task, are drawn alone."""
    stand_ins = {catalogue.family(of): name for name in named if (of := catalogue.stands_for(name))}
    alone = [name for name in named if not catalogue.stands_for(name)]
    panels: list[Panel] = []
    changed = False
    for panel in figure.panels:
        task = catalogue.datasets().get(panel.dataset, {}).get("task")
        if panel.dataset in named:
            fitting = [panel]
        elif (stand_in := stand_ins.get(catalogue.family(panel.dataset))) is not None:
            fitting = [panel.on(stand_in)]
        else:
            fitting = [panel.on(name) for name in alone if name not in catalogue.PAPER and present.get(name) == task]
        changed = changed or bool(fitting)
        panels += fitting or ([] if alone else [panel])
    return tuple(dict.fromkeys(panels)) if changed else ()


def _measured(
    figure: Figure, suffix: str, several: list[Results], rows: list[list[pd.DataFrame]], request: Request,
    page: Page | None,
) -> Drawn:  # fmt: skip
    """A figure with its numbers: by panel, protocol and folder."""
    pooled = [one for panel in rows for one in panel if len(one)]
    names: list[str | None] = [request.protocol or _usual_protocol(pooled, request.where)]
    if request.compare_protocols:
        have = {name for one in pooled for name in _protocols(one, request.parameterisation)}
        names = [*(name for name in PROTOCOLS if name in have), *sorted(have.difference(PROTOCOLS))] or names
    measured = [
        [
            [measure(panel, results, Choice(name, request.where, request.parameterisation), found)
             for results, found in zip(several, own, strict=True)]
            for name in names
        ]
        for panel, own in zip(figure.panels, rows, strict=True)
    ]  # fmt: skip
    beside = tuple(name for name in names if name) if request.compare_protocols and len(names) > 1 else ()
    words = [f"{figure.id}{suffix}", request.parameterisation if request.parameterisation == "unwhitened" else ""]
    words += ["protocols"] if beside else [names[0]] if names[0] not in (None, "paper") else []
    words += [f"{name}={'+'.join(values)}" for name, values in request.by.items() if name != "dataset"]
    words += [f"{term.name}={term.value}" for term in request.where]
    name = re.sub(r"[^\w.=+-]+", "_", "-".join(word for word in words if word))
    folders = [results.label for results in several if results.label]
    return Drawn(figure, name, measured, [], [], beside, folders, request.error, page or Page())


def _pages(drawn: Drawn, results: Results, request: Request) -> Iterator[Drawn]:
    """The figure with its commands and notes; protocols side by side on as many pages as their rows need."""
    run = [i for i, panel in enumerate(drawn.measured) if not all(one.empty for column in panel for one in column)]
    pages = [drawn]
    if drawn.protocols and len(run) > PAGE_ROWS and drawn.figure.panels[run[0]].kind != "effects":
        count = -(-len(run) // PAGE_ROWS)
        length = -(-len(run) // count)
        pages = []
        for number in range(count):
            own = run[number * length : (number + 1) * length]
            figure = replace(drawn.figure, panels=tuple(drawn.figure.panels[i] for i in own))
            measured = [drawn.measured[i] for i in own]
            pages.append(replace(drawn, figure=figure, measured=measured, name=f"{drawn.name}-{number + 1}"))
    for one in pages:
        one.commands = commands(one, results)
        one.notes = notes(one, results, request, one.table[1])
        yield one


def _usual_protocol(rows: list[pd.DataFrame], where: tuple[Term, ...]) -> str | None:
    """The protocol of all panels of a figure: the paper's, or if nothing of it has the wanted settings another one."""
    if where and rows:
        return select_setting(pd.concat(rows), None, where).protocol
    counts = pd.concat([one["protocol"] for one in rows]).value_counts() if rows else pd.Series(dtype=int)
    return "paper" if "paper" in counts else max(counts.index, key=lambda name: (counts[name], name), default=None)


def _protocols(rows: pd.DataFrame, parameterisation: str | None) -> Iterable[str]:
    fits = rows["parameterisation"] == parameterisation if parameterisation else slice(None)
    return rows.loc[fits, "protocol"].unique()


def parse_formats(text: str) -> list[str]:
    """`pdf,png` as a list; UserError for an unknown format."""
    formats = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--format {name}: {nearest(name, list(FORMATS))}")
    if not formats:
        raise UserError(f"--format is empty: choose from {', '.join(FORMATS)}")
    return list(dict.fromkeys(formats))


def encode(canvas: Canvas, format: str) -> bytes:
    """The figure as the bytes of a file: the same numbers give the same bytes, so without dates."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=format, metadata=METADATA[format])
    return buffer.getvalue()


def save(drawn: Drawn, folder: Path, formats: list[str]) -> list[Path]:
    """Writes a file per format, the numbers as CSV and the caption as Markdown; returns their paths."""
    with style.use(drawn.page.style):
        contents = {name: encode(drawn.canvas, name) for name in formats}
    return write(folder, drawn.name, contents, drawn.csv, drawn.text)


def write(folder: Path, name: str, contents: dict[str, bytes], table: pd.DataFrame, text: str) -> list[Path]:
    """The files of a figure; numbers with 6 digits, so that they are the same on all machines."""
    csv = table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, content in {**contents, "csv": csv, "md": text.encode()}.items():
        paths.append(folder / f"{name}.{suffix}")
        paths[-1].write_bytes(content)
    return paths
