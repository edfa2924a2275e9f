"""Panels against n, M, samples or a time: their numbers, bands, bars and strips."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D

from dlmexp.presentation.figures.drawn import DrawnFigure
from dlmexp.presentation.figures.kinds.sizes import _ticks_in_decade
from dlmexp.presentation.figures.panels import Line, Panel, methods
from dlmexp.presentation.figures.plot import draw
from tests.support.drawings import (
    draw_tile,
    made,
    measure_panel,
    points,
    points_by_method,
    rows_with,
)
from tests.support.tidy import nll, sweep

ELBO = Line("elbo")
PANEL = Panel("sizes", "banana", "nll", methods("elbo", "joint_log_dlm"), "class-log")


def test_a_point_is_the_mean_over_repetitions_at_its_size():
    table = points_by_method(PANEL, made(sweep()))["elbo"]
    expected = [np.mean([nll("elbo", n, seed, 1.0) for seed in range(3)]) for n in (100, 500)]
    assert table["x"].tolist() == [100, 500]
    assert table["mean"].tolist() == pytest.approx(expected)
    assert table["repetitions"].tolist() == [3, 3]


def test_the_selected_betas_of_a_point_are_listed():
    cases = [(0, 10.0, 2.0), (0, 1.0, 1.0), (1, 10.0, 1.0), (1, 1.0, 2.0)]
    rows = rows_with("seed beta validation_nll test_nll", *[(*case, 1.0) for case in cases])
    results = made([row | {"method": "joint_log_dlm"} for row in rows])
    assert points_by_method(PANEL, results)["joint_log_dlm"]["betas"].tolist() == ["1 10"]


def test_a_method_without_candidates_to_select_from_lists_no_betas():
    assert points_by_method(PANEL, made(sweep(("elbo",))))["elbo"]["betas"].tolist() == ["", ""]


def test_failed_candidates_are_counted_in_a_note():
    cases = [(1.0, "done", 0.5), (10.0, "failed", np.nan)]
    rows = rows_with("beta status validation_nll", *cases, method="joint_log_dlm", failed=1)
    for row in rows:
        row["test_nll"] = row["validation_nll"]
    measured = measure_panel(PANEL, made(rows))
    assert measured.notes == ["joint DLM: 1 candidate failed; β is selected among the others"]


def test_a_metric_that_no_record_has_is_noted():
    panel = Panel("sizes", "banana", "brier", methods("elbo"), "class-log")
    measured = measure_panel(panel, made(sweep(("elbo",))))
    assert measured.notes == ["ELBO: its records have no Brier score"]
    assert not measured.nonempty_series


def test_inducing_inputs_have_a_point_for_each_number():
    panel = Panel("sizes", "banana", "nll", (ELBO,), "inducing", x="M")
    rows = rows_with("M test_nll", (10, 2.0), (50, 1.0))
    table = points_by_method(panel, made(rows))["elbo"]
    assert table["x"].tolist() == [10, 50]
    assert table["mean"].tolist() == [2.0, 1.0]


def test_inducing_inputs_have_ticks_where_points_are_and_the_exact_gp_is_a_line_across():
    lines = methods("elbo", "exact")
    panel = Panel("sizes", "pol", "nll", lines, "inducing-reg", x="M")
    tables = {
        lines[0]: points([25.0, 50.0, 800.0], [3.0, 2.0, 1.0]),
        lines[1]: points([np.nan], [1.5]),
    }
    ax = draw_tile(panel, tables).ax
    assert list(ax.get_xticks()) == [25, 50, 800]
    assert any(set(line.get_ydata()) == {1.5} for line in ax.lines)  # pyright: ignore[reportArgumentType]


def test_a_time_is_the_mean_over_the_rows_of_each_number_of_inducing_inputs():
    panel = Panel("sizes", "banana", "nll", (ELBO,), "inducing", x="predict_seconds")
    cases = [(10, 0, 1.0, 2.0), (10, 1, 3.0, 2.0), (50, 0, 8.0, 1.0)]
    rows = rows_with("M seed predict_seconds test_nll", *cases)
    table = points_by_method(panel, made(rows))["elbo"]
    assert table["x"].tolist() == [2.0, 8.0]


def test_times_that_were_not_measured_are_noted():
    panel = Panel("sizes", "banana", "nll", (ELBO,), "inducing", x="predict_seconds")
    rows = rows_with("M predict_seconds test_nll", (10, np.nan, 1.0))
    assert measure_panel(panel, made(rows)).notes == ["ELBO: its records have no predict_seconds"]


def test_an_exact_objective_has_no_place_on_an_axis_of_samples():
    line = Line("joint_log_dlm")
    panel = Panel("sizes", "banana", "nll", (line,), "samples", x="samples")
    rows = rows_with("samples test_nll", (np.nan, 1.0), method="joint_log_dlm")
    results = made(rows)
    assert np.isnan(points_by_method(panel, results)["joint_log_dlm"]["x"]).all()


def test_points_lie_at_their_n_and_strips_hold_their_means():
    drawn = draw(made(sweep(metric="error")), "class-err")
    lines = [line for ax in drawn.picture.axes for line in ax.lines]
    labelled = [line for line in lines if line.get_label() == "joint DLM"]
    places = [np.asarray(line.get_xdata()).tolist() for line in labelled]
    assert [x for x in places if x] == [[100, 500], [100, 500]]
    (strip,) = [ax for ax in drawn.picture.axes if "vs ELBO" in ax.get_ylabel()]
    assert strip.get_ylabel().startswith("Δ error rate")
    for series in drawn.measured_panels[0].series:
        if "minus_elbo" in series.points:
            assert series.points["minus_elbo"].between(*strip.get_ylim()).all()


def test_one_size_is_drawn_as_bars_with_numbers():
    above, below = draw(made(sweep(sizes=(100,))), "class-log").picture.axes
    widths = [patch.get_width() for patch in above.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(widths) == 4
    assert widths[0] == pytest.approx(np.mean([nll("elbo", 100, seed, 1.0) for seed in range(3)]))
    assert below.patches[1].get_width() == pytest.approx(-0.1)  # pyright: ignore[reportAttributeAccessIssue]
    assert len(below.patches) == 3
    labels = [label.get_text() for label in above.get_yticklabels()]
    assert labels == ["ELBO", "β-ELBO", "joint DLM", "fixed DLM"]
    assert above.get_xlabel() == "test NLL, n = 100"
    assert [text.get_text() for text in below.texts] == ["−0.05", "−0.1", "−0.1"]


def test_coverage_is_drawn_minus_its_nominal_value():
    panel = Panel("sizes", "banana", "coverage_90", (ELBO,), "class-log")
    tile = draw_tile(panel, {ELBO: points([100, 200], [0.95, 0.92])})
    assert tile.ax.get_ylabel() == "coverage − 90 %"
    (line,) = [line for line in tile.ax.lines if line.get_label() == "ELBO"]
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([0.05, 0.02])
    assert any(line.get_label() == "_guide" for line in tile.ax.lines)


def test_a_log_axis_needs_positive_means():
    panel = Panel("sizes", "pol", "mse", (ELBO,), "reg-sq", log=True)
    positive = draw_tile(panel, {ELBO: points([100, 200], [0.5, 0.1])})
    negative = draw_tile(panel, {ELBO: points([100, 200], [0.5, -0.1])})
    assert (positive.ax.get_yscale(), negative.ax.get_yscale()) == ("log", "linear")


def test_a_line_far_from_all_others_stands_at_the_edge_with_its_values():
    rows = [*sweep(("elbo", "joint_log_dlm", "beta_elbo")), *sweep(("fixed_log_dlm",), shift=50.0)]
    drawn = draw(made(rows), "class-log")
    assert len(drawn.measured_panels[0].nonempty_series) == 4
    strip = strip_of(drawn)
    assert strip.get_ylim()[1] < 1.0
    far = next(
        band
        for band in drawn.measured_panels[0].nonempty_series
        if band.line.method == "fixed_log_dlm"
    )
    expected = [f"↑{value:.2g}" for value in far.points["minus_elbo"]]
    assert [text.get_text() for text in strip.texts] == expected
    assert all(is_inside(line, strip) for line in strip.lines if line.get_label() == "fixed DLM")


def test_a_far_point_that_cannot_be_told_from_the_elbo_does_not_set_the_frame():
    rows = [*sweep(("elbo", "joint_log_dlm", "beta_elbo", "fixed_log_dlm"))]
    for row in rows:
        if (row["method"], row["n"], row["seed"]) == ("fixed_log_dlm", 500, 0):
            row["test_nll"] += 5.0
    strip = strip_of(draw(made(rows), "class-log"))
    assert strip.get_ylim()[1] < 1.0
    (value,) = [text.get_text() for text in strip.texts]
    assert value.startswith("↑1")


def strip_of(drawn: DrawnFigure) -> Axes:
    """Return the axes of differences of a figure of one panel."""
    (strip,) = [ax for ax in drawn.picture.axes if "vs ELBO" in ax.get_ylabel()]
    return strip


def is_inside(line: Line2D, ax: Axes) -> bool:
    """Return whether all points of a line lie in the frame; gaps do."""
    low, high = ax.get_ylim()
    heights = np.asarray(line.get_ydata(), dtype=float)
    heights = heights[np.isfinite(heights)]
    return bool(((low <= heights) & (heights <= high)).all())


@pytest.mark.parametrize(("inches", "ticks"), [(1.1, 3), (0.9, 2), (0.5, 2), (0.4, 1)])
def test_a_longer_decade_has_more_ticks(inches, ticks):
    ax = MatplotlibFigure(figsize=(4 * inches, 1)).add_axes((0, 0, 1, 1))
    ax.set_xlim(1, 10_000)
    assert len(_ticks_in_decade(ax)) == ticks
