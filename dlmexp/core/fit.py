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
        seed: The seed of its split; for a single data set, the seed that ordered its rows.
        stopped: Why training stopped: "converged", "limit" (all iterations were made), "closed
            form" (no iterations were needed), or the reason why it failed.
        failed: Whether training failed; then all other values are from the iteration at which it
            stopped.
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
        evidence_gap: An upper bound of how much a larger M could raise the log evidence at these
            hyperparameters, in nats per row; None where the objective is no bound of the log
            evidence.
        ends: The objective per row where each start of L-BFGS ended (`Settings.restarts`). The
            first start is the one that was not perturbed; the fit is the start with the lowest end.
        profile: With `validation="loo"`: the NLL of the rows, summed, after recalibration by each
            factor of a grid (docs/SPEC.md, section 7).
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
        """Return all hyperparameters by name, among them the inducing inputs "Z" [M, D]."""
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
        """Return the predictor on a device; it is created at the first call and then kept."""
        if device.type not in self._predictors:
            hyper = {name: value.to(device) for name, value in self.posterior.hyper.items()}
            is_mixture = self.model.components > 1
            predictor_class = ComponentPredictor if is_mixture else MarginalPredictor
            self._predictors[device.type] = predictor_class(
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
        """Return the predictors by type of device: empty at first, filled by `_predictor_on`."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle: all but the cached ones, which can be recomputed."""
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
        iteration: The number of iterations made so far by the batch that is training.
        iterations: The most iterations that a fit can take (`Settings.iterations`).
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
            inducing inputs, and fixes minibatches and random draws; None: 0. For S splits: one
            seed for each split, which fixes minibatches and draws; None: 0 to S - 1.
        settings: Steps of the optimizer and the stopping rule.
        test: Inputs and targets to evaluate on, of the same number of dimensions as X.
        validation: Inputs and targets to select beta on, of the same number of dimensions as X;
            predictions are recalibrated on them too. "loo": the training rows, each predicted from
            all others; for objectives with a closed form over q.
        estimator: The estimator of -log E_q p(y|f): "exact", "quadrature", or an object such as
            `BMC(10)`.
        minibatches: The number of rows of each training step; None: all rows.
        collapsed: Whether to use the closed form over q if the objective has one.
        hyperparameters: Hyperparameters to hold fixed, such as `Fit.hyperparameters`: q alone is
            learned. One mapping, or one per seed.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        dtype: The type of arrays with an entry for every row: "float64" or "float32".
        progress: Called with a `Progress` several times during training; an exception that it
            raises ends the training.

    Returns:
        The fits, seed by seed; within a seed they are in the order of `betas`.

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
    leave_one_out = _is_leave_one_out(validation)
    parts = {"validation": None if leave_one_out else validation, "test": test}
    splits = checked_splits(X, y, seeds, parts, model.likelihood.task)
    n, D = splits.X.shape[1:]
    model = with_number_of_inducing_inputs(model, splits.X[0], splits.y[0], splits.seeds[0])
    model = checked_model(model, loss, n)
    check_initial(model, D)
    uses_closed_form = _uses_closed_form(loss.objective, model, settings, collapsed)
    if leave_one_out:
        check_leave_one_out("validation='loo'", loss.objective, model, uses_closed_form)
    held_hyperparameters = None
    if hyperparameters is not None:
        held_hyperparameters = checked_hyperparameters(
            hyperparameters, model, split_count=len(splits.seeds), n=n, D=D
        )
    request = _Request(
        model=model,
        loss=loss,
        settings=settings,
        splits=splits,
        minibatches=checked_minibatches(minibatches, n, uses_closed_form),
        uses_closed_form=uses_closed_form,
        held_hyperparameters=held_hyperparameters,
        device=select_device(device),
        dtype=dtype,
        leave_one_out=leave_one_out,
    )
    return request.all_fits(checked_betas(betas, loss.objective), progress)


def _model_or_default(model: Model | None) -> Model:
    """Return the model, or `Model()` for None.

    Raises:
        UserError: The argument is no `Model`.
    """
    if model is None:
        return Model()
    if not isinstance(model, Model):
        raise UserError("model: give a dlmexp.Model")
    return model


def _checked_settings(settings: Settings | None, model: Model) -> Settings:
    """Return the settings, with a `split_at` if q is a mixture.

    A mixture starts as a single Gaussian. Unless `split_at` says when it is split into its
    components, that is after half of the iterations.
    """
    settings = Settings() if settings is None else settings
    check_settings(settings)
    if model.components != 1 and settings.split_at is None:
        return replace(settings, split_at=settings.iterations // 2)
    return settings


def _uses_closed_form(
    objective: Objective, model: Model, settings: Settings, collapsed: bool
) -> bool:
    """Return whether q is computed in closed form at every step, instead of being trained.

    Raises:
        UserError: It is trained, and the settings choose L-BFGS, which needs the closed form.
    """
    has_closed_form = objective.collapses(model.likelihood)
    uses_closed_form = objective.collapsed_only or (collapsed and has_closed_form)
    if settings.optimizer == "lbfgs" and not uses_closed_form:
        raise UserError(
            f"Settings(optimizer=lbfgs): objective '{objective.name}' has no closed form over "
            "q here; leave optimizer out"
        )
    return uses_closed_form


def _is_leave_one_out(validation: tuple[Any, Any] | str | None) -> bool:
    """Return whether `validation` is "loo": each training row is predicted from all others.

    Raises:
        UserError: `validation` is another text.
    """
    if not isinstance(validation, str):
        return False
    if validation != LOO:
        raise UserError(f"validation={validation!r}: give inputs and targets, or 'loo'")
    return True


@dataclass
class _Request:
    """The checked arguments of `fit`.

    A pair of a split and a beta is one fit, which is one cell of the program that trains its batch.

    Attributes:
        uses_closed_form: Whether q is computed in closed form at every step.
        held_hyperparameters: Hyperparameters to hold fixed, with a leading dimension of splits;
            None: they are learned.
        leave_one_out: Whether each training row is predicted from all others.
    """

    model: Model
    loss: Loss
    settings: Settings
    splits: Splits
    minibatches: Minibatches | None
    uses_closed_form: bool
    held_hyperparameters: dict[str, Tensor] | None
    device: torch.device
    dtype: str
    leave_one_out: bool

    @property
    def needs_no_iterations(self) -> bool:
        """Return whether there is nothing to train: q has a closed form, the rest is held fixed."""
        return self.uses_closed_form and self.held_hyperparameters is not None

    def all_fits(
        self, betas: list[float], progress: Callable[[Progress], object] | None
    ) -> list[Fit]:
        """Return the fits of all pairs of a split and a beta.

        They train in as few batches as memory allows.
        """
        pairs = list(product(range(len(self.splits.seeds)), betas))
        pairs_at_once = len(pairs) if self.needs_no_iterations else self._pairs_at_once()
        fits: list[Fit] = []
        for first in range(0, len(pairs), pairs_at_once):
            batch = pairs[first : first + pairs_at_once]
            reporter = _Reporter(
                progress,
                stopped_count=len(fits),
                fit_count=len(pairs),
                max_iterations=self.settings.iterations,
            )
            fits += self._fits_of_batch(batch, reporter)
        return fits

    def _fits_of_batch(self, pairs: list[tuple[int, float]], reporter: "_Reporter") -> list[Fit]:
        """Return the fits of these pairs of a split and a beta, in their order."""
        # Cells arrive in the order in which they stop, not in the order of the pairs.
        result_of_cell: dict[int, FinishedFit] = {}
        for result in self._results(self._program(pairs), reporter):
            result_of_cell[result.cell] = result
        fits = []
        for cell, (split, beta) in enumerate(pairs):
            seed = self.splits.seeds[split]
            fits.append(self._public_fit(result_of_cell[cell], seed, beta))
        return fits

    def _pairs_at_once(self) -> int:
        """Return the number of fits that train side by side.

        On a GPU its memory is the limit. On a CPU the caches are: with more fits the time per fit
        would not decrease.
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
        splits_of_batch = sorted(set(split_of_cell))
        data = self._data(splits_of_batch, split_of_cell)
        beta = torch.tensor(beta_of_cell, dtype=PARAMETER_DTYPE, device=self.device)
        if self.held_hyperparameters is not None:
            hyper = {}
            for name, value in self.held_hyperparameters.items():
                hyper[name] = value[splits_of_batch].to(self.device)
            return Fixed(self.model, self.loss, data, beta, hyper, minibatches=self.minibatches)
        if self.model.components > 1:
            program_class = Mixture
        elif self.uses_closed_form:
            program_class = Collapsed
        else:
            program_class = Joint
        return program_class(self.model, self.loss, data, beta, minibatches=self.minibatches)

    def _data(self, splits: list[int], split_of_cell: list[int]) -> BatchData:
        """Return the rows of these splits on the device, and which of the splits each cell has."""
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

    def _results(self, program: Program, reporter: "_Reporter") -> Iterator[FinishedFit]:
        """Yield the result of every cell when it has stopped."""
        if self.needs_no_iterations:
            assert isinstance(program, Fixed)  # `_program` returns it for held hyperparameters
            yield from solve(program)
            return
        training = Training.start(program, self.settings)
        for result in train(training, self.settings, reporter):
            if result is not None:
                reporter.stopped_count += 1
                yield result
            elif training.on_gpu:
                # `train` yields None while the GPU still works and copies the state of the cells
                # to the CPU, and reads that state when it is resumed.
                torch.cuda.current_stream(self.device).synchronize()

    def _public_fit(self, result: FinishedFit, seed: int, beta: float) -> Fit:
        """Return the result of a cell with everything that predictions need."""
        return Fit(
            beta=beta,
            seed=seed,
            stopped=result.stopped,
            failed=result.failed,
            iterations=result.iterations,
            seconds=result.seconds,
            objective=result.objective,
            metrics=result.metrics,
            posterior=_posterior_copy(result.posterior),
            model=self.model,
            predicts_variance=self.loss.objective.predicts_variance,
            dtype=self.dtype,
            curve=result.curve,
            acceptance=result.acceptance,
            evidence_gap=result.evidence_gap,
            ends=result.ends,
            profile=result.profile,
        )


def _posterior_copy(posterior: Posterior) -> Posterior:
    """Return a copy of a cell's posterior, whose tensors are views of those of its whole batch.

    A `Fit` that kept the views would keep the memory of the batch.
    """
    hyper = {name: value.clone() for name, value in posterior.hyper.items()}
    return Posterior(hyper, posterior.m.clone(), posterior.L.clone(), posterior.jitter.clone())


@dataclass
class _Reporter:
    """Calls `progress` when `training.iteration` has grown.

    `train` calls the reporter after every step, but increases `training.iteration` only after a
    stretch of steps.

    Attributes:
        progress: The user's function; None: progress is not reported.
        stopped_count: The number of fits that have stopped.
        fit_count: The number of all fits.
        max_iterations: The most iterations that a fit can take.
        last_iteration: The iteration that was reported last.
    """

    progress: Callable[[Progress], object] | None
    stopped_count: int
    fit_count: int
    max_iterations: int
    last_iteration: int = 0

    def __call__(self, training: Training) -> None:
        """Report the iteration of the batch, unless it was reported before."""
        if self.progress is None or training.iteration == self.last_iteration:
            return
        self.last_iteration = training.iteration
        self.progress(
            Progress(
                finished=self.stopped_count,
                fits=self.fit_count,
                iteration=training.iteration,
                iterations=self.max_iterations,
            )
        )
