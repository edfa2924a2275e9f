"""Output for people: a console for tables, durations and counts as text, and a duration read from text."""

import re
import sys
from typing import TYPE_CHECKING

from dlmexp.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 140


def wide_console() -> "Console":
    """A console as wide as the terminal; in a file or pipe, wide enough for our tables."""
    from rich.console import Console  # which takes a while to load, and counts do not need

    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)


def duration(seconds: float) -> str:
    """Seconds as text: 90 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def speed(rate: float) -> str:
    """Iterations per second as text: 0.33, 8.5, 1204 it/s."""
    return f"{rate:.0f} it/s" if rate == 0 or rate >= 10 else f"{rate:.2g} it/s"


def counted(number: int, what: str) -> str:
    """A number with its noun: 0 cells, 1 cell, 2 cells, 3 batches, 4 processes."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith(("ch", "s")) else "s")


def budget_seconds(budget: str | None) -> float | None:
    """The setting `budget=` (90s, 25min, 1.5h) in seconds; None if there is none."""
    if budget is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", budget.strip())
    if not found:
        raise UserError(f"budget={budget}: write it as 90s, 25min or 2h")
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]
