"""Models that a Gaussian process has to beat: the mean, a linear model and boosted trees.

They are fitted to the same rows as the Gaussian process and predict the same targets. Their
predictive distributions are Gaussian for regression (with the variance of the residuals of
cross-validation), Bernoulli for binary data, and Poisson for counts.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, gammaln

Rows = Float[np.ndarray, "N D"]
Targets = Float[np.ndarray, " N"]

FOLDS = 5
"""Number of folds in which a baseline is cross-validated."""
PENALTIES = tuple(10.0 ** np.arange(-3.0, 5.0))
"""Penalties of the squared weights to choose from."""
NEWTON_STEPS = 25
"""The most steps of Newton's method."""
TOLERANCE = 1e-8
"""Newton's method stops when a step lowered the objective by less, relative to its value."""
MIN_STEP_SIZE = 1e-8
"""A Newton step that does not lower the objective is halved until it is this share of itself."""
MAX_LOG_RATE = 30.0
"""Upper bound of the logarithm of a predicted rate."""
MIN_PROBABILITY = 1e-6
"""Lower bound of class probabilities and of rates, which keeps their logarithms finite."""
MIN_VARIANCE = 1e-12
"""Lower bound of predictive variances."""


@dataclass(frozen=True)
class Baseline:
    """A fitted baseline.

    Attributes:
        task: "regression", "binary" or "count".
        predict: The function from rows to predicted means. The mean of a binary target is the
            probability of class 1.
        variance: The variance of a new observation in regression; NaN otherwise.
    """

    task: str
    predict: Callable[[Rows], Targets]
    variance: float = math.nan

    def scores(self, X: Rows, y: Targets) -> dict[str, float]:
        """Return the mean NLL, and RMSE with MAE or, for binary targets, the error rate."""
        mean = self.predict(X)
        if self.task == "regression":
            return gaussian_scores(mean, np.full(len(y), self.variance), y)
        nll = float(np.mean(_losses(self.task, mean, y)))
        if self.task == "binary":
            return {"nll": nll, "error": float(np.mean((mean > 0.5) != (y == 1)))}
        return {"nll": nll, **_rmse_and_mae(mean, y)}


def gaussian_scores(mean: Targets, variance: Targets, y: Targets) -> dict[str, float]:
    """Return the mean NLL under Gaussian predictions, RMSE and MAE."""
    # -log N(y; mean, variance)
    nll = 0.5 * (np.log(2 * math.pi * variance) + (y - mean) ** 2 / variance)
    return {"nll": float(nll.mean()), **_rmse_and_mae(mean, y)}


def _rmse_and_mae(mean: Targets, y: Targets) -> dict[str, float]:
    """Return RMSE and MAE."""
    error = y - mean
    return {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.abs(error).mean())}


def _losses(task: str, mean: Targets, y: Targets) -> Targets:
    """Return the loss of every row: half the squared error, or the NLL of labels or counts."""
    if task == "regression":
        return 0.5 * (y - mean) ** 2
    if task == "binary":
        p = np.clip(mean, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        # -log Bernoulli(y; p)
        return -(y * np.log(p) + (1 - y) * np.log(1 - p))
    rate = np.maximum(mean, MIN_PROBABILITY)
    # -log Poisson(y; rate)
    return rate - y * np.log(rate) + gammaln(y + 1)


def _folds(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to train on and the held-out rows of every fold, drawn at random."""
    order = np.random.default_rng(0).permutation(n)
    for held_out in np.array_split(order, min(FOLDS, n)):
        train = np.setdiff1d(order, held_out, assume_unique=True)
        yield train, held_out


def fit_mean(task: str, X: Rows, y: Targets) -> Baseline:
    """Return the baseline that predicts the mean of the training targets at all rows.

    X is an argument only because the other baselines need it.
    """
    mean = float(y.mean())

    def predict(X: Rows) -> Targets:
        return np.full(len(X), mean)

    return Baseline(task, predict, variance=max(float(y.var()), MIN_VARIANCE))


def fit_linear(task: str, X: Rows, y: Targets) -> Baseline:
    """Return a linear, logistic or Poisson regression; cross-validation chooses the penalty."""
    # 1. The losses on held-out rows by penalty
    losses = np.zeros(len(PENALTIES))
    for train, held_out in _folds(len(y)):
        for k, weights in enumerate(_weights_by_penalty(task, X[train], y[train])):
            mean = _linear_mean(task, X[held_out], weights)
            losses[k] += _losses(task, mean, y[held_out]).sum()
    best = int(np.argmin(losses))
    # 2. The fit to all rows with the best penalty
    weights = _penalised_weights(task, X, y, PENALTIES[best], _initial_weights(task, X, y))
    # In regression a loss is half the squared error, so that this is the mean squared error.
    variance = max(2 * losses[best] / len(y), MIN_VARIANCE)

    def predict(X: Rows) -> Targets:
        return _linear_mean(task, X, weights)

    return Baseline(task, predict, variance)


def _weights_by_penalty(task: str, X: Rows, y: Targets) -> Iterator[np.ndarray]:
    """Yield the weights for every penalty, each fit from the weights of the one before."""
    weights = _initial_weights(task, X, y)
    for penalty in PENALTIES:
        weights = _penalised_weights(task, X, y, penalty, weights)
        yield weights


def _initial_weights(task: str, X: Rows, y: Targets) -> np.ndarray:
    """Return zero weights, with the intercept (the last one) that predicts the mean."""
    weights = np.zeros(X.shape[1] + 1)
    mean = y.mean()
    if task == "binary":
        mean = np.clip(mean, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        weights[-1] = np.log(mean / (1 - mean))
    elif task == "count":
        weights[-1] = np.log(max(mean, MIN_PROBABILITY))
    else:
        weights[-1] = mean
    return weights


def _linear_mean(task: str, X: Rows, weights: np.ndarray) -> Targets:
    """Return the means at rows; the last weight is the intercept."""
    f = X @ weights[:-1] + weights[-1]
    if task == "binary":
        return expit(f)
    if task == "count":
        return np.exp(np.minimum(f, MAX_LOG_RATE))
    return f


def _penalised_weights(
    task: str, X: Rows, y: Targets, penalty: float, initial_weights: np.ndarray
) -> np.ndarray:
    """Return the weights that minimise `sum_i loss_i + penalty / 2 |w|^2`, by damped Newton steps.

    The intercept, which is the last weight, is not penalised.

    Args:
        task: The task, which decides the loss.
        X: Features.
        y: Targets.
        penalty: The weight of the penalty.
        initial_weights: The weights from which the first step starts.
    """
    design = np.column_stack([X, np.ones(len(X))])  # the last column is that of the intercept
    weights = initial_weights
    penalties = np.full(len(weights), penalty)
    penalties[-1] = 0.0

    def objective(weights: np.ndarray) -> float:
        mean = _linear_mean(task, X, weights)
        return _losses(task, mean, y).sum() + 0.5 * (penalties * weights**2).sum()

    value = objective(weights)
    for _ in range(NEWTON_STEPS):
        mean = _linear_mean(task, X, weights)
        # The gradient of a loss in f is mean - y in all three tasks.
        gradient = design.T @ (mean - y) + penalties * weights
        hessian = _hessian(task, design, mean) + np.diag(penalties)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        # Halve the step until it does not raise the objective. `not ... <=` in place of `>`, as an
        # objective that is NaN must be halved too.
        size = 1.0
        while size > MIN_STEP_SIZE and not objective(weights - size * step) <= value:
            size /= 2
        weights = weights - size * step
        last_value = value
        value = objective(weights)
        # The objective of regression is quadratic: one Newton step reaches its minimum.
        if task == "regression" or last_value - value <= TOLERANCE * abs(last_value):
            break
    return weights


def _hessian(task: str, X: Rows, mean: Targets) -> np.ndarray:
    """Return the Hessian of the sum of losses in the weights, X^T diag(curvature) X."""
    if task == "regression":
        return X.T @ X
    # The second derivative of a loss in f.
    curvature = mean * (1 - mean) if task == "binary" else mean
    return X.T @ (X * curvature[:, None])


def fit_trees(task: str, X: Rows, y: Targets) -> Baseline:
    """Return scikit-learn's histogram gradient boosting with its default settings."""

    def new_model() -> Any:
        from sklearn import ensemble

        if task == "binary":
            return ensemble.HistGradientBoostingClassifier(random_state=0)
        loss = "poisson" if task == "count" else "squared_error"
        return ensemble.HistGradientBoostingRegressor(loss=loss, random_state=0)

    def predicted_means(model: Any, X: Rows) -> Targets:
        return model.predict_proba(X)[:, 1] if task == "binary" else model.predict(X)

    variance = math.nan
    if task == "regression":
        squared_error = 0.0
        for train, held_out in _folds(len(y)):
            fold_model = new_model().fit(X[train], y[train])
            residuals = y[held_out] - predicted_means(fold_model, X[held_out])
            squared_error += (residuals**2).sum()
        variance = max(squared_error / len(y), MIN_VARIANCE)
    model = new_model().fit(X, y)

    def predict(X: Rows) -> Targets:
        return predicted_means(model, X)

    return Baseline(task, predict, variance)


BASELINES: dict[str, Callable[[str, Rows, Targets], Baseline]] = {
    "mean": fit_mean,
    "linear": fit_linear,
    "trees": fit_trees,
}
"""Functions that fit a baseline to a task, training rows and targets, by name of the baseline."""


def available_baselines() -> list[str]:
    """Return the names of the baselines that can be fitted: trees need scikit-learn."""
    has_sklearn = find_spec("sklearn") is not None
    return [name for name in BASELINES if name != "trees" or has_sklearn]
