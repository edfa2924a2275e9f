"""Bars that show how far a run is: on a terminal, and in a notebook."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape
from typing import Any

from rich.console import Console, RenderableType  # noqa: TID251 -- for annotations only
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from dlmexp.common.console import is_notebook, sanitized

# In <pre> both lines have the font of printed text; the browser chooses the width of the bar.
NOTEBOOK_BAR = """\
<pre style="margin:0">cells <progress value="{settled}" max="{total}"></progress> \
{settled}/{total}, {left} left
{caption}</pre>"""


class Bar(ABC):
    """A bar with a line of text below it, which is updated in place."""

    @abstractmethod
    def start(self) -> None:
        """Show the bar."""

    @abstractmethod
    def show(self, settled: int, total: int, left: str, caption: str) -> None:
        """Update the bar.

        Args:
            settled: cells with a record.
            total: all cells.
            left: the time left as text.
            caption: the line below the bar.
        """

    @abstractmethod
    def say(self, line: str, style: str | None) -> None:
        """Print a line that stays."""

    @abstractmethod
    def stop(self) -> None:
        """End the updates; what was shown last stays."""


def bar_for(console: Console | None) -> Bar | None:
    """Return a bar for a notebook or a terminal; None where only plain lines can be shown.

    Args:
        console: the console of the standard output; None if no bar is wanted.
    """
    if console is None:
        return None
    if is_notebook(console.file):
        return NotebookBar()
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalBar(console)
    return None


class TerminalBar(Bar):
    """A bar that is drawn on a terminal."""

    def __init__(self, console: Console):
        self._bar = _RichBar(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            console=console,
        )
        self._task = self._bar.add_task("cells", total=None, left="?")

    def start(self) -> None:
        """Show the bar."""
        self._bar.start()

    def show(self, settled: int, total: int, left: str, caption: str) -> None:
        """Update the bar and the line below it."""
        self._bar.caption = caption
        self._bar.update(self._task, completed=settled, total=total, left=left)

    def say(self, line: str, style: str | None) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, style=style, highlight=False, markup=False)

    def stop(self) -> None:
        """End the updates."""
        self._bar.stop()


class _RichBar(RichProgress):
    """Rich's bar with a line of text below it."""

    caption = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.caption, overflow="ellipsis", no_wrap=True)


class NotebookBar(Bar):
    """A bar in the output of a notebook's cell.

    The bar is HTML that IPython replaces at each update. So it needs no widgets, and its last state
    is saved with the notebook.
    """

    def __init__(self) -> None:
        self._handle: Any = None  # of the output in the notebook, to replace it

    def start(self) -> None:
        """Show the bar."""
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self._handle = display(
            self._html(settled=0, total=1, left="?", caption=""), display_id=True
        )

    def show(self, settled: int, total: int, left: str, caption: str) -> None:
        """Update the bar and the line below it."""
        self._handle.update(self._html(settled, total, left, caption))

    def say(self, line: str, style: str | None) -> None:
        """Print a line below the bar."""
        print(line, file=sys.stdout, flush=True)

    def stop(self) -> None:
        """Do nothing: the bar stays as it is."""

    def _html(self, settled: int, total: int, left: str, caption: str) -> Any:
        from IPython.display import HTML  # pyright: ignore[reportMissingImports]

        text = escape(sanitized(caption))
        return HTML(NOTEBOOK_BAR.format(settled=settled, total=total, left=left, caption=text))
