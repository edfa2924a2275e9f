"""Tables, times and counts for people."""

import sys

from rich.console import Console

LOG_WIDTH = 140


def wide_console() -> Console:
    """A console that does not fold tables at 80 characters where there is no terminal to fit."""
    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)


def duration(seconds: float) -> str:
    """90 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(number: int, what: str) -> str:
    """0 cells, 1 cell, 2 cells, 3 batches."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")
