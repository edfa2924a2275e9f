"""Models that a Gaussian process has to beat: the mean, a linear model and boosted trees.

They are fitted to the same rows and predict the same targets. Distributions are Gaussian with the
variance of the residuals in cross-validation, Bernoulli or Poisson.
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
PENALTIES = tuple(10.0 ** np.arange(-3.0, 5.0))
"""Of the squared weights, per data set; the best in cross-validation is taken."""
NEWTON_STEPS = 25
TOLERANCE = 1e-8
MAX_LOG_RATE = 30.0
LEAST_PROBABILITY = 1e-6
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Baseline:
    """A fitted baseline.

    Attributes:
        task: "regression", "binary" or "count".
        predict: From rows to means: of numbers, of the probability of class 1, of counts.
        variance: In regression, that of a new observation.
    """

    task: str
    predict: Callable[[Rows], Targets]
    variance: float = math.nan

    def scores(self, X: Rows, y: Targets) -> dict[str, float]:
        """Return the mean NLL, and RMSE and MAE, or the error rate of binary targets."""
        mean = self.predict(X)
        if self.task == "regression":
            return gaussian_scores(mean, np.full(len(y), self.variance), y)
        nll = float(np.mean(_losses(self.task, mean, y)))
        if self.task == "binary":
            return {"nll": nll, "error": float(np.mean((mean > 0.5) != (y == 1)))}
        return {"nll": nll, **_errors(mean, y)}


def gaussian_scores(mean: Targets, variance: Targets, y: Targets) -> dict[str, float]:
    """Return the mean NLL under Gaussian predictions, RMSE and MAE."""
    # -log N(y; mean, variance)
    nll = 0.5 * (np.log(2 * math.pi * variance) + (y - mean) ** 2 / variance)
    return {"nll": float(nll.mean()), **_errors(mean, y)}


def _errors(mean: Targets, y: Targets) -> dict[str, float]:
    error = y - mean
    return {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.abs(error).mean())}


def _losses(task: str, mean: Targets, y: Targets) -> Targets:
    """Return the loss of every row: half the squared error, or the NLL of labels or counts."""
    if task == "regression":
        return 0.5 * (y - mean) ** 2
    if task == "binary":
        p = np.clip(mean, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        # -log Bernoulli(y; p)
        return -(y * np.log(p) + (1 - y) * np.log(1 - p))
    rate = np.maximum(mean, LEAST_PROBABILITY)
    # -log Poisson(y; rate)
    return rate - y * np.log(rate) + gammaln(y + 1)


def _folds(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to fit and the rows to predict of every fold; rows are in random order."""
    order = np.random.default_rng(0).permutation(n)
    for held_out in np.array_split(order, min(FOLDS, n)):
        fitted = np.setdiff1d(order, held_out, assume_unique=True)
        yield fitted, held_out


def fit_mean(task: str, X: Rows, y: Targets) -> Baseline:
    """Return the mean of the training targets, whatever the features."""
    mean = float(y.mean())
    return Baseline(task, lambda X: np.full(len(X), mean), max(float(y.var()), LEAST_VARIANCE))


def fit_linear(task: str, X: Rows, y: Targets) -> Baseline:
    """Return a linear, logistic or Poisson regression; cross-validation chooses the penalty."""
    losses = np.zeros(len(PENALTIES))
    for fitted, held_out in _folds(len(y)):
        for k, weights in enumerate(_penalised_fits(task, X[fitted], y[fitted])):
            mean = _linear_mean(task, X[held_out], weights)
            losses[k] += _losses(task, mean, y[held_out]).sum()
    best = int(np.argmin(losses))
    weights = _penalised_fit(task, X, y, PENALTIES[best], _start(task, X, y))
    # The loss is half the squared error.
    variance = max(2 * losses[best] / len(y), LEAST_VARIANCE)
    return Baseline(task, lambda X: _linear_mean(task, X, weights), variance)


def _penalised_fits(task: str, X: Rows, y: Targets) -> Iterator[np.ndarray]:
    """Yield the weights for every penalty."""
    weights = _start(task, X, y)
    for penalty in PENALTIES:
        weights = _penalised_fit(task, X, y, penalty, weights)
        yield weights


def _start(task: str, X: Rows, y: Targets) -> np.ndarray:
    """Return weights 0 with the intercept of the mean."""
    weights = np.zeros(X.shape[1] + 1)
    mean = y.mean()
    if task == "binary":
        mean = np.clip(mean, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        weights[-1] = np.log(mean / (1 - mean))
    elif task == "count":
        weights[-1] = np.log(max(mean, LEAST_PROBABILITY))
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


def _penalised_fit(
    task: str, X: Rows, y: Targets, penalty: float, weights: np.ndarray
) -> np.ndarray:
    """Return the weights that minimise `sum_i loss_i + penalty / 2 |w|^2`, by damped Newton steps.

    Args:
        task: Decides the loss.
        X: Features.
        y: Targets.
        penalty: Not of the intercept, which is the last weight.
        weights: Where the steps start.
    """
    design = np.column_stack([X, np.ones(len(X))])  # the last column is that of the intercept
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
        # Halve the step until it lowers the objective, which may be NaN.
        size = 1.0
        while size > TOLERANCE and not objective(weights - size * step) <= value:
            size /= 2
        weights = weights - size * step
        before = value
        value = objective(weights)
        if task == "regression" or before - value <= TOLERANCE * abs(before):
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
    """Return scikit-learn's histogram gradient boosting with its own settings."""

    def model() -> Any:
        from sklearn import ensemble

        if task == "binary":
            return ensemble.HistGradientBoostingClassifier(random_state=0)
        loss = "poisson" if task == "count" else "squared_error"
        return ensemble.HistGradientBoostingRegressor(loss=loss, random_state=0)

    def means(fitted: Any, X: Rows) -> Targets:
        return fitted.predict_proba(X)[:, 1] if task == "binary" else fitted.predict(X)

    variance = math.nan
    if task == "regression":
        squares = 0.0
        for rows, held_out in _folds(len(y)):
            fold = model().fit(X[rows], y[rows])
            squares += ((y[held_out] - means(fold, X[held_out])) ** 2).sum()
        variance = max(squares / len(y), LEAST_VARIANCE)
    fitted = model().fit(X, y)
    return Baseline(task, lambda X: means(fitted, X), variance)


BASELINES: dict[str, Callable[[str, Rows, Targets], Baseline]] = {
    "mean": fit_mean,
    "linear": fit_linear,
    "trees": fit_trees,
}
"""Functions of task, training rows and targets, by name."""


def available_baselines() -> list[str]:
    """Return the baselines that can be fitted here: boosted trees need scikit-learn."""
    has_sklearn = find_spec("sklearn") is not None
    return [name for name in BASELINES if name != "trees" or has_sklearn]
