"""Train many sparse Gaussian processes as one batch: `dlmexp.fit`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.device import free_memory, select_device
from dlmexp.core.estimators import Estimator
from dlmexp.core.folds import LOO
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.inputs import (
    DTYPES,
    Splits,
    check_initial,
    check_leave_one_out,
    check_settings,
    checked_betas,
    checked_hyperparameters,
    checked_loss,
    checked_minibatches,
    checked_model,
    checked_splits,
    rows_to_predict,
)
from dlmexp.core.likelihoods.mixture import predictive_likelihood
from dlmexp.core.objectives import Objective
from dlmexp.core.prediction import (
    ComponentPredictor,
    MarginalPredictor,
    Prediction,
    prediction,
)
from dlmexp.core.training.automatic import with_number_of_inducing_inputs
from dlmexp.core.training.batch import Training
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData, Minibatches
from dlmexp.core.training.finished import Curve, FinishedFit
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.mixture import Mixture
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.program import Posterior, Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.sizes import StepSize
from dlmexp.core.training.solve import solve
from dlmexp.core.training.train import train

Metrics = dict[str, float]


@dataclass(frozen=True, eq=False)
class Fit:
    """One trained model.

    Attributes:
        beta: The weight of its penalty.
        seed: The seed of its split or, of one data set, of the order of its rows.
        stopped: Why training stopped: "converged", "limit" (all iterations were made), "closed
            form" (nothing was iterated), or why it failed.
        failed: Whether training failed; then all other values are those where it stopped.
        iterations: Iterations until it stopped.
        seconds: Its share of the training time of its batch.
        objective: The objective per training row at every iteration.
        metrics: Mean metrics by part ("validation", "test") and name ("nll", "mse", ...).
        posterior: Hyperparameters, and q(w) = N(m, L L^T) in whitened coordinates, as tensors with
            a leading dimension of 1.
        model: Kernel, likelihood and parameterisation.
        predicts_variance: False for square loss, which predicts a mean only.
        dtype: The type of arrays with an entry for every row: "float64" or "float32".
        curve: The learning curve, pairs of iteration and test metrics; empty unless
            `Settings.evaluate_every` is set.
        acceptance: The share of accepted proposals; None unless the estimator draws by rejection.
        evidence_gap: How much a larger M could raise the log evidence at most, in nats per row, at
            these hyperparameters; None where the objective is no bound of it.
        ends: The objective per row at the end of each start of L-BFGS (`Settings.restarts`), first
            that of the start that was not perturbed. The fit is the lowest of them.
        profile: With `validation="loo"`: the NLL of the rows at a grid of recalibrating factors
            (docs/SPEC.md, section 7).
    """

    beta: float
    seed: int
    stopped: str
    failed: bool
    iterations: int
    seconds: float
    objective: np.ndarray = field(repr=False)
    metrics: dict[str, Metrics]
    posterior: Posterior = field(repr=False)
    model: Model = field(repr=False)
    predicts_variance: bool = field(default=True, repr=False)
    dtype: str = field(default="float64", repr=False)
    curve: Curve = field(default_factory=list, repr=False)
    acceptance: float | None = field(default=None, repr=False)
    evidence_gap: float | None = field(default=None, repr=False)
    ends: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    profile: np.ndarray | None = field(default=None, repr=False)

    @cached_property
    def hyperparameters(self) -> dict[str, np.ndarray]:
        """Return the inducing inputs "Z" [M, D] and all other hyperparameters, by name."""
        return {name: value[0].numpy() for name, value in self.posterior.hyper.items()}

    def predict(self, X: Any, device: str = "cpu") -> Prediction:
        """Return the predictive distribution of the targets at rows X [N, D].

        Rows and predictions are in the units of the training rows.

        Raises:
            UserError: X is not an array of finite numbers of that shape.
        """
        mu, v = self.marginals(X, device)
        is_mixture = self.model.components > 1
        hyper = self._predictor_on(select_device(device)).hyper
        likelihood = predictive_likelihood(self.model.likelihood, hyper, is_mixture)
        return prediction(likelihood, mu, v, self.predicts_variance)

    def marginals(
        self, X: Any, device: str = "cpu"
    ) -> tuple[Float[Tensor, "1 *K N"], Float[Tensor, "1 *K N"]]:
        """Return mean and variance of f at rows X [N, D]; for a mixture, of each component.

        Raises:
            UserError: X is not an array of finite numbers of that shape.
        """
        rows = rows_to_predict(X, self.posterior.hyper["Z"].shape[-1])
        return self._predictor_on(select_device(device)).marginals(rows)

    def _predictor_on(self, device: torch.device) -> MarginalPredictor | ComponentPredictor:
        """Return the predictor on a device, which is made once."""
        if device.type not in self._predictors:
            hyper = {name: value.to(device) for name, value in self.posterior.hyper.items()}
            predictor = MarginalPredictor if self.model.components == 1 else ComponentPredictor
            self._predictors[device.type] = predictor(
                self.model.kernel,
                hyper,
                m=self.posterior.m.to(device),
                L=self.posterior.L.to(device),
                jitter=self.posterior.jitter.to(device),
                row_dtype=DTYPES[self.dtype],
            )
        return self._predictors[device.type]

    @cached_property
    def _predictors(self) -> dict[str, MarginalPredictor | ComponentPredictor]:
        """Predictors by device: empty at first, filled by `_predictor_on`."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle, without cached ones that can be computed again."""
        state = dict(self.__dict__)
        state.pop("_predictors", None)
        state.pop("hyperparameters", None)
        return state


@dataclass(frozen=True)
class Progress:
    """How far `fit` has come.

    Attributes:
        finished: The number of fits that have stopped.
        fits: The number of all fits.
        iteration: The number of iterations of the batch that is training.
        iterations: The largest number of iterations of a fit.
    """

    finished: int
    fits: int
    iteration: int
    iterations: int


def fit(  # noqa: PLR0913 - every argument but X and y has a default
    X: Any,
    y: Any,
    model: Model | None = None,
    objective: str | Objective = "log_dlm",
    betas: float | Sequence[float] = 1.0,
    seeds: int | Sequence[int] | None = None,
    settings: Settings | None = None,
    test: tuple[Any, Any] | None = None,
    *,
    validation: tuple[Any, Any] | str | None = None,
    estimator: str | Estimator | None = None,
    minibatches: int | Minibatches | None = None,
    collapsed: bool = True,
    hyperparameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    device: str = "auto",
    dtype: str = "float64",
    progress: Callable[[Progress], object] | None = None,
) -> list[Fit]:
    """Train a sparse Gaussian process for every pair of a seed and a beta, side by side.

    Nothing is normalised: inputs and, in regression, targets should have mean 0 and variance about
    1, since lengthscale, outputscale and noise start at 1, 1 and 0.1.

    Args:
        X: Training inputs [n, D] of one data set, or [S, n, D] of S splits: arrays or tensors.
        y: Training targets [n] or [S, n]: numbers, 0 and 1, or counts, as the likelihood says.
        model: Kernel, likelihood, number of inducing inputs, and of components of q.
        objective: What is minimised: the name of one of `OBJECTIVES`, such as "log_dlm", "sq_dlm",
            "elbo", "tighter", "fitc", "power_ep", "loo", "crps" or "exact", or an `Objective`
            (`OBJECTIVES["t_pep"].with_options({"alpha": 0.2})`).
        betas: The weights of the penalty (for "power_ep" its power, 0 to 1).
        seeds: For one data set: each seed orders the rows, of which the first M are the initial
            inducing inputs, and fixes minibatches and random draws; None: 0. For S splits: their
            names, which fix minibatches and draws; None: 0 to S - 1.
        settings: Adam's steps and the stopping rule.
        test: Inputs and targets to evaluate on, of the same number of dimensions as X.
        validation: The same, to select beta on; predictions are recalibrated on them too. "loo":
            the training rows, each predicted from all others; for closed forms over q.
        estimator: The estimator of -log E_q p(y|f): "exact", "quadrature", or an object such as
            `BMC(10)`.
        minibatches: The number of rows of a step; None: all.
        collapsed: Whether to use the closed form over q if the objective has one.
        hyperparameters: Hyperparameters to hold, such as `Fit.hyperparameters`: q alone is learned.
            One mapping, or one per seed.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        dtype: The type of arrays with an entry for every row: "float64" or "float32".
        progress: Called with a `Progress` several times during training; an exception that it
            raises ends the training.

    Returns:
        The fits, seed by seed, with the betas of a seed in the order that was given.

    Raises:
        UserError: An argument can't be used.

    Example:
        ```python
        import dlmexp

        fits = dlmexp.fit(
            X,
            y,
            dlmexp.Model("rbf", "gaussian", M=20),
            betas=[10, 1, 0.1],
            seeds=[0, 1],
            settings=dlmexp.Settings(iterations=200),
            validation=(X_validation, y_validation),
        )
        best = min(fits, key=lambda fit: fit.metrics["validation"]["nll"])
        best.predict(X_new).mean
        ```
    """
    model = _model_or_default(model)
    settings = _checked_settings(settings, model)
    if dtype not in DTYPES:
        raise UserError(f"dtype={dtype}: give one of {', '.join(DTYPES)}")
    loss = checked_loss(objective, estimator, model)
    leave_one_out = _asks_to_leave_one_out(validation)
    parts = {"validation": None if leave_one_out else validation, "test": test}
    splits = checked_splits(X, y, seeds, parts, model.likelihood.task)
    n, D = splits.X.shape[1:]
    model = with_number_of_inducing_inputs(model, splits.X[0], splits.y[0], splits.seeds[0])
    model = checked_model(model, loss, n)
    check_initial(model, D)
    is_closed = _uses_closed_form(loss.objective, model, settings, collapsed)
    if leave_one_out:
        check_leave_one_out("validation='loo'", loss.objective, model, is_closed)
    held = None
    if hyperparameters is not None:
        held = checked_hyperparameters(hyperparameters, model, len(splits.seeds), n, D)
    request = _Request(
        model=model,
        loss=loss,
        settings=settings,
        splits=splits,
        minibatches=checked_minibatches(minibatches, n, is_closed),
        collapsed=is_closed,
        held=held,
        device=select_device(device),
        dtype=dtype,
        leave_one_out=leave_one_out,
    )
    return request.all_fits(checked_betas(betas, loss.objective), progress)


def _model_or_default(model: Model | None) -> Model:
    """Return the model, or `Model()` for None.

    Raises:
        UserError: It is no `Model`.
    """
    if model is None:
        return Model()
    if not isinstance(model, Model):
        raise UserError("model: give a dlmexp.Model")
    return model


def _checked_settings(settings: Settings | None, model: Model) -> Settings:
    """Return the settings; a q of several Gaussians is split half-way unless they say when."""
    settings = Settings() if settings is None else settings
    check_settings(settings)
    if model.components != 1 and settings.split_at is None:
        return replace(settings, split_at=settings.iterations // 2)
    return settings


def _uses_closed_form(
    objective: Objective, model: Model, settings: Settings, collapsed: bool
) -> bool:
    """Return whether the closed form over q is used.

    Raises:
        UserError: It is not, and the settings choose L-BFGS, which needs it.
    """
    has_closed_form = objective.collapses(model.likelihood)
    is_closed = objective.collapsed_only or (collapsed and has_closed_form)
    if settings.optimizer == "lbfgs" and not is_closed:
        raise UserError(
            f"Settings(optimizer=lbfgs): objective '{objective.name}' has no closed form over "
            "q here; leave optimizer out"
        )
    return is_closed


def _asks_to_leave_one_out(validation: tuple[Any, Any] | str | None) -> bool:
    """Return whether each training row is to be predicted from all others.

    Raises:
        UserError: `validation` is another word.
    """
    if not isinstance(validation, str):
        return False
    if validation != LOO:
        raise UserError(f"validation={validation!r}: give inputs and targets, or 'loo'")
    return True


@dataclass
class _Request:
    """The checked arguments of `fit`.

    Attributes:
        collapsed: Whether the closed form over q is used.
        held: Hyperparameters to hold, with a leading dimension of splits; None: they are learned.
        leave_one_out: Whether each training row is predicted from all others.
    """

    model: Model
    loss: Loss
    settings: Settings
    splits: Splits
    minibatches: Minibatches | None
    collapsed: bool
    held: dict[str, Tensor] | None
    device: torch.device
    dtype: str
    leave_one_out: bool

    @property
    def is_solved(self) -> bool:
        """Return whether the fits are solutions in closed form, without iterations."""
        return self.collapsed and self.held is not None

    def all_fits(
        self, betas: list[float], progress: Callable[[Progress], object] | None
    ) -> list[Fit]:
        """Return the fits of all pairs of a split and a beta.

        They train in as few batches as memory allows.
        """
        pairs = list(product(range(len(self.splits.seeds)), betas))
        pairs_at_once = len(pairs) if self.is_solved else self._pairs_at_once()
        fits: list[Fit] = []
        for first in range(0, len(pairs), pairs_at_once):
            batch = pairs[first : first + pairs_at_once]
            reporter = _Reporter(progress, len(fits), len(pairs), self.settings.iterations)
            fits += self._fits_of_batch(batch, reporter)
        return fits

    def _fits_of_batch(self, pairs: list[tuple[int, float]], reporter: "_Reporter") -> list[Fit]:
        """Return the fits of these pairs of a split and a beta, in their order."""
        # Cells finish in the order in which they stop.
        by_cell: dict[int, FinishedFit] = {}
        for finished in self._finished_fits(self._program(pairs), reporter):
            by_cell[finished.cell] = finished
        fits = []
        for cell, (split, beta) in enumerate(pairs):
            seed = self.splits.seeds[split]
            fits.append(self._public_fit(by_cell[cell], seed, beta))
        return fits

    def _pairs_at_once(self) -> int:
        """Return the number of fits that train side by side.

        It is limited by the memory of a GPU. On a CPU it is limited by the caches: with more fits
        the time per fit would not decrease.
        """
        n = self.splits.X.shape[1]
        samples = getattr(self.loss.estimator, "samples", 0)
        size = StepSize(
            rows=self.minibatches.size if self.minibatches else n,
            M=self.model.inducing_count(n),
            samples=samples,
            iterations=self.settings.iterations,
            row_bytes=8 if self.dtype == "float64" else 4,
            components=self.model.components,
            starts=1 + self.settings.restarts,
        )
        return size.cells_at_once(free_memory(self.device))

    def _program(self, pairs: list[tuple[int, float]]) -> Program:
        """Return the program whose cells are these pairs of a split and a beta."""
        split_of_cell = [split for split, _ in pairs]
        beta_of_cell = [beta for _, beta in pairs]
        splits = sorted(set(split_of_cell))
        data = self._data(splits, split_of_cell)
        beta = torch.tensor(beta_of_cell, dtype=PARAMETER_DTYPE, device=self.device)
        if self.held is not None:
            hyper = {name: value[splits].to(self.device) for name, value in self.held.items()}
            return Fixed(self.model, self.loss, data, beta, hyper, minibatches=self.minibatches)
        program = Collapsed if self.collapsed else Joint
        if self.model.components > 1:
            program = Mixture
        return program(self.model, self.loss, data, beta, minibatches=self.minibatches)

    def _data(self, splits: list[int], split_of_cell: list[int]) -> BatchData:
        """Return the rows of these splits on the device."""
        placement = {"dtype": DTYPES[self.dtype], "device": self.device}
        parts = {}
        for name, (X, y) in self.splits.parts.items():
            parts[name] = (X[splits].to(**placement), y[splits].to(**placement))
        return BatchData(
            X=self.splits.X[splits].to(**placement),
            y=self.splits.y[splits].to(**placement),
            parts=parts,
            seed_of=[self.splits.seeds[split] for split in splits],
            split_of=[splits.index(split) for split in split_of_cell],
            leave_one_out=self.leave_one_out,
        )

    def _finished_fits(self, program: Program, reporter: "_Reporter") -> Iterator[FinishedFit]:
        """Yield the result of every cell when it has stopped."""
        if self.is_solved:
            assert isinstance(program, Fixed)
            yield from solve(program)
            return
        training = Training.start(program, self.settings)
        for finished in train(training, self.settings, reporter):
            if finished is not None:
                reporter.finished += 1
                yield finished
            elif training.on_gpu:
                # `train` waits for a GPU here. It goes on with outcomes that are still being copied
                # unless the stream has finished.
                torch.cuda.current_stream(self.device).synchronize()

    def _public_fit(self, finished: FinishedFit, seed: int, beta: float) -> Fit:
        """Return the result of a cell with everything that predictions need."""
        return Fit(
            beta=beta,
            seed=seed,
            stopped=finished.stopped,
            failed=finished.failed,
            iterations=finished.iterations,
            seconds=finished.seconds,
            objective=finished.objective,
            metrics=finished.metrics,
            posterior=_copied_posterior(finished.posterior),
            model=self.model,
            predicts_variance=self.loss.objective.predicts_variance,
            dtype=self.dtype,
            curve=finished.curve,
            acceptance=finished.acceptance,
            evidence_gap=finished.evidence_gap,
            ends=finished.ends,
            profile=finished.profile,
        )


def _copied_posterior(posterior: Posterior) -> Posterior:
    """Return a copy, as the tensors of a finished fit are views of those of its whole batch."""
    hyper = {name: value.clone() for name, value in posterior.hyper.items()}
    return Posterior(hyper, posterior.m.clone(), posterior.L.clone(), posterior.jitter.clone())


@dataclass
class _Reporter:
    """Calls `progress` when `training.iteration` has grown.

    `train` calls the reporter after every step, but increases `training.iteration` after a stretch
    of steps.

    Attributes:
        progress: The function of the user; None: there is none.
        finished: The number of fits that have stopped.
        fits: The number of all fits.
        iterations: The largest number of iterations of a fit.
        reported: The iteration that was reported last.
    """

    progress: Callable[[Progress], object] | None
    finished: int
    fits: int
    iterations: int
    reported: int = 0

    def __call__(self, training: Training) -> None:
        if self.progress is not None and training.iteration != self.reported:
            self.reported = training.iteration
            self.progress(Progress(self.finished, self.fits, training.iteration, self.iterations))
