"""Estimators in the style of scikit-learn (`pip install dlmexp[sklearn]`).

Sparse Gaussian processes trained by direct loss minimisation, or by the ELBO.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import issparse

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
except ImportError as error:
    raise ImportError(
        "these estimators need scikit-learn 1.6 or later: pip install 'dlmexp[sklearn]'"
    ) from error

from dlmexp.common.catalogue import entries
from dlmexp.common.errors import UserError
from dlmexp.core.cross_validation import cross_validate
from dlmexp.core.device import DEVICES
from dlmexp.core.fit import Fit, fit
from dlmexp.core.folds import FOLDS, HOLDOUT_FROM_ROWS, LOO
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.gp.mixed_kernels import kernel_parts, with_categories
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.prediction import Prediction
from dlmexp.core.training.model import Model
from dlmexp.core.training.settings import Settings
from dlmexp.data.config import CsvConfig
from dlmexp.data.dataset import MAX_ABS_VALUE
from dlmexp.data.schema import Schema
from dlmexp.data.splits import (
    Normalisation,
    Prepared,
    Split,
    max_inducing_count,
    normalise_split,
)
from dlmexp.data.values import plain_values

KERNELS = {"matern": "matern52"}
"""Other names of kernels."""
DECAY = 100
"""The learning rate ends at its DECAY-th part."""
AUTO = "auto"
STATIONARY = ("rbf", "matern32", "matern52")
"""Kernels whose lengthscales start at the square root of the number of features."""
SHARE = 0.1
"""Of many rows, what is held out in place of folds."""
SMALLEST = np.finfo(float).tiny
MAX_DENSE_ENTRIES = 200_000_000
"""Of a sparse matrix, which becomes an array (1.6 GB)."""
COUNT_OR_NONE = "a whole number > 0, or None"
COUNT_OR_AUTO = "a whole number > 0, None or 'auto'"
COUNT = "a whole number > 0"
COUNT_OR_COUNTS = f"{COUNT}, or a list of them"


class InvalidParameter(ValueError, TypeError):  # noqa: N818 - public since 0.3
    """A parameter that can't be used; the message names it and says what to give."""


class SparseGP(BaseEstimator):
    """The parameters and the training of all three estimators.

    Beta, the weight of the KL term, is selected by cross-validation, or with many rows on a share
    of them; all folds and betas train as one batch. Then the model is trained on all rows. The
    estimators follow the conventions of scikit-learn (`get_params`, `clone`, pipelines,
    cross-validation) and pass its checks. The defaults are those of `dlmexp run dataset=csv`.

    X may be a DataFrame with categories: columns of dtype category, string, or object with texts.
    Each has a factor of the kernel of its own; a level that training has not seen is predicted on
    from the other columns. A sparse matrix becomes an array. Weights of rows are refused.

    Args:
        objective: "log_dlm" (the log loss of predictions), "elbo", or, for `DLMRegressor`, "sq_dlm"
            (the square loss; then there is no standard deviation).
        betas: A weight, or several to choose from; None: 100, 10, 1, 0.1. Where there is nothing to
            choose, no rows are held out.
        cv: The number of folds, or the share of the rows that is held out once; None: 5 folds of
            fewer than 2000 rows, otherwise a share of 0.1. "loo": each row in closed form, for
            `DLMRegressor` with "elbo" or "sq_dlm".
        n_components: Number of Gaussians that the posterior is a mixture of (for "log_dlm"), or
            several to choose from, such as [1, 2, 8].
        n_inducing: Number of inducing inputs, at most the number of rows trained on; None: 200;
            "auto": the least number up to 200 that leaves little to gain (Gaussian noise).
        kernel: "rbf", "matern32", "matern52" ("matern"), each also with a linear term, such as
            "matern52+linear"; or the path of a GPyTorch kernel class.
        ard: One lengthscale per feature.
        learning_rate: Of Adam at the start; it decays to a hundredth. None: 0.1, or 0.05 of
            `DLMRegressor`, where Adam starts from a short fit of the ELBO.
        max_iter: The number of iterations of Adam; None: 300, or 150 of `DLMRegressor`. With "elbo"
            and "sq_dlm" `DLMRegressor` takes as many evaluations of L-BFGS at most.
        tol: `ConvergenceWarning` says when the objective per row changed by more than this over the
            last `window` iterations. It says nothing of minibatches, whose objectives differ.
        window: See `tol`.
        batch_size: Rows of a step, of more rows than that; None: all. A step sees all rows where
            the objective has a closed form over q.
        random_state: Of the folds, the initial inducing inputs and the minibatches.
        device: "auto", "cpu" or "cuda".

    Attributes:
        beta_: The selected beta.
        n_components_: The selected number of Gaussians.
        validation_scores_: NLL (MSE for square loss) on held-out rows by beta, on normalised
            targets; by pair (beta, components) where `n_components` has several numbers. Empty
            where there was nothing to select.
        n_iter_: Iterations until training stopped.
        model_: The trained model with its posterior and hyperparameters, a `dlmexp.Fit`.
        normalisation_: Mean and standard deviation of every feature, which are normalised before
            training and prediction.
        schema_: Where X was a DataFrame with categories, its columns; otherwise None.
        target_mean_: What is subtracted from the targets before training; 0 unless in regression.
        target_std_: What they are divided by; 1 unless in regression.
    """

    task: ClassVar[str]
    likelihood_name: ClassVar[str]
    prior_mean: ClassVar[str] = "constant"
    usual_learning_rate: ClassVar[float] = 0.1
    usual_iterations: ClassVar[int] = 300
    pilot: ClassVar[int] = 0
    """Evaluations of the ELBO at whose end training starts."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Add the parameters to the docstring of an estimator, for `help`."""
        super().__init_subclass__(**options)
        if cls.__doc__:
            _, _, parameters = (SparseGP.__doc__ or "").partition("\n")
            cls.__doc__ = f"{cls.__doc__}\n{parameters}"

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from the signature
        self,
        objective: str = "log_dlm",
        betas: float | Sequence[float] | None = None,
        cv: int | float | str | None = None,
        n_components: int | Sequence[int] = 1,
        n_inducing: int | str | None = None,
        kernel: str = "matern52+linear",
        ard: bool = True,
        learning_rate: float | None = None,
        max_iter: int | None = None,
        tol: float = 2e-3,
        window: int = 20,
        batch_size: int | None = 1000,
        random_state: Any = None,
        device: str = "auto",
    ):
        self.objective = objective
        self.betas = betas
        self.cv = cv
        self.n_components = n_components
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.ard = ard
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.window = window
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Select beta, and train on all rows.

        Args:
            X: Rows [n, features]: numbers, or a DataFrame of numbers and categories.
            y: Targets [n]: numbers, counts that are not negative, or labels of two classes (numbers
                or texts).

        Raises:
            ValueError: A parameter or the data can't be used, or training failed.
        """
        X, y = self._checked_rows(X, y)
        y = self._targets(np.asarray(y))
        _check_sizes("X", X)
        _check_sizes("y", y)
        if len(y) < 2:
            raise ValueError(f"n_samples={len(y)}: a model needs at least 2 rows")
        self._check_parameters()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        no_rows = np.arange(0)
        all_for_training = Split(np.arange(len(y)), no_rows, no_rows)
        indicators = sum(self._categories)
        rows = normalise_split(X, y, self.task, all_for_training, indicators)

        trained, scores = self._trained(rows, seed)
        if trained.failed:
            raise ValueError(f"training failed: {trained.stopped}")
        if trained.stopped == "limit" and self._minibatches(len(y)) is None:
            warnings.warn(
                f"max_iter={self._iterations}: the objective still changes by more than "
                f"tol={self.tol:g}; give more",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.model_: Fit = trained
        self.normalisation_: Normalisation = rows.features
        self.target_mean_: float = rows.y_mean
        self.target_std_: float = rows.y_std
        self.beta_ = trained.beta
        self.n_components_ = trained.model.components
        self.validation_scores_ = scores
        self.n_iter_ = max(1, trained.iterations)
        return self

    def _checked_rows(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and targets for training; set `schema_`."""
        X = _dense(X)
        is_number = self.task != "binary"
        categories = category_columns(X)
        self.schema_ = None
        if not categories:
            rows: Any = validate_data(self, X, y, dtype=np.float64, y_numeric=is_number)
            return rows
        validate_data(self, X, skip_check_array=True)
        self.schema_ = schema_of_frame(X, categories)
        rows = check_X_y(self._encoded(X), y, y_numeric=is_number)
        return rows

    def _encoded(self, frame: Any) -> np.ndarray:
        """Return the features of a DataFrame with categories."""
        assert self.schema_ is not None
        try:
            return self.schema_.encode(frame, first=0, unseen="base")
        except UserError as error:
            raise ValueError(str(error)) from None

    @property
    def _categories(self) -> tuple[int, ...]:
        """Return the number of indicators of each category."""
        return self.schema_.categories if self.schema_ else ()

    def _model(self, n: int, components: int) -> Model:
        """Return the model of n rows."""
        M = self.n_inducing
        if M != AUTO:
            M = min(int(M or max_inducing_count(n)), n)
        kernel = KERNELS.get(self.kernel, self.kernel)
        return Model(
            kernel=with_categories(kernel, self._categories),
            likelihood=self.likelihood_name,
            M=M,
            learns_mean=self.prior_mean == "constant",
            ard=self.ard,
            initial={"lengthscale": "sqrt"} if kernel_parts(kernel)[0] in STATIONARY else {},
            inducing="kmeans",
            components=components,
            pilot=min(self.pilot, self._iterations),
        )

    def _trained(self, rows: Prepared, seed: int) -> tuple[Fit, dict[Any, float]]:
        """Return the selected model, trained on all rows, and the scores of all candidates."""
        betas = sorted({float(beta) for beta in listed(self._betas)}, reverse=True)
        components = sorted(set(listed(self.n_components)))
        X = rows.X_train
        y = rows.y_train
        n = len(y)
        model = self._model(n, components[0])
        options = {
            "settings": self._settings(),
            "minibatches": self._minibatches(n),
            "device": self.device,
        }
        try:
            if len(betas) == 1 and len(components) == 1:
                (trained,) = fit(X, y, model, self.objective, betas, seed, **options)
                return trained, {}
            selection = cross_validate(
                X,
                y,
                model,
                self.objective,
                betas,
                seed,
                cv=self._folds(n),
                components=components,
                **options,
            )
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        if len(components) > 1:
            scores = {tuple(candidate): loss for candidate, loss in selection.losses.items()}
        else:
            scores = {candidate.beta: loss for candidate, loss in selection.losses.items()}
        return selection.fit, scores

    def _folds(self, n: int) -> int | float | str:
        """Return the number of folds, or the share of rows to hold out."""
        if self.cv is not None:
            return self.cv
        return min(FOLDS, n) if n < HOLDOUT_FROM_ROWS else SHARE

    def _settings(self) -> Settings:
        """Return how a model is trained."""
        if self._is_closed:
            return Settings(
                optimizer="lbfgs",
                iterations=self._iterations,
                tolerance=self.tol,
                calibration=False,
            )
        lr = self.usual_learning_rate if self.learning_rate is None else self.learning_rate
        window = min(self.window, self._iterations)
        decay = self._iterations - window or None
        return Settings(
            lr=lr,
            iterations=self._iterations,
            window=window,
            tolerance=self.tol,
            final_lr=lr / DECAY if decay else None,
            decay=decay,
            calibration=False,
        )

    @property
    def _iterations(self) -> int:
        """Return the number of iterations of Adam, or the most evaluations of L-BFGS."""
        return self.usual_iterations if self.max_iter is None else self.max_iter

    @property
    def _is_closed(self) -> bool:
        """Return whether the objective has a closed form over q."""
        return OBJECTIVES[self.objective].collapses(LIKELIHOODS[self.likelihood_name])

    def _minibatches(self, n: int) -> int | None:
        """Return the rows of a step; None: all, as for a closed form over q."""
        if not self.batch_size or self.batch_size >= n or self._is_closed:
            return None
        return self.batch_size

    @property
    def _betas(self) -> Any:
        """Return the beta or the betas to select from."""
        return entries("beta")["own"]["values"] if self.betas is None else self.betas

    def _check_parameters(self) -> None:
        """Check all parameters.

        Raises:
            InvalidParameter: One of them can't be used.
        """
        objectives = self._objectives()
        device = str(self.device).partition(":")[0]
        self._check("objective", self.objective in objectives, f"one of {', '.join(objectives)}")
        self._check("betas", all_are(is_number, self._betas), "a number >= 0, or a list of them")
        self._check("n_components", all_are(is_count, self.n_components), COUNT_OR_COUNTS)
        self._check("cv", is_cv(self.cv), "a number of folds, a share of the rows, or 'loo'")
        valid_rate = self.learning_rate is None or is_number(self.learning_rate, SMALLEST)
        self._check("learning_rate", valid_rate, "a number > 0, or None")
        self._check("tol", is_number(self.tol), "a number >= 0")
        self._check("device", device in DEVICES, f"one of {', '.join(DEVICES)}")
        self._check("batch_size", is_count_or_none(self.batch_size), COUNT_OR_NONE)
        self._check_n_inducing()
        self._check("max_iter", is_count_or_none(self.max_iter), COUNT_OR_NONE)
        self._check("window", is_count(self.window), COUNT)
        self._check_kernel()

    def _objectives(self) -> list[str]:
        """Return the objectives that have a beta and fit the likelihood."""
        likelihood = LIKELIHOODS[self.likelihood_name]
        with_beta = [name for name in OBJECTIVES if OBJECTIVES[name].has_beta]
        return [name for name in with_beta if OBJECTIVES[name].fits(likelihood)]

    def _check(self, name: str, is_valid: bool, advice: str) -> None:
        if not is_valid:
            raise InvalidParameter(f"{name}={getattr(self, name)!r}: give {advice}")

    def _check_n_inducing(self) -> None:
        """Raise InvalidParameter if it can't be used; `auto` needs Gaussian noise."""
        M = self.n_inducing
        if LIKELIHOODS[self.likelihood_name].conjugate:
            is_auto = isinstance(M, str) and M == AUTO
            self._check("n_inducing", is_auto or is_count_or_none(M), COUNT_OR_AUTO)
        else:
            self._check("n_inducing", is_count_or_none(M), COUNT_OR_NONE)

    def _check_kernel(self) -> None:
        name = str(self.kernel)
        try:
            kernel_named(KERNELS.get(name, name), may_import=True)
        except UserError as error:
            raise InvalidParameter(f"kernel={self.kernel!r}: {error}") from None

    def _targets(self, y: np.ndarray) -> Float[np.ndarray, " n"]:
        """Return checked targets as numbers, or as 0 and 1."""
        return y.astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _prediction(self, X: Any) -> Prediction:
        """Return the predictions on rows, of normalised targets."""
        check_is_fitted(self)
        X = _dense(X)
        if self.schema_ is None:
            X = validate_data(self, X, reset=False, dtype=np.float64)
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
            X = self._encoded(X)
        rows = self.normalisation_.apply(np.array(X))
        return self.model_.predict(rows, device=self.device)


def _dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and other inputs as they are.

    Raises:
        ValueError: The array would be too large.
    """
    if not issparse(X):
        return X
    entries = math.prod(X.shape)
    if entries > MAX_DENSE_ENTRIES:
        raise ValueError(
            f"X is sparse and would have {entries} entries as an array: reduce its features, for "
            "example by TruncatedSVD"
        )
    return X.toarray()


def category_columns(X: Any) -> list[str]:
    """Return the names of those columns of a DataFrame that are categories, by their types."""
    if not isinstance(X, pd.DataFrame):
        return []
    return [str(name) for name in X.columns if _is_category(X[name])]


def _is_category(column: Any) -> bool:
    """Return whether a column of a DataFrame holds categories or texts."""
    if isinstance(column, pd.DataFrame):  # several columns have this name
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    if not (pd.api.types.is_string_dtype(column) or column.dtype == object):
        return False
    return any(isinstance(value, str) for value in column)


def schema_of_frame(frame: Any, categories: list[str]) -> Schema:
    """Return the columns of a DataFrame as a schema.

    Raises:
        ValueError: a column can't be used.
    """
    names = [str(name) for name in frame.columns]
    values = {}
    try:
        for position, name in enumerate(names):
            values[name] = plain_values(name, frame.iloc[:, position], "X")
    except UserError as error:
        raise ValueError(str(error)) from None
    target = "y" if "y" not in names else "the target"
    options = CsvConfig(target=target, categories=categories)
    schema, _ = Schema.fit(values, names, "regression", options)
    return schema


def _check_sizes(name: str, values: np.ndarray) -> None:
    """Raise `ValueError` for values whose squares would overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest >= MAX_ABS_VALUE:
        raise ValueError(
            f"{name} has values up to {largest:.3g}: choose larger units, so that they are below "
            f"{MAX_ABS_VALUE:g}"
        )


def is_number(value: Any, least: float = 0, below: float = math.inf) -> bool:
    """Return whether it is a number of [least, below)."""
    return isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) < below


def is_count(value: Any) -> bool:
    """Return whether it is a whole number > 0."""
    return isinstance(value, Integral) and is_number(value, 1)


def is_count_or_none(value: Any) -> bool:
    """Return whether it is None or a whole number > 0."""
    return value is None or is_count(value)


def is_cv(value: Any) -> bool:
    """Return whether it says how beta is selected: a number of folds, a share, "loo" or None."""
    return is_count_or_none(value) or value == LOO or is_number(value, SMALLEST, 1)


def all_are(check: Callable[[Any], bool], values: Any) -> bool:
    """Return whether one value, or each of several, passes a check."""
    checked = [check(value) for value in listed(values)]
    return len(checked) > 0 and all(checked)


def listed(values: Any) -> list[Any]:
    """Return one value or several as a list."""
    return list(values) if np.iterable(values) else [values]


class WithIntervals(RegressorMixin, SparseGP):
    """Predictions of numbers: of both regressors."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the means [n] at rows X [n, features], in the units of the training targets.

        Args:
            X: Rows.
            return_std: Return a pair: the means, and the standard deviations of a new observation.

        Raises:
            ValueError: Square loss has no standard deviation.
        """
        prediction = self._prediction(X)
        mean = self._unnormalised(prediction.mean)
        if not return_std:
            return mean
        if prediction.variance is None:
            raise ValueError("square loss predicts a mean only: there is no std")
        return mean, np.sqrt(prediction.variance) * self.target_std_

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends, lower [n] and upper [n], of the central 95 % interval at every row of X.

        It is that of a new observation. Counts include both ends.

        Raises:
            ValueError: Square loss has no intervals.
        """
        prediction = self._prediction(X)
        if prediction.lower is None or prediction.upper is None:
            raise ValueError("square loss predicts a mean only: there is no lower_95")
        return self._end(prediction.lower), self._end(prediction.upper)

    def _end(self, values: np.ndarray) -> np.ndarray:
        """Return an end of an interval in the units of the targets."""
        return self._unnormalised(values)

    def _unnormalised(self, values: np.ndarray) -> np.ndarray:
        return values * self.target_std_ + self.target_mean_


class DLMRegressor(WithIntervals):
    """Regression with Gaussian noise by a sparse Gaussian process.

    Example:
        ```python
        from dlmexp import DLMRegressor

        model = DLMRegressor(n_inducing=100).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)
        ```
    """

    task = "regression"
    likelihood_name = "gaussian"
    prior_mean = "zero"  # of normalised targets
    usual_learning_rate = 0.05
    usual_iterations = 150
    pilot = 60


class DLMCountRegressor(WithIntervals):
    """Counts: y ~ Poisson(exp(f)) with a sparse Gaussian process f.

    Example:
        ```python
        from dlmexp import DLMCountRegressor

        model = DLMCountRegressor(n_inducing=100).fit(X, counts)
        lower, upper = model.predict_interval(X_new)
        ```
    """

    task = "count"
    likelihood_name = "poisson"

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D^2, the share of the Poisson deviance of counts y [n] that is explained.

        It is scikit-learn's `d2_tweedie_score` with power 1.
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _targets(self, y: np.ndarray) -> np.ndarray:
        if (y < 0).any():
            raise ValueError(
                f"y has negative values (such as {y.min():g}): counts are 0, 1, 2, ..."
            )
        return super()._targets(y)

    def _end(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class DLMClassifier(ClassifierMixin, SparseGP):
    """Two classes by a sparse Gaussian process with the probit link.

    Example:
        ```python
        from dlmexp import DLMClassifier

        model = DLMClassifier(n_inducing=100).fit(X, labels)
        model.predict_proba(X_new)[:, 1]
        ```
    """

    task = "binary"
    likelihood_name = "probit"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities [n, 2] of both classes, in the order of `classes_`."""
        second = self._prediction(X).mean
        return np.column_stack([1 - second, second])

    def predict(self, X: Any) -> np.ndarray:
        """Return the more probable class [n] at every row of X [n, features]."""
        # First the probabilities: they raise scikit-learn's error where nothing is fitted yet.
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def _targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class only ({self.classes_[0]}): a classifier needs two")
        return codes.astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
