"""Estimators in the style of scikit-learn (`pip install dlmexp[sklearn]`): sparse Gaussian
processes trained by direct loss minimisation, or by the ELBO."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "these estimators need scikit-learn 1.6 or later: pip install 'dlmexp[sklearn]'"
    ) from error

from dlmexp.common.catalogue import entries
from dlmexp.common.errors import UserError
from dlmexp.common.limits import DEVICES
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.train import train
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared, Split, normalised
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.records.table import select
from dlmexp.experiment.running.process import Target, select_target
from dlmexp.experiment.running.programs import cells_at_once, program, settings, trained_model

KERNELS = {"matern": "matern52"}  # other names of kernels
DECAY = 100  # the learning rate ends at its DECAY-th part
TINY = np.finfo(float).tiny


class InvalidParameter(ValueError, TypeError):
    """A parameter that can't be; the message names it and says what to give."""


class SparseGP(BaseEstimator):
    """What the three estimators share.

    Beta, the weight of the KL term, is selected on a share of the rows; all betas train as one
    batch. The estimators follow the conventions of scikit-learn (`get_params`, `clone`, pipelines,
    cross-validation) and pass its checks.

    Args:
        objective: "log_dlm" (the log loss of predictions), "elbo", or, for `DLMRegressor`, "sq_dlm"
            (the square loss; then there is no standard deviation).
        betas: A weight, or several to choose from; None: 100, 10, 1, 0.1. With a single one, no
            rows are set aside.
        n_inducing: Number of inducing inputs, at most the number of rows trained on; None: a tenth
            of them, 20 to 200.
        validation_fraction: Share of the rows that beta is selected on; the model is not trained on
            them.
        kernel: "rbf", "matern" or the path of a GPyTorch kernel class.
        ard: One lengthscale per feature.
        learning_rate: Of Adam at the start; it decays to a hundredth.
        max_iter: The number of iterations of Adam.
        tol: `ConvergenceWarning` says when the objective per row changed by more than this over the
            last `window` iterations.
        window: See `tol`.
        batch_size: Rows of a step; None: all.
        random_state: Of the validation rows and of minibatches.
        device: "auto", "cpu" or "cuda".

    Attributes:
        beta_: The selected beta.
        validation_scores_: NLL (MSE for square loss) on the validation rows by beta, on normalised
            targets.
        n_iter_: Iterations until training stopped.
        model_: The trained model with its posterior, hyperparameters and normalisation.
    """

    task: ClassVar[str]
    likelihood_name: ClassVar[str]
    prior_mean: ClassVar[str] = "constant"

    def __init_subclass__(cls, **options: Any) -> None:
        """`help` of an estimator has the parameters too."""
        super().__init_subclass__(**options)
        if cls.__doc__:
            cls.__doc__ = f"{cls.__doc__}\n{(SparseGP.__doc__ or '').partition(chr(10))[2]}"

    def __init__(
        self,
        objective: str = "log_dlm",
        betas: float | Sequence[float] | None = None,
        n_inducing: int | None = None,
        validation_fraction: float = 0.1,
        kernel: str = "rbf",
        ard: bool = False,
        learning_rate: float = 0.1,
        max_iter: int = 300,
        tol: float = 1e-3,
        window: int = 20,
        batch_size: int | None = None,
        random_state: Any = None,
        device: str = "auto",
    ):
        self.objective = objective
        self.betas = betas
        self.n_inducing = n_inducing
        self.validation_fraction = validation_fraction
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
        """Train, and select beta.

        Args:
            X: Rows [n, features], numbers.
            y: Targets [n]: numbers, counts that are not negative, or labels of two classes (numbers
                or texts).

        Raises:
            ValueError: A parameter or the data can't be used, or training failed at every beta.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=self.task != "binary")
        y = self._targets(np.asarray(y))
        betas = self._checked_betas(len(y))
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, validation = self._divided(y, random)
        if len(betas) == 1:
            train, validation = np.arange(len(y)), validation[:0]
        cells = [self._cell(beta, len(train), seed) for beta in betas]
        schema, target = Schema.plain(X.shape[1], self.task), select_target(self.device, "float64")
        data = normalised(X, y, self.task, Split(train, validation, train[:0]))
        model, done, scores = best_fit(cells, data, schema, target)
        if done.stopped == "limit":
            more = f"max_iter={self.max_iter}: the objective still changes by more than tol={self.tol:g}; give more"
            warnings.warn(more, ConvergenceWarning, stacklevel=2)
        self.model_: TrainedCell = model
        self.beta_ = model.cell.beta
        self.validation_scores_ = scores if len(betas) > 1 else {}
        self.n_iter_ = max(1, done.iterations)
        return self

    def _checked_betas(self, rows: int) -> list[float]:
        """The betas, largest first; `InvalidParameter` names a parameter that can't be."""
        if rows < 2:
            raise ValueError(
                f"n_samples={rows}: a model needs at least 2 rows, one of them for validation"
            )
        values = entries("beta")["own"]["values"] if self.betas is None else self.betas
        betas = list(values) if np.iterable(values) else [values]
        likelihood = LIKELIHOODS[self.likelihood_name]
        known = [
            name
            for name in OBJECTIVES
            if OBJECTIVES[name].has_beta and OBJECTIVES[name].fits(likelihood)
        ]

        def number(value: Any, least: float = 0, most: float = np.inf, kind: type = Real) -> bool:
            return (
                isinstance(value, kind)
                and not isinstance(value, bool)
                and least <= float(value) < most
            )

        fits = {
            "objective": (self.objective in known, f"one of {', '.join(known)}"),
            "betas": (
                len(betas) > 0 and all(map(number, betas)),
                "a number >= 0, or a list of them",
            ),
            "validation_fraction": (number(self.validation_fraction, TINY, 1), "a share"),
            "learning_rate": (number(self.learning_rate, TINY), "a number > 0"),
            "tol": (number(self.tol), "a number >= 0"),
            "device": (
                str(self.device).partition(":")[0] in DEVICES,
                f"one of {', '.join(DEVICES)}",
            ),
        }
        for name, none in {
            "n_inducing": True,
            "max_iter": False,
            "window": False,
            "batch_size": True,
        }.items():
            value = getattr(self, name)
            whole = number(value, 1, kind=Integral) or (none and value is None)
            fits[name] = whole, "a whole number > 0" + ", or None" * none
        for name, (fine, what) in fits.items():
            if not fine:
                raise InvalidParameter(f"{name}={getattr(self, name)!r}: give {what}")
        try:
            kernel_named(KERNELS.get(str(self.kernel), str(self.kernel)), typed=True)
        except UserError as error:
            raise InvalidParameter(f"kernel={self.kernel!r}: {error}") from None
        return sorted({float(beta) for beta in betas}, reverse=True)

    def _divided(
        self, y: np.ndarray, random: np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to validate on, at least one of each."""
        order = random.permutation(len(y))
        count = min(max(1, round(self.validation_fraction * len(y))), len(y) - 1)
        return order[count:], order[:count]

    def _cell(self, beta: float, n: int, seed: int) -> Cell:
        facts = OBJECTIVES[self.objective]
        collapsed = facts.collapses(LIKELIHOODS[self.likelihood_name])
        minibatch = (
            self.batch_size if self.batch_size and self.batch_size < n and not collapsed else None
        )
        window = min(self.window, self.max_iter)
        decay = self.max_iter - window or None
        return Cell(
            kind="fit", dataset="sklearn", data="", split="", task=self.task, likelihood=self.likelihood_name,
            kernel=KERNELS.get(self.kernel, self.kernel), ard=self.ard, mean=self.prior_mean,
            M=min(self.n_inducing or min(max(n // 10, 20), 200), n), n=n, objective=self.objective, variant="joint",
            form="collapsed" if collapsed else "explicit", parameterisation="whitened", estimator="exact", options={},
            lr=self.learning_rate, final_lr=self.learning_rate / DECAY if decay else None, decay=decay,
            minibatch=minibatch, window=window, tolerance=self.tol, max_iterations=self.max_iter, epochs=None,
            evaluate="end", dtype="float64", seed=seed, beta=beta,
        )  # fmt: skip

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Checked targets as numbers, or as 0 and 1."""
        return y.astype(np.float64)

    def _columns(self, X: Any, *names: str) -> list[np.ndarray]:
        """Columns of the predictions on rows."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        columns = Predictor(
            [self.model_], select_target(self.device, "float64").device.type
        ).predict(X)
        if missing := [name for name in names if name not in columns]:
            raise ValueError(f"square loss predicts a mean only: there is no {missing[0]}")
        return [columns[name] for name in names]


def best_fit(
    cells: Sequence[Cell], split: Prepared, schema: Schema, target: Target
) -> tuple[TrainedCell, FinishedFit, dict[float, float]]:
    """Train cells that differ in beta alone, the largest first, in as large batches as fit, and
    select the one with the lowest validation NLL (MSE for square loss); a single cell needs no
    validation rows. Also returns the validation metric of every beta, NaN where training failed;
    `ValueError` if it failed at all of them."""
    metric = OBJECTIVES[cells[0].objective].selected_by or "nll"
    size = max(1, cells_at_once(cells[0], target.free_memory))
    fits: list[tuple[Cell, FinishedFit]] = []
    for first in range(0, len(cells), size):
        batch = tuple(cells[first : first + size])
        how = replace(settings(batch[0], target), calibration=False)
        made = program(batch, lambda _: split, lambda cell: {}, target)
        fits += [
            (batch[done.cell], done)
            for done in train(Training.start(made, how), how)
            if done is not None
        ]
    scores = [
        math.nan if done.failed else done.metrics.get("validation", {}).get(metric, math.nan)
        for _, done in fits
    ]
    about = {
        "group": 0,
        "candidates": len(cells),
        "role": "fit",
        "beta": [cell.beta for cell, _ in fits],
    }
    status = ["failed" if done.failed else "done" for _, done in fits]
    best = select(pd.DataFrame({**about, "status": status, f"validation_{metric}": scores}), metric)
    if best.empty:
        last = fits[-1][1]
        why = last.stopped if last.failed else f"the validation {metric} is not finite"
        raise ValueError(f"training failed at every beta: {why}")
    cell, done = fits[int(best.index[0])]
    by_beta = {cell.beta or 0.0: score for (cell, _), score in zip(fits, scores, strict=True)}
    return (
        trained_model(cell, schema, split, done.posterior),
        done,
        dict(sorted(by_beta.items(), reverse=True)),
    )


class WithIntervals(RegressorMixin, SparseGP):
    """What the two regressors share."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The means [n] at rows X [n, features], in the units of the training targets; with
        `return_std` a pair, the means and the standard deviations of a new observation, which
        square loss has none of (ValueError)."""
        mean, *std = self._columns(X, "mean", *(["std"] if return_std else []))
        return (mean, *std) if return_std else mean

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ends, lower [n] and upper [n], of the central 95 % interval of a new observation at
        every row of X. Counts include both. Square loss has no intervals (ValueError)."""
        lower, upper = self._columns(X, "lower_95", "upper_95")
        return lower, upper


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
        """D^2, the share of the Poisson deviance that is explained (scikit-learn's
        `d2_tweedie_score`, power 1), for counts y [n] at rows X."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _targets(self, y: np.ndarray) -> np.ndarray:
        if (y < 0).any():
            raise ValueError(
                f"y has negative values (such as {y.min():g}): counts are 0, 1, 2, ..."
            )
        return super()._targets(y)

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
        """The probabilities [n, 2] of both classes, in the order of `classes_`, at every row of X
        [n, features]."""
        (second,) = self._columns(X, "probability_1")
        return np.column_stack([1 - second, second])

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class [n] at every row of X [n, features]."""
        best = self.predict_proba(X).argmax(1)  # first, as it says where nothing is fitted yet
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

    def _divided(
        self, y: np.ndarray, random: np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same share of each class for validation; every class keeps a row to train on."""
        order = random.permutation(len(y))
        classes, share = (
            [order[y[order] == value] for value in (0.0, 1.0)],
            self.validation_fraction,
        )
        chosen = np.concatenate(
            [rows[: min(round(share * len(rows)), len(rows) - 1)] for rows in classes]
        )
        if not len(chosen):  # few rows: one of the larger class
            larger = max(classes, key=len)
            chosen = larger[: min(1, len(larger) - 1)]
        return order[~np.isin(order, chosen)], chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
