"""Output for people: sanitized text, consoles for tables, durations and counts as text."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from dlmexp.common.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console  # noqa: TID251 -- a type; `wide_console` sanitizes
    from rich.table import Column, Table

# Control characters, with which escape sequences begin; line breaks and tabs are allowed.
CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
# Marks that change the direction of text: embeddings and overrides, then isolates.
BIDIRECTIONAL = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
REPLACEMENTS = dict.fromkeys(CONTROLS | BIDIRECTIONAL, "?")
FILE_WIDTH = 140  # characters per line in a file or pipe
NOTEBOOK_WIDTH = 120  # characters per line; notebooks wrap longer ones
SECONDS = {"s": 1, "min": 60, "h": 3600}


def sanitized(text: str) -> str:
    """Return `text` with a question mark in place of every character that controls a terminal.

    Text from strangers, such as names of columns, may contain such characters.
    """
    return text.translate(REPLACEMENTS)


class _SanitizedStream:
    """A text stream that writes sanitized text."""

    def __init__(self, stream: Any):
        self.raw = raw_stream(stream)

    def write(self, text: str) -> int:
        return self.raw.write(sanitized(text))

    def flush(self) -> None:
        self.raw.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: Any) -> Any:
    """Return the stream below a sanitized one; any other stream is returned unchanged.

    Write to the raw stream only binary data, or text that is sanitized already, as consoles do.
    """
    return stream.raw if isinstance(stream, _SanitizedStream) else stream


@contextmanager
def sanitized_output() -> Iterator[None]:
    """Sanitize everything that is printed in this context."""
    out = _SanitizedStream(sys.stdout)
    errors = _SanitizedStream(sys.stderr)
    with redirect_stdout(out), redirect_stderr(errors):
        yield


def discard_stdout() -> None:
    """Discard everything that is printed from now on.

    For use after a BrokenPipeError: when the interpreter ends, it flushes standard output once
    more, which would raise the same error again.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def is_notebook(stream: Any) -> bool:
    """Return whether a stream writes into the output of a notebook's cell."""
    return type(raw_stream(stream)).__module__.startswith("ipykernel")


def wide_console(width: int = FILE_WIDTH) -> "Console":
    """Return a console for tables on standard output.

    Text is printed literally, without markup, and sanitized. In notebooks it is plain text, too.

    Args:
        width: Characters per line in a file or pipe. The width of a terminal, or the environment
            variable COLUMNS, takes precedence.
    """
    # rich takes a while to import, and most users of this module print no tables.
    from rich.console import Console  # noqa: TID251 -- the subclass below sanitizes
    from rich.segment import Segment

    class SanitizedConsole(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **options):
                if segment.control:  # escape sequences of rich itself, such as those of a spinner
                    yield segment
                else:
                    yield Segment(sanitized(segment.text), segment.style)

    file = raw_stream(sys.stdout)
    if is_notebook(file):
        width = min(width, NOTEBOOK_WIDTH)
    width_is_known = file.isatty() or "COLUMNS" in os.environ
    return SanitizedConsole(
        file=file,
        width=None if width_is_known else width,
        markup=False,
        emoji=False,
        # Otherwise rich shows tables as HTML in notebooks, even if standard output is redirected.
        force_jupyter=False,
    )


def print_table(console: "Console", table: "Table") -> None:
    """Print a table so that it fits the console.

    If the console is too narrow, columns with the same value in every row are removed, the last one
    first, until the table fits. A line below the table has their values. If the table is still too
    wide, words are broken.
    """
    removed: list[str] = []  # the header and the value of each removed column
    width = _width(console, table)
    for column in reversed(_constant_columns(table)):
        if width <= console.width:
            break
        _remove_column(table, column)
        width = _width(console, table)
        header = str(column.header).replace("\n", " ")
        value = next(iter(column.cells))
        removed.insert(0, f"{header} {value}")
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
    if removed:
        console.print(f"in every row: {', '.join(removed)}", highlight=False, soft_wrap=True)


def _constant_columns(table: "Table") -> list["Column"]:
    return [column for column in table.columns if _is_constant(column)]


def _is_constant(column: "Column") -> bool:
    texts = {str(cell) for cell in column.cells}
    return len(texts) == 1


def _width(console: "Console", table: "Table") -> int:
    """Return the width of a table in which no word is broken."""
    from rich.table import Table

    # rich measures every cell, which is slow. A table with a single row, of the widest cell of each
    # column, has the same width.
    widest = Table(box=table.box, pad_edge=table.pad_edge)
    for column in table.columns:
        widest.add_column(column.header)
    widest.add_row(*map(_widest_cell, table.columns))
    unlimited = console.options.update(max_width=10_000)
    return widest.__rich_measure__(console, unlimited).maximum


def _widest_cell(column: "Column") -> str:
    texts = map(str, column.cells)
    return max(texts, key=_text_width, default="")


def _text_width(text: str) -> int:
    """Return the width of the longest line of a text on a terminal."""
    from rich.cells import cell_len  # counts wide characters, such as Chinese ones, twice

    widths = map(cell_len, text.splitlines())
    return max(widths, default=0)


def _remove_column(table: "Table", column: "Column") -> None:
    table.columns.remove(column)
    # rich recognises the first and the last column by their private index: renumber the columns.
    for index, remaining in enumerate(table.columns):
        remaining._index = index


def duration(seconds: float) -> str:
    """Return seconds as text: 90 s, 12 min, 3.4 h."""
    if seconds < 2 * SECONDS["min"]:
        return f"{seconds:.0f} s"
    if seconds < 2 * SECONDS["h"]:
        return f"{seconds / SECONDS['min']:.0f} min"
    return f"{seconds / SECONDS['h']:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 0 cells, 1 cell, 2 cells, 3 batches, 4 processes."""
    if number == 1:
        return f"1 {noun}"
    plural_ending = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number} {noun}{plural_ending}"


def budget_seconds(budget: str | None) -> float | None:
    """Return the setting `budget=` (90s, 25min, 1.5h) in seconds; None if there is none.

    Raises:
        UserError: it is not a duration.
    """
    if budget is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", budget.strip())
    if not match:
        raise UserError(f"budget={budget}: write it as 90s, 25min or 2h")
    number, unit = match.groups()
    return float(number) * SECONDS[unit]
