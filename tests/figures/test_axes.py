"""Scales and tick labels."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure as Canvas

from dlmexp.figures import style
from dlmexp.figures.axes import REMARK, draw, write_beside
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.scales import compact, few_ticks, log_ticks, scale_of
from dlmexp.figures.series import Series, summary


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.1, 0.2, 0.3], "linear"),
        ([0.01, 0.2, 0.3], "log"),
        ([-1.0, 0.0, 1.0], "linear"),
        ([-1.0, -0.9, -0.8, -0.7, 500.0], "symlog"),
        ([0.5], "linear"),
        ([0.3, 0.3], "linear"),
        ([0.1, np.inf, np.nan, 0.2], "linear"),
        ([], "linear"),
    ],
)
def test_scale(values: list[float], scale: str) -> None:
    assert scale_of(np.array(values)) == scale


@pytest.mark.parametrize(("value", "text"), [(500, "500"), (1000, "1k"), (11063, "11.1k"), (2e6, "2M"), (0, "0")])
def test_compact(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(
    ("kind", "metric", "scale"), [("sizes", "mse", "log"), ("sizes", "nll", "linear"), ("curve", "nll", "linear")]
)
@pytest.mark.filterwarnings("error")
def test_what_may_pass_zero_is_not_on_a_log_axis(kind, metric, scale) -> None:
    line = Line("joint_log_dlm")
    panel = Panel(kind, "pol", metric, (line,), "reg-learning")
    points = pd.DataFrame(summary(x, [y - 0.01, y + 0.01], 2) for x, y in ((50, 1.3), (1000, 0.5), (5000, 0.05)))
    ax = Canvas().subplots()
    draw(ax, panel, [Series(line, points)], [style.METHODS["joint_log_dlm"]], "std")
    assert ax.get_yscale() == scale


def table(values: dict[float, float], deviation: float = 0.01) -> pd.DataFrame:
    return pd.DataFrame(summary(x, [y - deviation, y + deviation], 2) | {"validation": y} for x, y in values.items())


def axes_of(panel: Panel, *tables: pd.DataFrame):
    canvas = Canvas()
    ax = canvas.add_subplot(canvas.add_gridspec(2, 1)[0:2, 0])
    series = [Series(line, points) for line, points in zip(panel.lines, tables, strict=True)]
    draw(ax, panel, series, [line.look for line in panel.lines], "std")
    return ax


def test_nll_against_beta_is_framed_around_the_optimum() -> None:
    line = Line("joint_log_dlm")
    panel = Panel("betas", "cadata", "nll", (line, Line("fitc")), "reg-log")
    steep = {0.01: 60.0, 0.1: 9.0, 0.5: 0.9, 2.0: 0.75, 8.0: 0.8, 100.0: 1.4}
    ax = axes_of(panel, table(steep), table({np.nan: 0.83}))
    low, high = ax.get_ylim()
    assert low < 0.75 < 0.83 < 0.9 < high < 1.2
    coarse = {0.01: 9.0, 0.1: 0.9, 1.0: 0.75, 10.0: 0.8, 100.0: 9.0}
    low, high = axes_of(panel, table(coarse), table({np.nan: 0.76})).get_ylim()
    assert low < 0.75 < 0.9 < high < 1.2, "the next beta on each side, however far"
    elsewhere = table(steep).assign(validation=[60.0, 9.0, 0.9, 0.8, 0.8, 0.7])
    low, high = axes_of(panel, elsewhere, table({np.nan: 0.83})).get_ylim()
    assert low < 0.75 < 1.4 < high < 2.0, "where the validation metric is lowest is marked, so it is inside"
    flat = axes_of(panel, table({0.1: 0.8, 1.0: 0.75, 10.0: 0.82}), table({np.nan: 0.83})).get_ylim()
    assert flat[0] < 0.75 < 0.83 < flat[1], "nothing is cut where nothing is far off"


def test_markers_of_one_method_at_several_betas_are_apart() -> None:
    panel = FIGURES["airline"].panels[0]
    ax = axes_of(panel, *(table({float(epoch): 0.6 for epoch in range(43)}) for _ in panel.lines))
    places = {line.get_label(): line.get_markevery()[0] for line in ax.lines}  # pyright: ignore
    for method in ("joint DLM", "fixed DLM"):
        low, plain = (places[f"{method}, β={beta:g}"] for beta in (0.1, 1.0))
        assert abs(low - plain) >= 2


def test_a_coverage_is_no_more_than_1_and_a_width_has_a_unit() -> None:
    line = Line("elbo")
    ax = axes_of(Panel("sizes", "abalone", "coverage_95", (line,), "count-log"), table({100: 1.0, 200: 1.0}, 0.0))
    assert 1.0 < ax.get_ylim()[1] < 1.005
    for dataset, unit in (("abalone", "counts"), ("pol", "std(y)")):
        ax = axes_of(Panel("sizes", dataset, "width_95", (line,), ""), table({100: 1.0, 200: 1.5}))
        assert ax.get_ylabel() == f"test 95 % width, {unit}"


def test_curves_on_a_given_height_show_where_they_end() -> None:
    lines = (Line("joint_log_dlm", "bmc", 1, 0.1, names="estimator"), Line("joint_log_dlm", "ups", 1, 0.1, "estimator"))
    panel = Panel("curve", "abalone", "nll", lines, "count-learning", height=0.05)
    falling = {float(x): 2.2 + 0.8 * np.exp(-x / 20) for x in range(10, 600, 10)}
    spiked = falling | {300.0: 2.9, 410.0: 3.3}
    low, high = axes_of(panel, table(spiked), table({x: y + 0.02 for x, y in falling.items()})).get_ylim()
    assert high - low == pytest.approx(0.05)
    assert low < 2.2 < 2.22 < high


@pytest.mark.parametrize(("low", "high"), [(0.21, 0.38), (0.03, 0.31), (0.8, 1.3), (1e-4, 9e-3)])
def test_a_log_axis_has_some_round_ticks(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)
    assert all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in ticks)


def test_mse_is_on_a_log_axis_however_small_its_range() -> None:
    panel = Panel("sizes", "pol", "mse", (Line("elbo"),), "reg-sq", log=True)
    ax = axes_of(panel, table({100.0: 0.3, 1000.0: 0.2}))
    assert ax.get_yscale() == "log"
    assert len(ax.get_yticks()) >= 3


def test_two_close_sizes_are_both_labelled() -> None:
    panel = Panel("sizes", "pol", "mse", (Line("elbo"),), "reg-sq")
    assert list(axes_of(panel, table({60.0: 0.3, 150.0: 0.2})).get_xticks()) == [60, 150]


def test_both_of_two_lines_on_each_other_can_be_seen() -> None:
    """smooth-bMC lies on bMC: it is dashed, drawn later, and in another colour."""
    lines = FIGURES["count-smooth"].panels[0].lines
    ax = axes_of(FIGURES["count-smooth"].panels[0], *(table({float(x): 2.2 for x in range(60)}) for _ in lines))
    below, above = ax.lines
    assert (below.get_label(), below.get_linestyle()) == ("bMC-1", "-")
    assert (above.get_label(), above.get_linestyle()) == ("smooth-bMC-1", "--")
    assert below.get_color() != above.get_color()


def test_dashes_of_airline_are_betas_and_its_elbo_is_black_at_beta_1_alone() -> None:
    lines = FIGURES["airline"].panels[0].lines
    looks = [line.look for line in lines]
    assert {look.dashes: {one.look.dashes for one in lines if one.beta == line.beta} for line, look in
            zip(lines, looks, strict=True)} == {dash: {dash} for dash in (":", "-", "--")}  # fmt: skip
    elbos = {line.beta: look.colour for line, look in zip(lines, looks, strict=True) if line.method == "beta_elbo"}
    blue = style.METHODS["beta_elbo"].colour
    assert elbos == {0.1: blue, 1.0: "#000000", 10.0: blue}


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(-0.4, 0.33, [-0.2, 0, 0.2]), (-0.022, 0.001, [-0.02, 0]), (-0.06, 0.61, [0, 0.5]), (-1, 1, [-1, 0, 1])],
)
def test_a_narrow_axis_has_few_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert few_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.filterwarnings("error")
def test_beta_zero_stands_apart_on_the_left() -> None:
    line = Line("joint_log_dlm")
    panel = Panel("betas", "cadata", "nll", (line,), "reg-log", n="5%")
    (ax,) = axes_of(panel, table({0.0: 0.9, 0.01: 0.8, 1.0: 0.5, 100.0: 0.7})).figure.axes
    apart, joined, *_ = [one.lines[0] for one in ax.containers if isinstance(one, ErrorbarContainer)]
    assert np.asarray(joined.get_xdata()).tolist() == [0.01, 1.0, 100.0], "the line does not go to zero"
    place, value = (float(np.asarray(values, dtype=float).item()) for values in apart.get_data())
    assert 0 < place < 0.01
    assert value == pytest.approx(0.9)
    ticks = dict(zip(ax.get_xticks(), (label.get_text() for label in ax.get_xticklabels()), strict=True))
    assert ticks[place] == "0"
    assert ax.get_xlim()[0] < place


@pytest.mark.parametrize(("beta", "labels"), [(0.8, {"0", "0.2", "0.5"}), (1e-12, {"0"})])
def test_beta_zero_beside_betas_without_a_power_of_ten(beta: float, labels: set[str]) -> None:
    panel = Panel("betas", "mall", "nll", (Line("joint_log_dlm"),), "")
    ax = axes_of(panel, table({0.0: 0.9, beta: 0.8}))
    assert {label.get_text() for label in ax.get_xticklabels()} == labels


def test_a_remark_goes_where_nothing_is_drawn() -> None:
    ax = Canvas().subplots()
    ax.plot([0, 1], [0.5, 1])
    ax.set(xlim=(0, 1), ylim=(0, 1))
    write_beside(ax, "not run: FITC")
    (text,) = ax.texts
    assert (text.get_horizontalalignment(), text.get_verticalalignment()) == ("right", "bottom")


def test_a_long_remark_is_broken_into_lines_and_takes_no_room() -> None:
    """A panel of which many lines are missing is as wide as the others."""

    def widths(text: str) -> list[float]:
        figure = Canvas(figsize=(7, 2), layout="constrained")
        panels = figure.subplots(1, 3)
        for ax in panels:
            ax.plot([0, 1], [0, 1])
        if text:
            write_beside(panels[1], text)
        figure.draw_without_rendering()
        return [float(ax.get_position().width) for ax in panels]

    missing = ", ".join(f"{name} DLM, β={beta}" for name in ("joint", "fixed") for beta in (0.1, 1, 10))
    assert widths(f"not run: {missing}") == pytest.approx(widths(""))
    ax = Canvas().subplots()
    write_beside(ax, f"not run: {missing}\nnot run in other: {missing}")
    lines = ax.texts[0].get_text().splitlines()
    assert max(map(len, lines)) <= REMARK
    assert " ".join(lines) == f"not run: {missing} not run in other: {missing}"
