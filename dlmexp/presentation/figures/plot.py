"""The work of `dlmexp plot`: figures with their numbers and notes, and their files."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp.common import catalogue
from dlmexp.common.atomic import write_atomically
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import PAPER, matching
from dlmexp.presentation.figures.choose import Page, Request, pages
from dlmexp.presentation.figures.drawn import Drawn
from dlmexp.presentation.figures.looks import paper_style
from dlmexp.presentation.figures.numbers import Measured, measure, panel_rows

# By format, what a file says about its origin; None keeps out the time and a version.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}
OWN_PROTOCOL = "own"  # of runs on data of users
PARAMETERISATIONS = {"whitened", "unwhitened"}  # of q


def drawings(results: ResultsFolder, ids: Sequence[str], request: Request) -> Iterator[Drawn]:
    """Yield the figures `ids` (empty: all) with their numbers, those without results too.

    Figures of binary and count data have a second one, `-unwhitened`, where both parameterisations
    of q were run and none is asked for.

    Raises:
        UserError: A figure, a value or a protocol that is asked for is not there.
    """
    for page in pages(results, ids, request):
        of_page = page.results or results
        rows = [
            panel_rows(panel, of_page, request.by, request.where) for panel in page.figure.panels
        ]
        drawn = _measure_page(page, of_page, rows, request)
        yield drawn
        may_have_second = request.parameterisation is None and not page.number
        if may_have_second and _has_coordinates(drawn.run):
            unwhitened = replace(request, parameterisation="unwhitened")
            second = _measure_page(page, of_page, rows, unwhitened)
            if second.is_comparison or _has_both_parameterisations(drawn.run):
                yield second


def _has_coordinates(run: Sequence[Measured]) -> bool:
    """Return whether all panels are of methods that have a parameterisation of q."""
    return bool(run) and all(measured.coordinates for measured in run)


def _has_both_parameterisations(run: Sequence[Measured]) -> bool:
    """Return whether all panels have results in both parameterisations of q."""
    return all(PARAMETERISATIONS.issubset(measured.coordinates) for measured in run)


def draw(results: ResultsFolder, figure_id: str, request: Request | None = None) -> Drawn:
    """Return a figure with its numbers, caption and notes; its `canvas` is drawn when first used.

    Raises:
        UserError: There is no such figure (`dlmexp plot --list`, or `own-NAME`), or nothing of it
            was run.
    """
    drawn = next(drawings(results, [figure_id], request or Request()), None)
    if drawn is None:
        raise UserError(no_results([figure_id], commands=[]))
    if not drawn.run:
        raise UserError(no_results([figure_id], drawn.commands))
    return drawn


def no_results(ids: Iterable[str], commands: Iterable[str]) -> str:
    """Return a message on figures of which nothing was run, with the commands that compute them."""
    message = f"there are no results for {', '.join(ids)}"
    distinct = list(dict.fromkeys(commands))
    if not distinct:
        return message
    return f"{message}; what computes them: {'; '.join(distinct)}"


def _measure_page(
    page: Page, results: ResultsFolder, rows: Sequence[pd.DataFrame], request: Request
) -> Drawn:
    """Return a figure with its numbers, from the rows of its panels."""
    protocols = _protocols(rows, results, request)
    parameterisation = request.parameterisation
    measured: list[Measured] = []
    for panel, table in zip(page.figure.panels, rows, strict=True):
        measured += [
            measure(panel, results, table, protocol, request.where, parameterisation)
            for protocol in protocols
        ]
    side_by_side: tuple[str, ...] = ()
    protocol_in_name = protocols[0]
    if len(protocols) > 1:
        side_by_side = tuple(name for name in protocols if name)
        protocol_in_name = "protocols"
    name = _file_name(page, protocol_in_name, request)
    return Drawn(page.figure, name, measured, results, request, side_by_side)


def _protocols(
    rows: Sequence[pd.DataFrame], results: ResultsFolder, request: Request
) -> list[str | None]:
    """Return the protocol of all panels of a figure, or those that stand side by side."""
    side_by_side = _protocols_with_rows(rows, request) if request.compare_protocols else []
    if side_by_side:
        return [*side_by_side]
    return [request.protocol or _usual_protocol(rows, results, request)]


def _protocols_with_rows(rows: Sequence[pd.DataFrame], request: Request) -> list[str]:
    """Return the protocols that were run in the wanted parameterisation, the paper's first."""
    run: set[str] = set()
    for table in rows:
        if request.parameterisation is not None:
            table = table[table["parameterisation"] == request.parameterisation]
        run.update(table["protocol"].unique())
    first = [name for name in catalogue.PROTOCOLS if name in run]
    return [*first, *sorted(run.difference(first))]


def _usual_protocol(
    rows: Sequence[pd.DataFrame], results: ResultsFolder, request: Request
) -> str | None:
    """Return `paper`, or if nothing of it was run the protocol with most rows."""
    fitting: list[pd.Series] = []
    for table in rows:
        is_wanted = matching(table, request.where, results.changes)
        fitting.append(table["protocol"][is_wanted].astype(object))
    protocols = pd.concat(fitting)
    if (protocols == PAPER).any():
        return PAPER
    return next(iter(protocols.mode()), None)


def _file_name(page: Page, protocol: str | None, request: Request) -> str:
    """Return the name of a figure's files, with whatever differs from the usual figure."""
    words = [page.name]
    if request.parameterisation == "unwhitened":
        words.append("unwhitened")
    if protocol not in (None, PAPER, OWN_PROTOCOL):
        words.append(protocol)
    for column, values in request.by.items():
        if column != "dataset":
            words.append(f"{column}={'+'.join(values)}")
    for name, values in request.where.items():
        words.append(f"{name}={','.join(values)}")
    if page.number:
        words.append(page.number)
    return re.sub(r"[^\w.=+-]+", "_", "-".join(words))


def parse_formats(text: str) -> list[str]:
    """Return `pdf,png` as a list.

    Raises:
        UserError: A format is not known.
    """
    formats = [name.strip().lower() for name in text.split(",")]
    for name in formats:
        if name not in METADATA:
            close = nearest(name, list(METADATA))
            raise UserError(f"--format {text}: there is no '{name}': {close}")
    return list(dict.fromkeys(formats))


def save(
    folder: Path, name: str, canvas: Canvas, table: pd.DataFrame, text: str, formats: Iterable[str]
) -> str:
    """Write a picture per format, its numbers as CSV and its caption as Markdown.

    The same numbers give the same bytes: pictures have no dates, and numbers have 6 digits, as
    later ones differ between machines.

    Args:
        folder: Where the files are written.
        name: Their name, without suffixes.
        canvas: The picture.
        table: The numbers.
        text: The caption file.
        formats: From `parse_formats`.

    Returns:
        A line with the names of the files.
    """
    contents = {suffix: _picture(canvas, suffix) for suffix in formats}
    contents["csv"] = table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
    contents["md"] = text.encode()
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}.{suffix}", content)
    suffixes = "{" + ",".join(contents) + "}"
    return f"{name}: {folder / name}.{suffixes}"


def _picture(canvas: Canvas, suffix: str) -> bytes:
    """Return the bytes of a picture in one format."""
    buffer = io.BytesIO()
    with paper_style():
        canvas.savefig(buffer, format=suffix, metadata=METADATA[suffix])
    return buffer.getvalue()
