"""Tables for people: as wide as the terminal, and wide enough in a log."""

import sys

from rich.console import Console

LOG_WIDTH = 140


def wide_console() -> Console:
    """A console that does not fold tables at 80 characters where there is no terminal to fit."""
    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
