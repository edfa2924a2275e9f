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
from dlmexp.core.folds import DEFAULT_FOLD_COUNT, HOLDOUT_FROM_ROWS, LOO
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
    MAX_INDUCING,
    Normalisation,
    Prepared,
    Split,
    inducing_count_of_user_table,
    normalise_split,
)
from dlmexp.data.values import plain_values

KERNEL_ALIASES = {"matern": "matern52"}
"""The full names of kernels by their short names."""
LEARNING_RATE_RATIO = 100
"""The learning rate at the start, divided by that at the end."""
AUTO = "auto"
STATIONARY = ("rbf", "matern32", "matern52")
"""Kernels whose lengthscales start at the square root of the number of features."""
HELD_OUT_SHARE = 0.1
"""The share of the rows that selects beta, where the rows are too many for folds."""
SMALLEST_POSITIVE = np.finfo(float).tiny
MAX_DENSE_ENTRIES = 200_000_000
"""The largest array that a sparse matrix may become; it takes 1.6 GB."""

# What messages say about the valid values of parameters.
COUNT = "a whole number > 0"
COUNT_OR_NONE = f"{COUNT}, or None"
COUNT_OR_AUTO = f"{COUNT}, None or 'auto'"
COUNT_OR_COUNTS = f"{COUNT}, or a list of them"


class InvalidParameter(ValueError, TypeError):  # noqa: N818 - public since 0.3
    """A parameter that can't be used; the message names it and says what to give.

    Callers may catch it as a ValueError or as a TypeError.
    """


class SparseGP(BaseEstimator):
    """The parameters and the training of all three estimators.

    Beta, the weight of the KL term, is selected by cross-validation, or, if there are many rows, on
    a share of them; all folds and betas train as one batch. Then the model is trained on all rows.
    The estimators follow the conventions of scikit-learn (`get_params`, `clone`, pipelines,
    cross-validation) and pass its checks. The defaults are those of `dlmexp run dataset=csv`.

    X may be a DataFrame with categories: columns of dtype category, string, or object with texts.
    The kernel has a factor for each category. At a level that training has not seen, predictions
    come from the other columns. A sparse matrix becomes an array. Weights of rows are refused.

    Args:
        objective: "log_dlm" (the log loss of predictions), "elbo", or, for `DLMRegressor`, "sq_dlm"
            (the square loss; then there is no standard deviation).
        betas: The weight of the KL term, or several to choose from; None: 100, 10, 1, 0.1. With a
            single weight nothing is selected, and no rows are held out.
        cv: The number of folds, or the share of the rows that is held out once; None: 5 folds if
            there are fewer than 2000 rows, otherwise a share of 0.1. "loo": each row is held out,
            in closed form, for `DLMRegressor` with "elbo" or "sq_dlm".
        n_components: Number of Gaussians that the posterior is a mixture of (for "log_dlm"), or
            several to choose from, such as [1, 2, 8].
        n_inducing: Number of inducing inputs, at most the number of rows trained on. None: 200.
            From 400 to 2000 rows, where more cost little, the final model has up to 341, but models
            of folds still have 200. "auto", for `DLMRegressor`: the smallest number up to 200
            beyond which there is little to gain.
        kernel: "rbf", "matern32", "matern52" ("matern"), each also with a linear term, such as
            "matern52+linear"; or the path of a GPyTorch kernel class.
        ard: Whether each feature has a lengthscale of its own.
        learning_rate: The learning rate of Adam at the start; it decays to a hundredth. None: 0.1,
            or 0.05 for `DLMRegressor`, where Adam starts from a short fit of the ELBO.
        max_iter: The number of iterations of Adam; None: 300, or 150 for `DLMRegressor`. With
            "elbo" and "sq_dlm", `DLMRegressor` uses L-BFGS with at most this many evaluations.
        tol: A `ConvergenceWarning` is raised if the objective per row changed by more than this
            over the last `window` iterations. There is none with minibatches, since each has
            another objective.
        window: The number of iterations over which the change of the objective is compared with
            `tol`.
        batch_size: The number of rows of a step, if there are more rows; None: all. Objectives with
            a closed form over q take all rows at every step.
        random_state: The seed of the folds, the initial inducing inputs and the minibatches.
        device: "auto", "cpu" or "cuda".

    Attributes:
        beta_: The selected beta.
        n_components_: The selected number of Gaussians.
        validation_scores_: NLL (MSE for square loss) on held-out rows and normalised targets, by
            beta; by pair (beta, components) if `n_components` has several numbers. Empty if there
            was nothing to select.
        n_iter_: Iterations until training stopped.
        model_: The trained model with its posterior and hyperparameters, a `dlmexp.Fit`.
        normalisation_: Mean and standard deviation of every feature. Features are normalised with
            them before training and prediction.
        schema_: The columns of X if it was a DataFrame with categories; otherwise None.
        target_mean_: The mean that is subtracted from the targets before training; 0 except in
            regression.
        target_std_: The standard deviation by which the targets are then divided; 1 except in
            regression.
    """

    task: ClassVar[str]
    likelihood_name: ClassVar[str]
    prior_mean: ClassVar[str] = "constant"
    usual_learning_rate: ClassVar[float] = 0.1
    usual_iterations: ClassVar[int] = 300
    pilot: ClassVar[int] = 0
    """Evaluations of L-BFGS on the ELBO that come before training; 0: none."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Add the parameters, documented here, to the docstring of an estimator for `help`."""
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
        y = self._checked_targets(np.asarray(y))
        _check_magnitude("X", X)
        _check_magnitude("y", y)
        if len(y) < 2:
            raise ValueError(f"n_samples={len(y)}: a model needs at least 2 rows")
        self._check_parameters()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        no_rows = np.arange(0)
        all_for_training = Split(train=np.arange(len(y)), validation=no_rows, test=no_rows)
        indicators = sum(self._indicator_counts)
        rows = normalise_split(X, y, self.task, all_for_training, indicators)

        trained, scores = self._select_and_train(rows, seed)
        if trained.failed:
            raise ValueError(f"training failed: {trained.stopped}")
        has_minibatches = self._minibatch_rows(len(y)) is not None
        if trained.stopped == "limit" and not has_minibatches:
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
        self.n_iter_ = max(1, trained.iterations)  # the checks of scikit-learn require 1 or more
        return self

    def _checked_rows(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and targets for training; set `schema_`."""
        X = _as_dense(X)
        has_numeric_target = self.task != "binary"
        categories = category_columns(X)
        self.schema_ = None
        if not categories:
            rows: Any = validate_data(self, X, y, dtype=np.float64, y_numeric=has_numeric_target)
            return rows
        # This sets `n_features_in_` and `feature_names_in_`; texts can't be checked as an array.
        validate_data(self, X, skip_check_array=True)
        self.schema_ = schema_of_frame(X, categories)
        return check_X_y(self._encoded(X, self.schema_), y, y_numeric=has_numeric_target)

    def _encoded(self, frame: Any, schema: Schema) -> np.ndarray:
        """Return the features of a DataFrame with categories."""
        try:
            # Messages number rows from 0, as pandas does. With "base", levels that training has not
            # seen are accepted: predictions come from the other columns.
            return schema.encode(frame, first=0, unseen="base")
        except UserError as error:
            raise ValueError(str(error)) from None

    @property
    def _indicator_counts(self) -> tuple[int, ...]:
        """The number of indicator features of each category."""
        return self.schema_.categories if self.schema_ else ()

    def _model(self, n: int, components: int) -> Model:
        """Return the model of n rows, with a number of components of q."""
        M = self.n_inducing
        if M != AUTO:
            M = min(int(M or inducing_count_of_user_table(n)), n)
        kernel = KERNEL_ALIASES.get(self.kernel, self.kernel)
        # such as "matern52" of "matern52+linear"
        kernel_of_numeric_features, _, _ = kernel_parts(kernel)
        is_stationary = kernel_of_numeric_features in STATIONARY
        initial = {"lengthscale": "sqrt"} if is_stationary else {}
        return Model(
            kernel=with_categories(kernel, self._indicator_counts),
            likelihood=self.likelihood_name,
            M=M,
            learns_mean=self.prior_mean == "constant",
            ard=self.ard,
            initial=initial,
            inducing="kmeans",
            components=components,
            pilot=min(self.pilot, self._iterations),
        )

    def _select_and_train(self, rows: Prepared, seed: int) -> tuple[Fit, dict[Any, float]]:
        """Return the selected model, trained on all rows, and the scores of all candidates."""
        betas = sorted({float(beta) for beta in as_list(self._betas)}, reverse=True)
        components = sorted(set(as_list(self.n_components)))
        n = len(rows.y_train)
        # `cross_validate` replaces the number of components in the model by each of `components`.
        options: dict[str, Any] = {
            "X": rows.X_train,
            "y": rows.y_train,
            "model": self._model(n, components[0]),
            "objective": self.objective,
            "betas": betas,
            "settings": self._settings(),
            "minibatches": self._minibatch_rows(n),
            "device": self.device,
        }
        try:
            if len(betas) == 1 and len(components) == 1:
                (trained,) = fit(seeds=seed, **options)
                return trained, {}
            selection = cross_validate(
                seed=seed,
                cv=self._folds(n),
                components=components,
                M_in_folds=None if self.n_inducing else MAX_INDUCING,
                **options,
            )
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        scores: dict[Any, float] = {}
        for candidate, loss in selection.losses.items():
            key = tuple(candidate) if len(components) > 1 else candidate.beta
            scores[key] = loss
        return selection.fit, scores

    def _folds(self, n: int) -> int | float | str:
        """Return the number of folds, or the share of rows to hold out."""
        if self.cv is not None:
            return self.cv
        return min(DEFAULT_FOLD_COUNT, n) if n < HOLDOUT_FROM_ROWS else HELD_OUT_SHARE

    def _settings(self) -> Settings:
        """Return the settings of training: L-BFGS for closed forms over q, Adam for the others."""
        if self._has_closed_form:
            return Settings(
                optimizer="lbfgs",
                iterations=self._iterations,
                tolerance=self.tol,
                calibration=False,
            )
        lr = self.usual_learning_rate if self.learning_rate is None else self.learning_rate
        window = min(self.window, self._iterations)
        # The learning rate is constant in the last window, over which the change is measured.
        iterations_before_window = self._iterations - window
        # None: if the window has all iterations, the learning rate never decays.
        decay = iterations_before_window or None
        return Settings(
            lr=lr,
            iterations=self._iterations,
            window=window,
            tolerance=self.tol,
            final_lr=lr / LEARNING_RATE_RATIO if decay else None,
            decay=decay,
            calibration=False,
        )

    @property
    def _iterations(self) -> int:
        """The number of iterations of Adam, or the largest number of evaluations of L-BFGS."""
        return self.usual_iterations if self.max_iter is None else self.max_iter

    @property
    def _has_closed_form(self) -> bool:
        """Whether the objective has a closed form over q."""
        return OBJECTIVES[self.objective].collapses(LIKELIHOODS[self.likelihood_name])

    def _minibatch_rows(self, n: int) -> int | None:
        """Return the number of rows of a step; None: all, as for a closed form over q."""
        if not self.batch_size or self.batch_size >= n or self._has_closed_form:
            return None
        return self.batch_size

    @property
    def _betas(self) -> Any:
        """The beta or the betas to select from; the default is that of users' own tables."""
        return entries("beta")["own"]["values"] if self.betas is None else self.betas

    def _check_parameters(self) -> None:
        """Check all parameters.

        Raises:
            InvalidParameter: A parameter can't be used.
        """
        objectives = self._objectives()
        device, _, _ = str(self.device).partition(":")  # "cuda" of "cuda:1"
        self._check("objective", self.objective in objectives, f"one of {', '.join(objectives)}")
        self._check("betas", all_are(is_number, self._betas), "a number >= 0, or a list of them")
        self._check("n_components", all_are(is_count, self.n_components), COUNT_OR_COUNTS)
        self._check("cv", is_cv(self.cv), "a number of folds, a share of the rows, or 'loo'")
        rate = self.learning_rate
        is_valid_rate = rate is None or is_number(rate, at_least=SMALLEST_POSITIVE)
        self._check("learning_rate", is_valid_rate, "a number > 0, or None")
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
        """Raise InvalidParameter about the parameter `name` unless its value is valid."""
        if not is_valid:
            raise InvalidParameter(f"{name}={getattr(self, name)!r}: give {advice}")

    def _check_n_inducing(self) -> None:
        """Raise InvalidParameter if `n_inducing` can't be used; "auto" needs Gaussian noise."""
        M = self.n_inducing
        if LIKELIHOODS[self.likelihood_name].conjugate:
            is_auto = isinstance(M, str) and M == AUTO
            self._check("n_inducing", is_auto or is_count_or_none(M), COUNT_OR_AUTO)
        else:
            self._check("n_inducing", is_count_or_none(M), COUNT_OR_NONE)

    def _check_kernel(self) -> None:
        name = str(self.kernel)
        try:
            kernel_named(KERNEL_ALIASES.get(name, name), may_import=True)
        except UserError as error:
            raise InvalidParameter(f"kernel={self.kernel!r}: {error}") from None

    def _checked_targets(self, y: np.ndarray) -> Float[np.ndarray, " n"]:
        """Return targets as numbers, labels as 0 and 1; raise ValueError if they can't be used."""
        return y.astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _prediction(self, X: Any) -> Prediction:
        """Return the predictions of normalised targets at rows X."""
        check_is_fitted(self)
        X = _as_dense(X)
        if self.schema_ is None:
            X = validate_data(self, X, reset=False, dtype=np.float64)
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
            X = self._encoded(X, self.schema_)
        rows = self.normalisation_.apply(np.array(X))
        return self.model_.predict(rows, device=self.device)


def _as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and other inputs as they are.

    Raises:
        ValueError: The array would be too large.
    """
    if not issparse(X):
        return X
    entry_count = math.prod(X.shape)
    if entry_count > MAX_DENSE_ENTRIES:
        raise ValueError(
            f"X is sparse and would have {entry_count} entries as an array: reduce its features, "
            "for example by TruncatedSVD"
        )
    return X.toarray()


def category_columns(X: Any) -> list[str]:
    """Return the names of the columns of a DataFrame that are categories by their types."""
    if not isinstance(X, pd.DataFrame):
        return []
    return [str(name) for name in X.columns if _is_category(X[name])]


def _is_category(column: Any) -> bool:
    """Return whether a column of a DataFrame holds categories or texts."""
    if isinstance(column, pd.DataFrame):  # if several columns have the same name
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
    values: dict[str, np.ndarray] = {}
    try:
        for position, name in enumerate(names):
            values[name] = plain_values(name, frame.iloc[:, position], source="X")
    except UserError as error:
        raise ValueError(str(error)) from None
    # A schema names its target. This name must not be that of a feature.
    target = "y" if "y" not in names else "the target"
    options = CsvConfig(target=target, categories=categories)
    # The schema is used for features only, so the task does not matter.
    schema, _ = Schema.fit(values, names, task="regression", options=options)
    return schema


def _check_magnitude(name: str, values: np.ndarray) -> None:
    """Raise `ValueError` for values whose squares would overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest >= MAX_ABS_VALUE:
        raise ValueError(
            f"{name} has values up to {largest:.3g}: choose larger units, so that they are below "
            f"{MAX_ABS_VALUE:g}"
        )


def is_number(value: Any, at_least: float = 0, below: float = math.inf) -> bool:
    """Return whether a value is a number in [at_least, below)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return at_least <= float(value) < below


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number > 0."""
    return isinstance(value, Integral) and is_number(value, at_least=1)


def is_count_or_none(value: Any) -> bool:
    """Return whether a value is None or a whole number > 0."""
    return value is None or is_count(value)


def is_cv(value: Any) -> bool:
    """Return whether a value is valid for `cv`: a number of folds, a share, "loo" or None."""
    is_share = is_number(value, at_least=SMALLEST_POSITIVE, below=1)
    return is_count_or_none(value) or value == LOO or is_share


def all_are(is_valid: Callable[[Any], bool], values: Any) -> bool:
    """Return whether a single value, or each of a list, is valid; an empty list is not."""
    value_list = as_list(values)
    return len(value_list) > 0 and all(map(is_valid, value_list))


def as_list(values: Any) -> list[Any]:
    """Return a sequence as a list, and a single value as a list of one element."""
    return list(values) if np.iterable(values) else [values]


class WithIntervals(RegressorMixin, SparseGP):
    """The predictions of the two regressors: numbers with standard deviations and intervals."""

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
        """Return the lower and upper ends, [n] each, of the central 95 % interval at the rows X.

        The interval is that of a new observation. Intervals of counts include both ends.

        Raises:
            ValueError: Square loss has no intervals.
        """
        prediction = self._prediction(X)
        if prediction.lower is None or prediction.upper is None:
            raise ValueError("square loss predicts a mean only: there are no intervals")
        return self._interval_end(prediction.lower), self._interval_end(prediction.upper)

    def _interval_end(self, values: np.ndarray) -> np.ndarray:
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
    prior_mean = "zero"  # since normalised targets have mean 0
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
        """Return D^2, the share of the Poisson deviance of counts y [n] that the means explain.

        This is scikit-learn's `d2_tweedie_score` with power 1.
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _checked_targets(self, y: np.ndarray) -> np.ndarray:
        if (y < 0).any():
            raise ValueError(
                f"y has negative values (such as {y.min():g}): counts are 0, 1, 2, ..."
            )
        return super()._checked_targets(y)

    def _interval_end(self, values: np.ndarray) -> np.ndarray:
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
        second_class = self._prediction(X).mean
        return np.column_stack([1 - second_class, second_class])

    def predict(self, X: Any) -> np.ndarray:
        """Return the more probable class [n] at every row of X [n, features]."""
        # Comes before `classes_`, since it raises scikit-learn's error if nothing is fitted yet.
        more_probable = self.predict_proba(X).argmax(1)
        return self.classes_[more_probable]

    def _checked_targets(self, y: np.ndarray) -> np.ndarray:
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
