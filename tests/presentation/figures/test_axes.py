"""What kinds of panels share when they draw: bands, frames, ticks and words."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.presentation.figures.axes import (
    Band,
    draw_band,
    draw_bands,
    draw_off_scale,
    frame,
    inches,
    log_ticks,
    metric_axis_label,
    nominal_coverage,
    set_limits,
)
from dlmexp.presentation.figures.looks import method_look
from dlmexp.presentation.figures.panels import Panel
from tests.support.drawings import ends_of_band


@pytest.fixture
def ax() -> Axes:
    """Axes of 2 by 1 inches."""
    return MatplotlibFigure(figsize=(4, 2)).add_axes((0, 0, 0.5, 0.5))


def band(x: list[float], mean: list[float], half: list[float]) -> Band:
    """Return a band with the look of the ELBO."""
    return Band(np.array(x), np.array(mean), np.array(half), method_look("elbo"))


def test_axes_have_a_size_in_inches(ax):
    assert inches(ax) == pytest.approx((2.0, 1.0))


def test_a_band_spans_the_interval_around_the_mean(ax):
    draw_band(ax, band([1, 2, 3], [5.0, 6.0, 7.0], [0.5, 0.5, 0.5]))
    assert ends_of_band(ax) == (4.5, 7.5)
    assert not ax.containers


def test_a_point_without_neighbours_has_a_bar_for_its_interval(ax):
    draw_band(ax, band([1, 2, 3, 4], [5.0, np.nan, 7.0, 8.0], [0.5, np.nan, 0.5, 0.5]))
    (bars,) = ax.containers
    assert len(bars.lines[2][0].get_segments()) == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_mean_without_a_place_is_a_line_across(ax):
    draw_band(ax, band([np.nan], [5.0], [0.5]))
    across = [line for line in ax.lines if np.asarray(line.get_xdata()).tolist() == [0, 1]]
    assert [np.asarray(line.get_ydata()).tolist() for line in across] == [[5.0, 5.0]]


def test_a_line_across_has_its_interval_and_its_marker_at_the_right(ax):
    draw_band(ax, band([np.nan], [5.0], [0.5]))
    (interval,) = ax.patches
    low = interval.get_y()  # pyright: ignore[reportAttributeAccessIssue]
    height = interval.get_height()  # pyright: ignore[reportAttributeAccessIssue]
    assert (low, height) == pytest.approx((4.5, 1.0))
    (end,) = [line for line in ax.lines if line.get_label() == "_end"]
    assert end.get_marker() == method_look("elbo").marker


def test_points_off_the_scale_stand_in_lanes_of_their_own_with_their_values(ax):
    curves = [band([1, 2], [0.5, 9.0], [0, 0]), band([1, 2], [-7.0, 8.0], [0, 0])]
    ax.set_ylim(0.0, 1.0)
    draw_off_scale(ax, curves, [np.array([False, True]), np.array([True, True])])
    assert [text.get_text() for text in ax.texts] == ["↑9", "↓−7", "↑8"]
    low, high = ax.get_ylim()
    assert low < 0.0
    assert high > 1.0
    places = [text.xyann[1] for text in ax.texts]  # pyright: ignore[reportAttributeAccessIssue]
    assert places[2] < places[0] < 0 < places[1], "the second value below the first"


def test_the_frame_holds_intervals_that_are_as_wide_as_the_means_are_apart(ax):
    frame(ax, np.array([1.0, 2.0]), up=np.array([0.5, 0.5]), down=np.array([0.25, 0.25]))
    low, high = 0.75, 2.5
    margin = 0.06 * (high - low)
    assert ax.get_ylim() == pytest.approx((low - margin, high + margin))


def test_the_frame_does_not_hold_huge_intervals(ax):
    frame(ax, np.array([1.0, 2.0]), up=np.array([50.0, 0.0]), down=np.array([50.0, 0.0]))
    assert ax.get_ylim() == pytest.approx((0.0 - 0.06 * 3, 3.0 + 0.06 * 3))


def test_the_frame_of_a_single_mean_holds_its_interval(ax):
    frame(ax, np.array([1.0, np.nan]), up=np.array([0.5, np.nan]), down=np.array([0.5, np.nan]))
    assert ax.get_ylim() == pytest.approx((0.5 - 0.06, 1.5 + 0.06))


def test_the_frame_is_left_as_it_is_without_means(ax):
    before = ax.get_ylim()
    frame(ax, np.array([np.nan]), up=np.array([0.5]), down=np.array([0.5]))
    set_limits(ax, 2.0, 2.0)
    assert ax.get_ylim() == before


@pytest.mark.parametrize(("zero_line", "holds_zero"), [(True, True), (False, False)])
def test_bands_have_a_line_at_0_in_their_frame_where_wanted(ax, zero_line, holds_zero):
    draw_bands(ax, [band([1, 2], [5.0, 6.0], [0.1, 0.1])], zero_line)
    assert (ax.get_ylim()[0] < 0) == holds_zero
    assert any(line.get_label() == "_guide" for line in ax.lines) == holds_zero


@pytest.mark.parametrize(("high", "ticks"), [(2.5, {1.0, 2.0}), (1000.0, {1.0, 10.0, 100.0})])
def test_a_log_axis_has_ordinary_numbers_at_its_ticks(ax, high, ticks):
    ax.set_xscale("log")
    ax.set_xlim(1.0, high)
    log_ticks(ax.xaxis, (1.0,))
    places = [float(place) for place in ax.xaxis.get_majorticklocs()]
    assert ticks <= set(places)
    assert ax.xaxis.get_major_formatter()(100.0) == "100"
    assert len(ax.xaxis.get_minorticklocs()) == 0


@pytest.mark.parametrize(
    ("metric", "task", "label"),
    [
        ("nll", "binary", "test NLL"),
        ("crps", "regression", "test CRPS, std(y)"),
        ("width_95", "count", "test 95 % width, counts"),
        ("crps", "binary", "test CRPS"),
        ("coverage_50", "regression", "coverage − 50 %"),
    ],
)
def test_axes_of_metrics_have_their_unit(metric, task, label):
    assert metric_axis_label(Panel("sizes", "pol", metric, (), ""), task) == label


@pytest.mark.parametrize(
    ("metric", "nominal"), [("coverage_95", 0.95), ("width_95", 0.0), ("nll", 0.0)]
)
def test_only_coverage_has_a_nominal_value(metric, nominal):
    assert nominal_coverage(Panel("sizes", "pol", metric, (), "")) == nominal
