"""The work of `dlmexp plot`: which figures to draw, their numbers from the table, their files."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp import catalogue
from dlmexp.atomic import write_atomically
from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.choose import check_by, check_ids, figures
from dlmexp.figures.drawn import Drawn, Request
from dlmexp.figures.numbers import measure, panel_rows
from dlmexp.figures.panels import Figure
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import Term, select_setting

# Formats; without these values, matplotlib writes the time and its version.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}
BOTH = {"whitened", "unwhitened"}  # parameterisations of q


def drawings(results: ResultsFolder, ids: list[str], request: Request) -> Iterator[Drawn]:
    """The figures `ids` (empty: all) with their numbers, those without results too. Figures of binary and count data
    have a second one, `-unwhitened`, where both parameterisations of q were run and none is asked for."""
    rows = _run(results)
    check_ids(ids, rows["dataset"].unique())
    check_by(request.by, results)
    _check_protocol(request, sorted(rows["protocol"].unique()))
    for figure, name, number in figures(results, ids, request.by, rows, request.compare_protocols):
        methods = {*catalogue.entries("method"), *rows["method"]}
        for odd in (line.method for panel in figure.panels for line in panel.lines if line.method not in methods):
            raise UserError(f"figure '{figure.id}': there is no method '{odd}': {nearest(odd, sorted(methods))}")
        found = [panel_rows(panel, results, request.by, request.where) for panel in figure.panels]
        drawn = _measured(figure, (name, number), results, found, request)
        yield drawn
        run = drawn.run
        if run and not number and request.parameterisation is None and all(one.coordinates for one in run):
            unwhitened = replace(request, parameterisation="unwhitened")
            other = _measured(figure, (name, ""), results, found, unwhitened)
            if len(other.protocols) > 1 or all(one.coordinates >= BOTH for one in run):
                yield other


@lru_cache(maxsize=8)
def _run(results: ResultsFolder) -> pd.DataFrame:
    """What was run on which dataset, under which protocol."""
    names = ["dataset", "task", "stands_for", "method", "protocol"]
    both = [frame[names].drop_duplicates() for frame in (results.table, results.candidates)]
    return pd.concat(both).drop_duplicates()


def draw(results: ResultsFolder, figure_id: str, request: Request | None = None) -> Drawn:
    """A figure of one folder with its numbers, caption and notes; its `canvas` is drawn when it is first asked for.
    UserError where there is no such figure (`dlmexp plot --list`, or `own-NAME`), or nothing of it was run."""
    drawn = next(drawings(results, [figure_id], request or Request()), None)
    if drawn is None or not drawn.run:
        raise UserError(no_results([figure_id], drawn.commands if drawn else []))
    return drawn


def no_results(ids: Iterable[str], run: Iterable[str]) -> str:
    """A sentence on figures of which nothing was run."""
    computed = "; ".join(dict.fromkeys(run))
    return f"there are no results for {', '.join(ids)}" + (f"; what computes them: {computed}" if computed else "")


def _check_protocol(request: Request, have: list[str]) -> None:
    if request.protocol is not None and request.protocol not in have:
        there = nearest(request.protocol, have) if have else "there are no results"
        raise UserError(f"--protocol {request.protocol}: nothing was run under it: {there}")
    if request.compare_protocols and len(have) < 2:
        only = f"all results are of protocol {have[0]}" if have else "there are no results"
        raise UserError(f"--compare-protocols: {only}; protocol=NAME makes a run use another")


def _measured(
    figure: Figure, name: tuple[str, str], results: ResultsFolder, rows: list[pd.DataFrame], request: Request
) -> Drawn:
    """A figure with its numbers: by panel and protocol."""
    how = request.parameterisation
    names: list[str | None] = [request.protocol or _usual_protocol(rows, request.where)]
    if request.compare_protocols:
        fits = [one if how is None else one[one["parameterisation"] == how] for one in rows]
        have = {name for one in fits for name in one["protocol"].unique()}
        usual = [name for name in catalogue.PROTOCOLS if name in have]
        names = [*usual, *sorted(have.difference(usual))] or names
    measured = [
        [measure(panel, results, own, protocol, request.where, how) for protocol in names]
        for panel, own in zip(figure.panels, rows, strict=True)
    ]
    beside = tuple(name for name in names if name) if len(names) > 1 else ()
    words = [name[0], how if how == "unwhitened" else "", "protocols" if beside else names[0] or ""]
    words += [f"{column}={'+'.join(values)}" for column, values in request.by.items() if column != "dataset"]
    words += [*(f"{term.name}={term.value}" for term in request.where), name[1]]
    stem = re.sub(r"[^\w.=+-]+", "_", "-".join(word for word in words if word not in ("", "paper", "own")))
    return Drawn(figure, stem, measured, results, request, beside)


def _usual_protocol(rows: list[pd.DataFrame], where: tuple[Term, ...]) -> str | None:
    """The protocol of all panels of a figure: the paper's, or if nothing of it has the wanted settings another one."""
    filled = [one for one in rows if len(one)]
    if where and filled:
        return next(iter(select_setting(pd.concat(filled), None, where)[0]["protocol"]), None)
    counts = pd.concat([one["protocol"] for one in filled]).value_counts() if filled else {}
    return "paper" if "paper" in counts else max(counts.keys(), key=lambda name: (counts[name], name), default=None)


def parse_formats(text: str) -> list[str]:
    """`pdf,png` as a list; UserError for an unknown format."""
    formats = [name.strip().lower() for name in text.split(",")]
    for name in formats:
        if name not in METADATA:
            raise UserError(f"--format {text}: there is no '{name}': {nearest(name, list(METADATA))}")
    return list(dict.fromkeys(formats))


def encode(canvas: Canvas, format: str) -> bytes:
    """The figure as the bytes of a file: the same numbers give the same bytes, so without dates."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=format, metadata=METADATA[format])
    return buffer.getvalue()


def save(folder: Path, name: str, canvas: Canvas, table: pd.DataFrame, text: str, formats: list[str]) -> str:
    """Writes a picture per format, its numbers as CSV (with 6 digits, so that they are the same on all machines) and
    its caption as Markdown; returns a line with their names."""
    with style.use():
        contents = {format: encode(canvas, format) for format in formats}
    contents["csv"] = table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
    contents["md"] = text.encode()
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}.{suffix}", content)
    return f"{name}: {folder / name}.{{{','.join(contents)}}}"
