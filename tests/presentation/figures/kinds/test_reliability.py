"""Panels of observed minus predicted shares of class 1."""

import numpy as np
import pytest

from dlmexp.presentation.figures.panels import Line, Panel
from tests.support.drawings import draw_tile, made, measure_panel, points, rows_with

ELBO = Line("elbo")
PANEL = Panel("reliability", "banana", "reliability", (ELBO,), "class-log")


def test_bins_are_averaged_over_repetitions():
    arrays = {
        "key0": {"reliability_p": [0.1, 0.6], "reliability_y": [0.0, 0.5]},
        "key1": {"reliability_p": [0.3, 0.8], "reliability_y": [0.2, 1.0]},
    }
    table = measure_panel(PANEL, made(rows_with("seed", (0,), (1,)), arrays)).series[0].points
    assert table["x"].tolist() == pytest.approx([0.2, 0.7])
    assert table["mean"].tolist() == pytest.approx([0.1, 0.75])
    assert table["repetitions"].tolist() == [2, 2]


def test_repetitions_without_a_diagram_or_failed_ones_are_left_out_and_counted():
    diagram = {"reliability_p": [0.1], "reliability_y": [0.3]}
    rows = rows_with("seed status", (0, "done"), (1, "done"), (2, "failed"))
    arrays = {"key0": diagram, "key2": {"reliability_p": [0.9], "reliability_y": [0.9]}}
    table = measure_panel(PANEL, made(rows, arrays)).series[0].points
    assert table[["x", "mean", "repetitions", "failed"]].to_numpy().tolist() == [[0.1, 0.3, 1, 2]]


def test_without_diagrams_there_are_no_points():
    assert measure_panel(PANEL, made(rows_with("seed", (0,)))).series[0].points.empty


def test_the_gap_to_the_predicted_share_is_drawn():
    tile = draw_tile(PANEL, {ELBO: points([0.0, 0.2, 0.7], [0.3, 0.25, 0.6])})
    (line,) = [line for line in tile.ax.lines if line.get_label() == "ELBO"]
    assert np.asarray(line.get_xdata()).tolist() == [0.2, 0.7], "a logit axis has no place for 0"
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([0.05, -0.1])
    assert tile.ax.get_xscale() == "logit"


@pytest.mark.parametrize(("largest", "end"), [(0.2, 0.6), (0.7, 0.8), (0.99, 1 - 3e-4)])
def test_the_axis_ends_beyond_the_largest_share(largest, end):
    tile = draw_tile(PANEL, {ELBO: points([0.1, largest], [0.1, largest])})
    assert tile.ax.get_xlim() == pytest.approx((3e-4, end))
