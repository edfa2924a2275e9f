"""Means over repetitions, their intervals, and the NLL of the truth."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dlmexp.presentation.figures.stats import BAYES_NLL, half_width, statistics


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=3, max_size=3),
        min_size=1,
        max_size=24,
    )
)
def test_statistics_are_those_of_the_finite_values(rows):
    table = statistics([1, 2, 3], np.array(rows), len(rows))
    for number, column in enumerate(np.array(rows).T):
        finite = column[np.isfinite(column)]
        row = table.iloc[number]
        assert (row["repetitions"], row["failed"]) == (len(finite), len(rows) - len(finite))
        assert row["mean"] == pytest.approx(finite.mean() if len(finite) else np.nan, nan_ok=True)
        if len(finite) > 1 and finite.std() > 1e-6:
            half = stats.sem(finite) * stats.t.ppf(0.975, len(finite) - 1)
            assert half_width(table)[number] == pytest.approx(half)
            assert row["std"] == pytest.approx(finite.std(ddof=1))


@pytest.mark.slow
@given(st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=1, max_size=24))
def test_quartiles_are_those_of_the_finite_values(values):
    table = statistics([1], np.array(values)[:, None], len(values), median=True)
    finite = np.array(values)[np.isfinite(values)]
    quartiles = np.quantile(finite, [0.25, 0.5, 0.75]) if len(finite) else [np.nan] * 3
    (row,) = table[["q25", "median", "q75"]].to_numpy()
    assert [*row] == pytest.approx([*quartiles], nan_ok=True)


def test_infinite_values_count_as_failed():
    table = statistics([1], np.array([[1.0], [np.inf], [-np.inf], [3.0]]), 5)
    assert table[["mean", "repetitions", "failed"]].to_numpy().tolist() == [[2.0, 2, 3]]


def test_a_single_repetition_has_a_mean_without_an_interval():
    table = statistics([1], np.array([[2.0]]), 1)
    assert table["mean"].tolist() == [2.0]
    assert np.isnan(half_width(table)).all()


@pytest.mark.parametrize("repetitions", [2, 3, 10, 20, 21, 100])
def test_half_widths_are_students_for_any_number_of_repetitions(repetitions):
    points = pd.DataFrame({"sem": [0.5], "repetitions": [repetitions]})
    expected = 0.5 * stats.t.ppf(0.975, repetitions - 1)
    assert half_width(points) == pytest.approx([expected], rel=1e-12)


def _mean_log_loss(odds, density, low: float, high: float) -> float:
    """Return E log(1 + exp(-odds)), the mean log loss of true probabilities, by quadrature."""
    mean, _ = integrate.quad(
        lambda z: np.logaddexp(0, -odds(z)) * density(z), low, high, epsabs=1e-13, limit=500
    )
    return mean


def test_nll_of_the_truth_of_twonorm_is_exact():
    # Means +-a with a = 2 / sqrt(20) in each of 20 dimensions, unit variance: the log odds of a
    # row's own class are N(8, 16).
    exact = _mean_log_loss(lambda z: z, lambda z: stats.norm.pdf(z, 8, 4), -40, 60)
    assert BAYES_NLL["twonorm_drawn"] == pytest.approx(exact, rel=1e-11)


def test_nll_of_the_truth_of_ringnorm_is_exact():
    # Class 1 is N(a, I), class 0 is N(0, 4 I). The log odds of class 1 are
    # 2/3 + 20 log 2 - 3/8 |x - 4/3 a|^2, with a noncentral chi-square of 20 degrees of freedom.
    constant = 2 / 3 + 20 * np.log(2)

    def own(q):
        return stats.ncx2.pdf(q, 20, 4 / 9)

    def other(q):
        return stats.ncx2.pdf(q, 20, 16 / 9)

    class_1 = _mean_log_loss(lambda q: constant - 3 / 8 * q, own, 0, 200)
    class_0 = _mean_log_loss(lambda q: 3 / 2 * q - constant, other, 0, 200)
    assert BAYES_NLL["ringnorm_drawn"] == pytest.approx((class_0 + class_1) / 2, rel=1e-11)
