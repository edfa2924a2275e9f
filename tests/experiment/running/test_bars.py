"""Where a run is shown as a bar, and what the bar of a notebook has."""

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from dlmexp.common.console import NOTEBOOK_WIDTH, wide_console
from dlmexp.experiment.running.bars import NotebookBar, TerminalBar, bar_for


class _NotebookStream(StringIO):
    """A standard output such as notebooks have."""


_NotebookStream.__module__ = "ipykernel.iostream"


@pytest.fixture
def shown(monkeypatch):
    """What IPython shows, the newest state last."""
    states: list[str] = []
    package = ModuleType("IPython")
    display = ModuleType("IPython.display")

    def show(html, display_id):
        assert display_id
        states.append(html)
        return SimpleNamespace(update=states.append)

    vars(display).update(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return states


def test_bar_is_that_of_the_place():
    terminal = Console(file=StringIO(), force_terminal=True)
    assert isinstance(bar_for(terminal), TerminalBar)
    assert isinstance(bar_for(Console(file=_NotebookStream())), NotebookBar)
    assert bar_for(Console(file=StringIO())) is None
    assert bar_for(None) is None


def test_bar_of_a_notebook_is_updated_in_place(shown):
    bar = NotebookBar()
    bar.start()
    assert 'value="0"' in shown[-1]
    bar.show(4, 9, "2 min", "batch 1/2: a <b> \x1b[0m")
    bar.stop()
    assert 'value="4" max="9"' in shown[-1]
    assert "4/9, 2 min left" in shown[-1]
    assert "batch 1/2: a &lt;b&gt; ?[0m" in shown[-1]
    assert len(shown) == 2


def test_lines_of_a_notebook_are_printed(shown, capsys):
    NotebookBar().say("failed: a cell", "red")
    assert (capsys.readouterr().out, shown) == ("failed: a cell\n", [])


def test_tables_in_a_notebook_are_plain_text_of_its_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    out = _NotebookStream()
    monkeypatch.setattr(sys, "stdout", out)
    console = wide_console()
    console.print("a " * 70)
    assert max(map(len, out.getvalue().splitlines())) <= NOTEBOOK_WIDTH
