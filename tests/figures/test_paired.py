"""Paired differences: what they average to, their interval, and what is drawn of them."""

import numpy as np
import pytest
from scipy import stats

from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.families.classification import against_n
from dlmexp.figures.measure import measure
from dlmexp.figures.paired import contrast, differences, interval
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.variants import Drawing
from tests.support.made_up import failed, fit, method_cell
from tests.support.series import panel_series


def test_the_interval_is_students() -> None:
    values = [0.1, 0.4, -0.2, 0.3, 0.25]
    found = interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((np.mean(values), low, high))
    assert found["repetitions"] == 5


def test_one_difference_has_no_interval_and_none_no_mean() -> None:
    one, none = interval([0.3]), interval([np.nan])
    assert (one["mean"], one["repetitions"]) == (0.3, 1)
    assert np.isnan(one["low"])
    assert np.isnan(none["mean"])


def test_a_contrast_takes_the_repetitions_that_have_everything() -> None:
    found = contrast([(1.0, {0: 3.0, 1: 4.0, 2: np.nan}), (-0.5, {0: 2.0, 2: 1.0, 3: 9.0})])
    assert found == {0: 2.0}


def test_differences_by_size() -> None:
    ours = {(100, 0): 1.0, (100, 1): 3.0, (200, 0): 5.0}
    found = differences(ours, {key: value + 0.5 for key, value in ours.items()})
    assert {n: one["mean"] for n, one in found.items()} == pytest.approx({100: -0.5, 200: -0.5})
    assert found[100]["high"] == pytest.approx(-0.5)


def records() -> list:
    """Splits far apart; joint DLM is better by 0.01 or 0.02 on each of them."""
    found = []
    for seed, level in enumerate((0.2, 0.5, 0.9, 1.4)):
        found.append(fit(method_cell("elbo", "banana", n=100, seed=seed), nll=level, error=0.1))
        gain = 0.01 + 0.01 * (seed % 2)
        found.append(fit(method_cell("joint_log_dlm", "banana", n=100, seed=seed), nll=level - gain, error=0.1))
    lost = method_cell("elbo", "banana", n=100, seed=9)
    return [*found, failed(lost), fit(method_cell("joint_log_dlm", "banana", n=100, seed=9), nll=9.0, error=0.1)]


def test_differences_are_those_of_common_repetitions(results) -> None:
    found = {one.line.method: one for one in panel_series(against_n("banana", "nll", "class-log"), results(*records()))}
    (point,) = found["joint_log_dlm"].points.to_dict("records")
    expected = interval([-0.01, -0.02, -0.01, -0.02])
    assert point["minus_elbo"] == pytest.approx(-0.015)
    assert (point["low"], point["high"]) == pytest.approx((expected["low"], expected["high"]))
    assert point["std"] > 10 * (point["high"] - point["low"]), "the deviation over splits hides it"
    assert "minus_elbo" not in found["elbo"].points


@pytest.mark.slow
def test_they_are_drawn_below_the_nll_alone(results) -> None:
    read = results(*records())
    for name, below in (("class-log", True), ("class-err", False)):
        with style.use():
            canvas = render(measure(Drawing(FIGURES[name], name, FIGURES[name].panels), [read]))
        lower = [ax for ax in canvas.axes if ax.get_ylabel() == "− ELBO"]
        assert len(lower) == below
        for ax in lower:
            (bar,) = ax.containers
            assert bar.get_label() == "joint DLM"
            assert list(bar.lines[0].get_ydata()) == pytest.approx([-0.015])  # pyright: ignore
            upper = canvas.axes[0]
            assert ax.get_position().y1 < upper.get_position().y0
            assert ax.get_xlim() == upper.get_xlim()
            assert ax.get_ylim()[0] < -0.015 < 0.0 < ax.get_ylim()[1]
