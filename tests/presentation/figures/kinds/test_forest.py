"""Panels of differences to the ELBO: a row for each method, a mark for each size."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from dlmexp.presentation.figures.kinds.forest import draw
from dlmexp.presentation.figures.panels import Panel, methods
from tests.support.drawings import made, measure_panel, tile
from tests.support.tidy import sweep

LINES = methods("elbo", "joint_log_dlm", "fixed_log_dlm")
PANEL = Panel("forest", "banana", "nll", LINES, "rivals")


@pytest.fixture
def ax() -> Axes:
    """The axes of a drawn panel of three methods at two sizes."""
    measured = measure_panel(PANEL, made(sweep()))
    drawn = tile(PANEL, {series.line: series.points for series in measured.series})
    draw([drawn])
    return drawn.ax


def test_a_mark_stands_at_each_difference_open_at_the_smallest_size(ax):
    series = measure_panel(PANEL, made(sweep())).series[1]
    marks = [line for line in ax.lines if line.get_label() == "_mark"]
    places = [float(np.asarray(line.get_xdata())[0]) for line in marks[:2]]
    assert places == pytest.approx(series.points["minus_elbo"].tolist())
    assert [line.get_markerfacecolor() == "white" for line in marks] == [True, False] * 2


def test_rows_are_named_and_the_elbo_is_the_line_at_0(ax):
    assert [label.get_text() for label in ax.get_yticklabels()] == ["joint DLM", "fixed DLM"]
    assert ax.get_xlabel() == "Δ NLL vs ELBO, n = 100 and 500"


def test_panels_side_by_side_have_the_same_rows_named_once():
    drawn = []
    for column, names in enumerate((LINES[:2], LINES)):
        panel = Panel("forest", "banana", "nll", names, "rivals")
        measured = measure_panel(panel, made(sweep()))
        part = tile(panel, {series.line: series.points for series in measured.series})
        part.column = column
        drawn.append(part)
    draw(drawn)
    names = [[label.get_text() for label in part.ax.get_yticklabels()] for part in drawn]
    assert names == [["joint DLM", "fixed DLM"], ["", ""]]
    assert drawn[0].ax.get_ylim() == drawn[1].ax.get_ylim()
