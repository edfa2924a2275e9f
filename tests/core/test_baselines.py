"""The mean, a linear model and boosted trees as baselines of the three tasks."""

import numpy as np
import pytest
from scipy import stats

from dlmexp.core.baselines import BASELINES, Baseline, available_baselines, gaussian_scores


def data(task: str, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three features, of which the first matters, and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    f = 1.5 * X[:, 0] + 0.5
    if task == "regression":
        return X, f + 0.3 * rng.normal(size=n)
    if task == "binary":
        return X, (rng.random(n) < 1 / (1 + np.exp(-f))).astype(float)
    return X, rng.poisson(np.exp(0.5 * f)).astype(float)


@pytest.mark.parametrize("name", ["mean", "linear", pytest.param("trees", marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", ["regression", "binary", "count"])
def test_models_beat_the_mean_on_new_rows(task, name):
    if name == "trees":
        pytest.importorskip("sklearn")
    X, y = data(task)
    trivial = BASELINES["mean"](task, X[:200], y[:200]).scores(X[200:], y[200:])
    scores = BASELINES[name](task, X[:200], y[:200]).scores(X[200:], y[200:])
    assert scores.keys() == trivial.keys()
    if name == "mean":
        return
    metrics = [metric for metric in scores if metric != "nll" or name == "linear"]
    assert all(scores[metric] < trivial[metric] for metric in metrics)


def test_linear_weights_are_those_of_least_squares_where_rows_are_many():
    X, y = data("regression", 5000)
    fitted = BASELINES["linear"]("regression", X, y)
    with_one = np.column_stack([X, np.ones(len(X))])
    expected = with_one @ np.linalg.lstsq(with_one, y, rcond=None)[0]
    np.testing.assert_allclose(fitted.predict(X), expected, atol=1e-2)
    np.testing.assert_allclose(fitted.variance, 0.09, rtol=0.1)


def test_linear_model_of_equal_columns_and_few_rows_is_finite():
    X, y = data("count", 12)
    wide = np.column_stack([X] * 10)
    assert np.isfinite(BASELINES["linear"]("count", wide, y).predict(wide)).all()


def test_nll_of_counts_is_that_of_a_poisson_distribution():
    y = np.array([0.0, 3.0])
    baseline = Baseline("count", lambda X: np.full(len(X), 2.0))
    expected = -stats.poisson(2.0).logpmf(y).mean()  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(baseline.scores(np.zeros((2, 1)), y)["nll"], expected)


def test_nll_of_numbers_is_that_of_a_normal_distribution():
    y = np.array([0.0, 3.0])
    scores = gaussian_scores(np.array([1.0, 1.0]), np.array([4.0, 0.25]), y)
    expected = -stats.norm([1, 1], [2, 0.5]).logpdf(y).mean()  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(scores["nll"], expected)
    np.testing.assert_allclose(scores["rmse"], np.sqrt(2.5))
    np.testing.assert_allclose(scores["mae"], 1.5)


def test_trees_need_scikit_learn(monkeypatch):
    monkeypatch.setattr("dlmexp.core.baselines.find_spec", lambda name: None)
    assert available_baselines() == ["mean", "linear"]
