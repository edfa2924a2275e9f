"""Output for people: text without commands to the terminal, a console for tables, durations and
counts as text, and a duration read from text."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from dlmexp.common.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console  # noqa: TID251
    from rich.table import Table

# Control characters, with which escape sequences begin, and marks that reverse the order of
# letters.
COMMANDS = dict.fromkeys(
    {*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}, "?"
)
COMMANDS = {code: mark for code, mark in COMMANDS.items() if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """`text` with a question mark for every character that commands a terminal. Names of columns
    and what strangers' records say may hold any."""
    return text.translate(COMMANDS)


class _Harmless:
    """A text stream that writes `harmless` text."""

    def __init__(self, stream: Any):
        self.unchanged = unchanged(stream)

    def write(self, text: str) -> int:
        return self.unchanged.write(harmless(text))

    def flush(self) -> None:
        self.unchanged.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unchanged, name)


def unchanged(stream: Any) -> Any:
    """The stream itself, behind what makes text harmless: for data, and for a console, which does
    that by itself."""
    return stream.unchanged if isinstance(stream, _Harmless) else stream


@contextmanager
def harmless_output() -> Iterator[None]:
    """While entered, all that is printed is `harmless`."""
    with redirect_stdout(_Harmless(sys.stdout)), redirect_stderr(_Harmless(sys.stderr)):
        yield


def nobody_reads() -> None:
    """Let what is printed from now on go nowhere: whoever read it has gone, and the interpreter
    still flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wide_console(width: int = 140) -> "Console":
    """A console as wide as the terminal or $COLUMNS; in a file or pipe, wide enough for our tables.
    Text is shown as it is, without markup, and `harmless`."""
    # which takes a while to load, and counts do not need
    from rich.console import Console  # noqa: TID251
    from rich.segment import Segment

    class HarmlessConsole(Console):
        def render(self, *what: Any, **how: Any) -> Iterator[Segment]:
            for part in super().render(*what, **how):
                yield part if part.control else Segment(harmless(part.text), part.style)

    file = unchanged(sys.stdout)
    known = file.isatty() or "COLUMNS" in os.environ
    return HarmlessConsole(file=file, width=None if known else width, markup=False, emoji=False)


def print_table(console: "Console", table: "Table") -> None:
    """Print a table so that it fits the console: where that is narrow, columns with the same value
    in every row become one line below it, and long words go on in the next line."""
    below: list[str] = []
    for column in [column for column in table.columns if len({*map(str, column.cells)}) == 1][::-1]:
        if (
            table.__rich_measure__(console, console.options.update(max_width=10_000)).maximum
            <= console.width
        ):
            break
        table.columns.remove(column)
        for index, other in enumerate(table.columns):
            other._index = index  # by which rich knows the first and the last one
        below.insert(0, f"{column.header} {next(iter(column.cells))}")
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
    if below:
        console.print(f"in every row: {', '.join(below)}", highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds as text: 90 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(number: int, what: str) -> str:
    """A number with its noun: 0 cells, 1 cell, 2 cells, 3 batches, 4 processes."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith(("ch", "s")) else "s")


def budget_seconds(budget: str | None) -> float | None:
    """The setting `budget=` (90s, 25min, 1.5h) in seconds; None if there is none."""
    if budget is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", budget.strip())
    if not match:
        raise UserError(f"budget={budget}: write it as 90s, 25min or 2h")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2]]
