"""Panels against beta: numbers by beta, circles at the lowest validation metric, the frame."""

import numpy as np
import pytest

from dlmexp.presentation.figures.axes import Tile
from dlmexp.presentation.figures.panels import Line, Panel
from tests.support.drawings import draw_tile, made, measure_panel, points, rows_with

DLM = Line("joint_log_dlm")
FITC = Line("fitc")
PANEL = Panel("betas", "banana", "nll", (DLM, FITC), "class-log")


def circles(tile: Tile) -> list[float]:
    """Return the betas that have a circle."""
    lines = [line for line in tile.ax.lines if line.get_label() == "_lowest validation"]
    return [float(x) for line in lines for x in np.asarray(line.get_xdata())]


def test_every_beta_is_a_point_with_its_test_and_validation_means():
    cases = [(0, 1.0, 2.0, 3.0), (1, 1.0, 4.0, 5.0), (0, 0.1, 6.0, 7.0)]
    names = "seed beta test_nll validation_nll"
    rows = rows_with(names, *cases, method="joint_log_dlm")
    table = measure_panel(PANEL, made(rows)).series[0].points
    assert table["x"].tolist() == [0.1, 1.0]
    assert table["mean"].tolist() == [6.0, 3.0]
    assert table["validation"].tolist() == [7.0, 4.0]


def test_failed_results_are_counted_over_all_betas():
    cases = [(0.1, "failed"), (1.0, "failed"), (10.0, "done")]
    rows = rows_with("beta status", *cases, method="joint_log_dlm", test_nll=1.0)
    measured = measure_panel(PANEL, made(rows))
    assert measured.notes == ["joint DLM: 2 results failed, not averaged"]


def test_the_lowest_validation_metric_has_a_circle():
    table = points([0.1, 1.0, 10.0], [1.0, 2.0, 3.0], validation=[5.0, 4.0, 6.0])
    assert circles(draw_tile(PANEL, {DLM: table})) == [1.0]


def test_a_method_without_beta_is_a_line_across_without_a_circle():
    dlm = points([0.1, 1.0], [1.0, 2.0], validation=[1.0, 2.0])
    fitc = points([np.nan], [1.5], validation=[0.5])
    tile = draw_tile(PANEL, {DLM: dlm, FITC: fitc})
    across = [line for line in tile.ax.lines if np.asarray(line.get_ydata()).tolist() == [1.5, 1.5]]
    assert len(across) == 1
    assert circles(tile) == [0.1]


@pytest.mark.parametrize(
    ("betas", "scale"), [([0.0, 0.1, 1.0], "symlog"), ([0.1, 1.0, 10.0], "log")]
)
def test_beta_0_has_a_place_where_it_was_run(betas, scale):
    table = points(betas, [1.0, 2.0, 3.0], validation=[1.0, 2.0, 3.0])
    tile = draw_tile(PANEL, {DLM: table})
    assert tile.ax.get_xscale() == scale


def test_beta_0_is_not_joined_to_the_others():
    table = points([0.0, 0.1, 1.0], [1.0, 2.0, 3.0], validation=[1.0, 2.0, 3.0])
    lines = [
        line for line in draw_tile(PANEL, {DLM: table}).ax.lines if line.get_label() == "joint DLM"
    ]
    places = [np.asarray(line.get_xdata()).tolist() for line in lines]
    assert places == [[], [0.0], [0.1, 1.0]]


def test_the_frame_holds_the_best_beta_and_most_points_but_not_the_worst():
    means = [*np.linspace(1.0, 2.0, 9), 100.0]
    betas = np.logspace(-5, 4, 10)
    tile = draw_tile(PANEL, {DLM: points(betas, means, validation=means)})
    low, high = tile.ax.get_ylim()
    assert low < 1.0
    assert np.quantile(means, 0.7) < high < 3.0


def test_the_frame_holds_the_lower_end_of_the_best_interval():
    table = points([0.1, 1.0], [1.0, 2.0], half=0.5, validation=[1.0, 2.0])
    low, _ = draw_tile(PANEL, {DLM: table}).ax.get_ylim()
    assert 0.3 < low < 0.5


def test_a_panel_with_a_log_axis_has_one_for_positive_means():
    panel = Panel("betas", "banana", "excess_nll", (DLM,), "class-log", log=True)
    positive = points([0.1, 1.0], [0.1, 0.2], validation=[1.0, 2.0])
    negative = points([0.1, 1.0], [-0.1, 0.2], validation=[1.0, 2.0])
    assert draw_tile(panel, {DLM: positive}).ax.get_yscale() == "log"
    assert draw_tile(panel, {DLM: negative}).ax.get_yscale() == "linear"
