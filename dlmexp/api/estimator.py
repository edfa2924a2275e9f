"""What the estimators in the style of scikit-learn share: parameters, their checks, and a fit with beta selected on a
share of the rows."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dlmexp.catalogue import entries
from dlmexp.config import BetaConfig
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared, normalisation
from dlmexp.errors import UserError
from dlmexp.gp.kernels import kernel_named
from dlmexp.models.file import TrainedModel
from dlmexp.models.predictor import Predictor
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.plan.grid import betas as beta_grid
from dlmexp.running.device import select_target
from dlmexp.running.fit import NothingFitted, best_fit

DEVICES = ("auto", "cpu", "cuda")


class SparseGP(BaseEstimator):
    """What the three estimators share.

    Beta, the weight of the KL term, is selected on a share of the rows; all betas train as one batch. The estimators
    follow the conventions of scikit-learn (`get_params`, `clone`, pipelines, cross-validation) and pass its checks.

    Args:
        objective: "log_dlm" (the log loss of predictions), "elbo", or, for `DLMRegressor`, "sq_dlm" (the square loss;
            then there is no standard deviation).
        betas: Weights to choose from; None: the paper's grid n, n/2, n/4, ... >= 0.01. With a single one, no rows are
            set aside.
        n_inducing: Number of inducing inputs, at most the number of rows trained on.
        validation_fraction: Share of the rows that beta is selected on; the model is not trained on them.
        kernel: "rbf", "matern52" or the path of a GPyTorch kernel class.
        ard: One lengthscale per feature.
        learning_rate: Of Adam.
        max_iter: The most iterations of Adam.
        tol: Training stops when the objective per row has changed by no more than this over `window` iterations.
        window: See `tol`.
        batch_size: Rows of a step; None: all.
        random_state: Of the validation rows and of minibatches.
        device: "auto", "cpu" or "cuda".

    Attributes:
        beta_: The selected beta.
        validation_scores_: NLL (MSE for square loss) on the validation rows by beta, on normalised targets.
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
        betas: Sequence[float] | None = None,
        n_inducing: int = 100,
        validation_fraction: float = 0.1,
        kernel: str = "rbf",
        ard: bool = False,
        learning_rate: float = 0.1,
        max_iter: int = 1000,
        tol: float = 1e-4,
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
            y: Targets [n]: numbers, counts that are not negative, or labels of two classes (numbers or texts).

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter or the data can't be used, or training failed at every beta.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=self.task != "binary")
        y = self._targets(np.asarray(y))
        self._check_parameters(len(y))
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, validation = self._divided(y, random)
        grid = beta_grid(self._beta_config(), len(train))
        if len(grid) == 1:
            train, validation = np.arange(len(y)), validation[:0]
        target = select_target(self.device, "float64")
        cells = [self._cell(beta, len(train), seed) for beta in grid]
        schema = Schema.plain(X.shape[1], self.task)
        try:
            fit = best_fit(cells, self._prepared(X, y, train, validation), schema, target)
        except NothingFitted as error:
            raise ValueError(f"training failed at every beta: {error}") from None
        self.model_: TrainedModel = fit.model
        self.beta_ = fit.model.cell.beta
        self.validation_scores_ = fit.scores if len(grid) > 1 else {}
        self.n_iter_ = max(1, fit.iterations)
        return self

    def _check_parameters(self, rows: int) -> None:
        if rows < 2:
            raise ValueError(f"n_samples={rows}: a model needs at least 2 rows, one of them for validation")
        known = [name for name in OBJECTIVES.names() if self._takes(name)]
        if self.objective not in known:
            raise ValueError(f"objective={self.objective!r}: choose one of {', '.join(known)}")
        wholes = ["n_inducing", "max_iter", "window", *(["batch_size"] if self.batch_size is not None else [])]
        for name in wholes:
            if not (isinstance(value := getattr(self, name), Integral) and int(value) > 0):
                raise ValueError(f"{name}={value!r}: give a whole number > 0")
        for name, fits, what in (
            ("validation_fraction", lambda share: 0 < share < 1, "a share between 0 and 1"),
            ("learning_rate", lambda rate: 0 < rate < np.inf, "a number > 0"),
            ("tol", lambda change: change >= 0, "a number >= 0"),
        ):
            if not (isinstance(value := getattr(self, name), Real) and fits(value)):
                raise ValueError(f"{name}={value!r}: give {what}")
        if str(self.device).partition(":")[0] not in DEVICES:
            raise ValueError(f"device={self.device!r}: choose one of {', '.join(DEVICES)}")
        try:
            kernel_named(str(self.kernel), typed=True)
        except UserError as error:
            raise ValueError(f"kernel={self.kernel!r}: {error}") from None

    def _takes(self, objective: str) -> bool:
        facts = OBJECTIVES[objective]
        return facts.has_beta and (not facts.needs_gaussian or self.likelihood_name == "gaussian")

    def _beta_config(self) -> BetaConfig:
        if self.betas is None:
            return BetaConfig(**entries("beta")["grid"])
        values = list(self.betas) if np.iterable(self.betas) else []
        if not values or not all(isinstance(beta, Real) and 0 <= beta < np.inf for beta in values):
            raise ValueError(f"betas={self.betas!r}: give a list of numbers >= 0")
        values = [float(beta) for beta in values]
        return BetaConfig(values=values)

    def _divided(self, y: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to validate on, at least one of each."""
        order = random.permutation(len(y))
        count = min(max(1, round(self.validation_fraction * len(y))), len(y) - 1)
        return order[count:], order[:count]

    def _prepared(self, X: np.ndarray, y: np.ndarray, train: np.ndarray, validation: np.ndarray) -> Prepared:
        features = normalisation(X[train])
        scaled = normalisation(y[train][:, None]) if self.task == "regression" else None

        def part(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            target = y[rows] if scaled is None else scaled.apply(y[rows][:, None])[:, 0]
            return features.apply(X[rows]), target

        mean, std = (0.0, 1.0) if scaled is None else (float(scaled.mean[0]), float(scaled.std[0]))
        return Prepared(*part(train), *part(validation), *part(train[:0]), mean, std, features)

    def _cell(self, beta: float, n: int, seed: int) -> Cell:
        facts = OBJECTIVES[self.objective]
        collapsed = facts.collapsed is not None and self.likelihood_name == "gaussian"
        minibatch = self.batch_size if self.batch_size and self.batch_size < n and not collapsed else None
        return Cell(
            kind="fit", dataset="sklearn", data="", split="", task=self.task, likelihood=self.likelihood_name,
            kernel=self.kernel, ard=self.ard, mean=self.prior_mean, M=min(self.n_inducing, n), n=n,
            objective=self.objective, variant="joint", form="collapsed" if collapsed else "explicit",
            parameterisation="whitened", estimator="exact", options={}, lr=self.learning_rate, minibatch=minibatch,
            window=min(self.window, self.max_iter), tolerance=self.tol, max_iterations=self.max_iter, epochs=None,
            evaluate="end", dtype="float64", seed=seed, beta=beta,
        )  # fmt: skip

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Checked targets as numbers, or as 0 and 1."""
        return y.astype(np.float64)

    def _columns(self, X: Any, *names: str) -> list[np.ndarray]:
        """Columns of the predictions on rows."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        found = Predictor([self.model_], select_target(self.device, "float64").device.type).predict(X)
        for name in names:
            if name not in found:
                raise ValueError(f"square loss predicts a mean only: there is no {name}")
        return [found[name] for name in names]
