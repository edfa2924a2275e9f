"""Panels of learning curves: stopped repetitions, frames without their starts, labels at ends."""

import numpy as np
import pytest

from dlmexp.presentation.figures.kinds.curves import _set_apart, curve_look
from dlmexp.presentation.figures.panels import Line, Panel
from tests.support.drawings import draw_tile, ends_of_band, made, measure_panel, points

DLM = Line("joint_log_dlm", "bmc", 1, beta=0.1, names="estimator")
PANEL = Panel("curve", "abalone", "nll", (DLM,), "count-learning")
FACTS = {
    "dataset": "abalone",
    "method": "joint_log_dlm",
    "role": "curve",
    "estimator": "bmc",
    "samples": 1.0,
    "beta": 0.1,
}


def results_with(*arrays: dict[str, list[float]]):
    """Return results with a repetition for each of these learning curves."""
    rows = [FACTS | {"seed": seed} for seed in range(len(arrays))]
    return made(rows, {f"key{seed}": curve for seed, curve in enumerate(arrays)})


def test_a_curve_that_has_stopped_keeps_its_last_value():
    short = {"evaluated_at": [0, 10], "test_nll": [4.0, 2.0]}
    long = {"evaluated_at": [0, 10, 20], "test_nll": [4.0, 3.0, 1.0]}
    table = measure_panel(PANEL, results_with(short, long)).series[0].points
    assert table["x"].tolist() == [0, 10, 20]
    assert table["mean"].tolist() == [4.0, 2.5, 1.5]


def test_curves_against_epochs_have_their_epochs():
    panel = Panel("curve", "abalone", "nll", (DLM,), "airline", x="epochs")
    curve = {"evaluated_at": [0, 10], "epochs": [0, 1], "test_nll": [4.0, 2.0]}
    assert measure_panel(panel, results_with(curve)).series[0].points["x"].tolist() == [0, 1]


def test_repetitions_without_a_curve_are_counted():
    curve = {"evaluated_at": [0, 10], "test_nll": [4.0, 2.0]}
    broken = {"evaluated_at": [0, 10], "test_nll": [4.0]}
    measured = measure_panel(PANEL, results_with(curve, broken, {}))
    assert measured.notes == ["bMC-1: 2 repetitions without a learning curve"]
    assert measured.series[0].points["repetitions"].tolist() == [1, 1]
    assert measured.series[0].points["failed"].tolist() == [2, 2]


def test_a_panel_of_medians_has_quartiles():
    panel = Panel("curve", "abalone", "nll", (DLM,), "count-learning", median=True)
    curves = [{"evaluated_at": [0], "test_nll": [value]} for value in (1.0, 2.0, 9.0)]
    table = measure_panel(panel, results_with(*curves)).series[0].points
    assert table[["median", "q25", "q75"]].to_numpy().tolist() == [[2.0, 1.5, 5.5]]


@pytest.mark.parametrize(("median", "start"), [(False, 0.1), (True, 0.25)])
def test_the_start_of_a_curve_may_leave_the_frame(median, start):
    panel = Panel("curve", "abalone", "nll", (DLM,), "count-learning", median=median)
    x = np.arange(0, 101, 1.0)
    values = np.where(x < 100 * start, 1000.0, 1.0) + x / 1000
    table = points(x, values)
    table = table.assign(median=values, q25=values - 0.1, q75=values + 0.2)
    assert draw_tile(panel, {DLM: table}).ax.get_ylim()[1] < 10


def test_a_curve_of_medians_is_a_mean_over_blocks_of_evaluations():
    panel = Panel("curve", "abalone", "nll", (DLM,), "count-learning", median=True)
    x = np.arange(400.0)
    values = np.where(x % 10 == 5, 2.0, 1.0)  # a spike in every tenth evaluation
    table = points(x, values).assign(median=values, q25=values, q75=values)
    (line,) = draw_tile(panel, {DLM: table}).ax.lines
    assert np.allclose(line.get_ydata(), 1.1)
    assert line.get_xdata()[-1] == x[-1]  # pyright: ignore[reportIndexIssue]


def test_the_tail_of_medians_is_a_mean_over_repetitions_with_its_interval():
    panel = Panel("curve", "abalone", "nll", (DLM,), "count-learning", median=True)
    times = [0, 25, 50, 75, 100]
    curves = [
        {"evaluated_at": times, "test_nll": [9.0, 5.0, 4.0, end - 0.5, end + 0.5]}
        for end in (1.0, 2.0, 3.0)
    ]
    table = measure_panel(panel, results_with(*curves)).series[0].points
    assert table["tail"].isna().tolist() == [True, True, True, False, False]
    half = 4.302652729749462 / np.sqrt(3)  # Student's t with two degrees of freedom
    last = table[["tail", "tail_low", "tail_high"]].iloc[-1].tolist()
    assert last == pytest.approx([2.0, 2.0 - half, 2.0 + half])
    (line,) = draw_tile(panel, {DLM: table}).ax.lines
    assert np.asarray(line.get_ydata()).tolist()[-1] == 2.0


def test_bands_are_intervals_of_means_or_quartiles():
    x = [0.0, 10.0]
    quartiles = points(x, [2.0, 2.0]).assign(median=2.0, q25=1.5, q75=2.25)
    of_medians = Panel("curve", "abalone", "nll", (DLM,), "count-learning", median=True)
    assert ends_of_band(draw_tile(of_medians, {DLM: quartiles}).ax) == (1.5, 2.25)
    means = points(x, [2.0, 2.0], half=0.5)
    assert ends_of_band(draw_tile(PANEL, {DLM: means}).ax) == pytest.approx((1.5, 2.5))


def test_ends_are_labelled_with_the_beta_that_tells_lines_apart():
    lines = [Line("joint_log_dlm", beta=beta, names="beta") for beta in (0.1, 10.0)]
    panel = Panel("curve", "airline", "nll", tuple(lines), "airline")
    tables = {line: points([0.0, 5.0], [3.0, line.beta or 0.0]) for line in lines}
    texts = [text.get_text() for text in draw_tile(panel, tables).ax.texts]
    assert texts == ["β = 0.1", "β = 10"]


def test_dashes_show_beta_and_markers_the_method():
    lines = [
        Line(method, beta=beta, names="beta")
        for method in ("joint_log_dlm", "fixed_log_dlm")
        for beta in (0.1, 1.0, 10.0)
    ]
    panel = Panel("curve", "airline", "nll", tuple(lines), "airline")
    looks = [curve_look(line, panel) for line in lines]
    assert [look.dashes for look in looks] == [":", "-", "--"] * 2
    assert [len({look.marker for look in looks[start : start + 3]}) for start in (0, 3)] == [1, 1]
    assert looks[0].marker != looks[3].marker


def test_a_curve_of_an_estimator_has_no_markers():
    assert curve_look(DLM, PANEL).marker == ""


def test_labels_that_are_apart_stay_at_their_ends():
    assert _set_apart(np.array([0.1, 0.5, 0.9]), 0.1).tolist() == pytest.approx([0.1, 0.5, 0.9])


def test_labels_of_equal_ends_are_set_apart_around_them():
    places = _set_apart(np.array([0.5, 0.5, 0.5]), 0.1)
    assert places.tolist() == pytest.approx([0.4, 0.5, 0.6])


def test_labels_stay_inside_the_axes():
    low = _set_apart(np.array([-3.0, 0.0]), 0.1)
    high = _set_apart(np.array([1.0, 7.0]), 0.1)
    assert low.tolist() == pytest.approx([0.0, 0.1])
    assert high.tolist() == pytest.approx([0.9, 1.0])
