"""Measure the figures that `dlmexp plot` asks for, and write their files."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.common import catalogue
from dlmexp.common.atomic import write_atomically
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import PAPER_PROTOCOL, is_in_matching_setting
from dlmexp.presentation.figures.choose import Page, Request, pages
from dlmexp.presentation.figures.drawn import DrawnFigure
from dlmexp.presentation.figures.looks import paper_style
from dlmexp.presentation.figures.numbers import (
    UNWHITENED,
    WHITENED,
    MeasuredPanel,
    measure,
    panel_rows,
)

# The metadata that matplotlib writes into files of each format. None removes an entry, as dates and
# versions would make the bytes of equal pictures differ.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}
OWN_PROTOCOL = "own"  # the protocol of runs on users' own data
BOTH_PARAMETERISATIONS = {WHITENED, UNWHITENED}  # of q


def drawings(results: ResultsFolder, ids: Sequence[str], request: Request) -> Iterator[DrawnFigure]:
    """Yield the requested figures with their numbers, even those without results.

    A figure of binary or count data is followed by a second one, `-unwhitened`, if both
    parameterisations of q were run and the request names neither of them.

    Args:
        results: The tidy table and its candidates.
        ids: The figures to draw; empty means all that fit the results.
        request: The other options of the command.

    Raises:
        UserError: There is no such figure, value or protocol.
    """
    for page in pages(results, ids, request):
        results_of_page = page.results or results
        rows_by_panel: list[pd.DataFrame] = []
        for panel in page.figure.panels:
            rows = panel_rows(panel, results_of_page, request.by, request.where)
            rows_by_panel.append(rows)
        first = _measure_page(page, results_of_page, rows_by_panel, request)
        yield first
        is_one_page_of_several = bool(page.number)
        if request.parameterisation is not None or is_one_page_of_several:
            continue
        if not _all_have_parameterisations(first.panels_with_results):
            continue
        unwhitened_request = replace(request, parameterisation=UNWHITENED)
        second = _measure_page(page, results_of_page, rows_by_panel, unwhitened_request)
        # Protocols stand side by side in the second figure only if they have unwhitened results.
        if second.is_comparison or _all_have_both_parameterisations(first.panels_with_results):
            yield second


def _all_have_parameterisations(panels: Sequence[MeasuredPanel]) -> bool:
    """Return whether there are panels, and all of them have rows with a parameterisation of q."""
    return bool(panels) and all(measured.parameterisations for measured in panels)


def _all_have_both_parameterisations(panels: Sequence[MeasuredPanel]) -> bool:
    """Return whether all panels have results in both parameterisations of q."""
    return all(BOTH_PARAMETERISATIONS.issubset(measured.parameterisations) for measured in panels)


def draw(results: ResultsFolder, figure_id: str, request: Request | None = None) -> DrawnFigure:
    """Return a figure with its numbers, caption and notes; its `picture` is drawn when first used.

    Raises:
        UserError: There is no figure with this id, or it has no results. `dlmexp plot --list` shows
            the ids; the figure of a user's own dataset NAME has the id `own-NAME`.
    """
    drawn = next(drawings(results, [figure_id], request or Request()), None)
    if drawn is None:
        raise UserError(no_results([figure_id], commands=[]))
    if not drawn.panels_with_results:
        raise UserError(no_results([figure_id], drawn.commands))
    return drawn


def no_results(ids: Iterable[str], commands: Iterable[str]) -> str:
    """Return a message about figures without results, with the commands that compute them."""
    message = f"there are no results for {', '.join(ids)}"
    distinct = list(dict.fromkeys(commands))
    if not distinct:
        return message
    return f"{message}; what computes them: {'; '.join(distinct)}"


def _measure_page(
    page: Page, results: ResultsFolder, rows_by_panel: Sequence[pd.DataFrame], request: Request
) -> DrawnFigure:
    """Return a figure with its numbers, under one protocol or under protocols side by side."""
    protocols = _protocols_to_draw(rows_by_panel, results, request)
    measured_panels: list[MeasuredPanel] = []
    for panel, rows in zip(page.figure.panels, rows_by_panel, strict=True):
        for protocol in protocols:
            measured = measure(
                panel, results, rows, protocol, request.where, request.parameterisation
            )
            measured_panels.append(measured)
    side_by_side: tuple[str, ...] = ()
    protocol_in_name = protocols[0]
    if len(protocols) > 1:
        # None is a protocol only where it is the only one.
        side_by_side = tuple(protocol for protocol in protocols if protocol is not None)
        protocol_in_name = "protocols"
    name = _file_name(page, protocol_in_name, request)
    return DrawnFigure(page.figure, name, measured_panels, results, request, side_by_side)


def _protocols_to_draw(
    rows_by_panel: Sequence[pd.DataFrame], results: ResultsFolder, request: Request
) -> list[str | None]:
    """Return the protocols of a figure: several that stand side by side, or a single one.

    The only item is None where no protocol has results.
    """
    if request.compare_protocols:
        side_by_side = _protocols_with_rows(rows_by_panel, request)
        if side_by_side:
            return [*side_by_side]
    return [request.protocol or _default_protocol(rows_by_panel, results, request)]


def _protocols_with_rows(rows_by_panel: Iterable[pd.DataFrame], request: Request) -> list[str]:
    """Return the protocols with rows in the requested parameterisation, the paper's first."""
    protocols: set[str] = set()
    for rows in rows_by_panel:
        if request.parameterisation is not None:
            rows = rows[rows["parameterisation"] == request.parameterisation]
        protocols.update(rows["protocol"].unique())
    of_paper = [name for name in catalogue.PROTOCOLS if name in protocols]
    return [*of_paper, *sorted(protocols.difference(of_paper))]


def _default_protocol(
    rows_by_panel: Iterable[pd.DataFrame], results: ResultsFolder, request: Request
) -> str | None:
    """Return `paper` if it has rows of the requested setting, else the protocol with most of them.

    None means that no protocol has rows of the requested setting.
    """
    protocols_by_panel: list[pd.Series] = []
    for rows in rows_by_panel:
        has_setting = is_in_matching_setting(rows, request.where, results.changes)
        protocols_by_panel.append(rows["protocol"][has_setting].astype(object))
    protocol_of_row = pd.concat(protocols_by_panel)
    if (protocol_of_row == PAPER_PROTOCOL).any():
        return PAPER_PROTOCOL
    most_frequent = protocol_of_row.mode()
    return None if most_frequent.empty else most_frequent.iloc[0]


def _file_name(page: Page, protocol: str | None, request: Request) -> str:
    """Return the name of a figure's files, with the options that change what is drawn.

    What is drawn by default is not named. Datasets are in the name of the page already.
    """
    words = [page.name]
    if request.parameterisation == UNWHITENED:
        words.append(UNWHITENED)
    if protocol not in (None, PAPER_PROTOCOL, OWN_PROTOCOL):
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
    """Return the formats that a text such as `pdf,png` lists, without repetitions.

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
    folder: Path,
    name: str,
    picture: MatplotlibFigure,
    table: pd.DataFrame,
    text: str,
    formats: Iterable[str],
) -> str:
    """Write a picture in each format, its numbers as CSV and its caption as Markdown.

    The same numbers give the same bytes on every machine: pictures have no dates, and numbers are
    rounded to 6 digits, as further digits depend on the machine.

    Args:
        folder: Where the files are written.
        name: Their name, without suffixes.
        picture: The picture.
        table: The numbers.
        text: The content of the caption file.
        formats: The formats of the picture (`parse_formats`).

    Returns:
        A line for the terminal that names the files.
    """
    contents = {suffix: _picture_file(picture, suffix) for suffix in formats}
    contents["csv"] = table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
    contents["md"] = text.encode()
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}.{suffix}", content)
    suffixes = "{" + ",".join(contents) + "}"
    return f"{name}: {folder / name}.{suffixes}"


def _picture_file(picture: MatplotlibFigure, suffix: str) -> bytes:
    """Return the content of the file of a picture in one format."""
    buffer = io.BytesIO()
    with paper_style():
        picture.savefig(buffer, format=suffix, metadata=METADATA[suffix])
    return buffer.getvalue()
