"""Kinds of panels: those that there are, and one that a plugin adds in one file."""

import sys
from types import ModuleType
from typing import Any

import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.figures.axes import Tile
from dlmexp.presentation.figures.kinds.kind import PANEL_KINDS, PanelKind
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel, methods
from dlmexp.presentation.figures.plot import draw
from dlmexp.presentation.figures.stats import statistics
from tests.support.drawings import made
from tests.support.tidy import sweep


def measure_seeds(panel: Panel, line: Line, rows: Any, results: Any) -> Series:
    """Return the test NLL of each seed."""
    values = rows["test_nll"].to_numpy()[None, :]
    return Series(line, statistics(rows["seed"].to_numpy(), values, 1), notes=["by seed"])


def draw_seeds(tiles: list[Tile]) -> None:
    """Draw a line for each method."""
    for tile in tiles:
        for series in tile.lines:
            tile.ax.plot(series.points["x"], series.points["mean"], label=series.line.label)


@pytest.fixture
def seeds_kind(monkeypatch) -> None:
    """The kind `seeds` and a figure of it, as a plugin registers them."""
    module = ModuleType("my_seeds")
    module.__dict__.update(measure=measure_seeds, draw=draw_seeds)
    monkeypatch.setitem(sys.modules, "my_seeds", module)
    monkeypatch.setattr(PANEL_KINDS, "_items", dict(PANEL_KINDS._items))
    monkeypatch.setattr(FIGURES, "_items", {name: FIGURES[name] for name in FIGURES})
    PANEL_KINDS.add("seeds", PanelKind("my_seeds", metrics=("nll",), x="seed"))
    panel = Panel("seeds", "banana", "nll", methods("elbo", "beta_elbo"), "class-log", n="100")
    FIGURES.add("by-seed", Figure("by-seed", (panel,), 1, "NLL by seed."))


@pytest.mark.usefixtures("seeds_kind")
def test_a_plugin_adds_a_kind_of_panel_in_one_file():
    drawn = draw(made(sweep(("elbo", "beta_elbo"))), "by-seed")
    assert set(drawn.csv["against"]) == {"seed"}
    assert set(drawn.csv["n"]) == {100}
    panel = next(ax for ax in drawn.picture.axes if ax.lines)
    assert [line.get_label() for line in panel.lines] == ["ELBO", "β-ELBO"]
    assert panel.get_title(loc="left") == "banana, n = 100"
    assert "banana: ELBO: by seed." in drawn.notes


@pytest.mark.usefixtures("seeds_kind")
def test_a_panel_of_a_plugins_kind_is_checked_as_ours_are():
    with pytest.raises(UserError, match=r"no panel 'seeds' of 'mse'.*seeds: nll"):
        Panel("seeds", "banana", "mse", (), "")


@pytest.mark.usefixtures("seeds_kind")
def test_measure_that_returns_no_series_is_reported_in_one_line(monkeypatch):
    monkeypatch.setattr(sys.modules["my_seeds"], "measure", lambda *_: [1.0])
    with pytest.raises(UserError, match=r"^panel 'seeds': my_seeds.measure returned a list; .*$"):
        draw(made(sweep(("elbo", "beta_elbo"))), "by-seed")


RAISES = """
def measure(panel, line, rows, results):
    return rows["test_nl"]
"""


@pytest.mark.usefixtures("seeds_kind")
def test_exception_of_a_plugins_panel_names_its_line(monkeypatch):
    module = sys.modules["my_seeds"]
    exec(compile(RAISES, "my_seeds.py", "exec"), module.__dict__)
    monkeypatch.setattr("dlmexp.common.plugin_errors.plugin_modules", lambda: {"my_seeds"})
    with pytest.raises(UserError, match=r"^panel 'seeds': error in my_seeds.py:3: KeyError: .*"):
        draw(made(sweep(("elbo", "beta_elbo"))), "by-seed")


@pytest.mark.parametrize("name", PANEL_KINDS.names())
def test_the_module_of_a_kind_measures_and_draws(name):
    module = PANEL_KINDS[name].load()
    assert callable(module.measure)
    assert callable(module.draw)
    assert hasattr(module, "legend") == (PANEL_KINDS[name].legend == "module")
