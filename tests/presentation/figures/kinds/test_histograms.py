"""Panels of gradient draws: units of |G|^2, one repetition, common bins, the error of G."""

import numpy as np
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.presentation.figures.axes import Tile
from dlmexp.presentation.figures.kinds import histograms
from dlmexp.presentation.figures.numbers import MeasuredPanel, Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics
from tests.support.drawings import made, measure_panel

LINE = Line("fixed_log_dlm", "ups", 10, 0.1, names="estimator")
FACTS = {
    "dataset": "abalone",
    "method": "fixed_log_dlm",
    "role": "gradient",
    "estimator": "ups",
    "samples": 10.0,
    "beta": 0.1,
    "base": "fit",
    "norm2_G": 4.0,
    "bias": 2.0,
    "bias_quadrature": 0.5,
}


def panel_of(metric: str) -> Panel:
    """Return a panel of one statistic."""
    return Panel("histogram", "abalone", metric, (LINE,), "bias")


def measured_draws(metric: str, *draws: list[float], **facts) -> Series:
    """Return the numbers of a line with a repetition for each list of draws."""
    rows = [FACTS | facts | {"seed": seed} for seed in range(len(draws))]
    arrays = {f"key{seed}": {metric: values} for seed, values in enumerate(draws)}
    return measure_panel(panel_of(metric), made(rows, arrays)).series[0]


@pytest.mark.parametrize(
    ("metric", "unit"), [("condition_i", 1.0), ("condition_ii", 4.0), ("error", 4.0)]
)
def test_draws_are_in_units_of_the_squared_norm_unless_relative_already(metric, unit):
    series = measured_draws(metric, [2.0, 6.0])
    assert series.draws.tolist() == [2.0 / unit, 6.0 / unit]
    assert series.points["mean"].tolist() == [4.0 / unit]


def test_only_the_first_repetition_with_draws_is_drawn():
    series = measured_draws("error", [np.nan], [4.0, np.inf, 8.0], [400.0])
    row = series.points.iloc[0]
    assert series.draws.tolist() == [1.0, 2.0]
    assert (row["repetitions"], row["failed"], row["draws"], row["seed"]) == (2, 1, 2, 1)
    assert row["x"] == 10


def test_the_bias_is_in_units_of_the_squared_norm():
    assert measured_draws("error", [4.0]).points["bias"].tolist() == [0.5]


def test_records_without_draws_are_noted():
    assert measured_draws("error", [np.nan]).notes == ["no gradient draws in its records"]


def test_the_error_of_G_is_that_of_the_most_ups_samples_of_the_same_fit():  # noqa: N802 - G is a gradient
    rows = [
        FACTS | {"seed": 0},
        FACTS | {"samples": 100.0, "bias": 1.25, "bias_quadrature": 0.25},
        FACTS | {"samples": 1000.0, "bias": 100.0, "base": "other"},
        FACTS | {"samples": 1000.0, "bias": 100.0, "estimator": "bmc"},
        FACTS | {"samples": 1000.0, "bias": 100.0, "beta": 1.0},
        FACTS | {"samples": 1000.0, "bias": 100.0, "role": "fit"},
    ]
    results = made(rows, {"key0": {"error": [4.0]}})
    points = measure_panel(panel_of("error"), results).series[0].points
    assert points["error_of_G"].tolist() == [(1.25 - 0.25) / 4.0]


def test_the_error_of_G_is_unknown_without_ups():  # noqa: N802 - G is a gradient
    line = Line("fixed_log_dlm", "bmc", 10, 0.1, names="estimator")
    panel = Panel("histogram", "abalone", "error", (line,), "bias")
    results = made([FACTS | {"estimator": "bmc"}], {"key0": {"error": [4.0]}})
    points = measure_panel(panel, results).series[0].points
    assert np.isnan(points["error_of_G"]).all()


def drawn_tiles(metric: str, *draws: list[float], error: float = 1.0) -> list[Tile]:
    """Return drawn panels of one statistic, each with the draws of one line."""
    tiles: list[Tile] = []
    for values in draws:
        points = statistics([10], np.array(values)[:, None], len(values)).assign(error_of_G=error)
        series = Series(LINE, points, draws=np.array(values))
        measured = MeasuredPanel(panel_of(metric), "paper", [], [series])
        tiles.append(Tile(measured, 0, 0, MatplotlibFigure().add_subplot()))
    histograms.draw(tiles)
    return tiles


def test_panels_of_a_statistic_share_their_bins():
    first, second = drawn_tiles("condition_ii", [0.1, 1.0], [5.0, 50.0])
    assert first.ax.get_xlim() == second.ax.get_xlim()
    low, high = first.ax.get_xlim()
    assert low < 0.1
    assert high > 50.0


def test_shares_add_up_to_1():
    (tile,) = drawn_tiles("condition_ii", [0.1, 0.2, 0.3, 5.0])
    (line,) = [line for line in tile.ax.lines if line.get_label() == "uPS-10"]
    shares = np.asarray(line.get_ydata())[1:-1:2]
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("metric", "place"), [("condition_i", 1.0), ("error", 3.0)])
def test_a_guide_is_at_1_or_at_the_error_of_G(metric, place):  # noqa: N802 - G is a gradient
    (tile,) = drawn_tiles(metric, [0.1, 10.0], error=3.0)
    (guide,) = [line for line in tile.ax.lines if line.get_label() == "_guide"]
    assert np.asarray(guide.get_xdata()).tolist() == [place, place]
    assert [text.get_text() for text in tile.ax.texts] == ["error of G"] * (metric == "error")


def test_there_is_no_guide_outside_of_the_bins():
    (tile,) = drawn_tiles("condition_i", [2.0, 10.0])
    assert not [line for line in tile.ax.lines if line.get_label() == "_guide"]
