"""Means over repetitions, their intervals, and the NLL of the truth."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

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


def _log_odds_of_twonorm(X: np.ndarray, y: np.ndarray, a: float) -> np.ndarray:
    return 2 * a * (X + a * (2 * y - 1)[:, None]).sum(1)


def _log_odds_of_ringnorm(X: np.ndarray, y: np.ndarray, a: float) -> np.ndarray:
    X = X * (2 - y)[:, None] + a * y[:, None]
    return (X**2).sum(1) / 8 + 20 * np.log(2) - ((X - a) ** 2).sum(1) / 2


@pytest.mark.parametrize(
    ("name", "log_odds"),
    [("twonorm_drawn", _log_odds_of_twonorm), ("ringnorm_drawn", _log_odds_of_ringnorm)],
)
def test_nll_of_the_truth_is_the_mean_log_loss_of_the_true_probabilities(name, log_odds):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 200_000)
    X = rng.standard_normal((len(y), 20), dtype=np.float32)
    losses = np.logaddexp(0, -(2 * y - 1) * log_odds(X, y, 2 / np.sqrt(20)))
    standard_error = losses.std() / len(y) ** 0.5
    assert BAYES_NLL[name] == pytest.approx(losses.mean(), abs=4 * standard_error)
