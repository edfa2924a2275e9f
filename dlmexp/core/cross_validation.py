"""Choose beta without validation rows: `dlmexp.cross_validate` (docs/SPEC.md, section 6).

A candidate is a pair of beta and the number of components of q. For each fold in turn, it is
trained on all other rows and evaluated on the fold. The candidate with the lowest loss over the
rows of all folds is then trained on all rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError, nearest
from dlmexp.core.estimators import Estimator
from dlmexp.core.fit import Fit, Progress, fit
from dlmexp.core.folds import (
    DEFAULT_FOLD_COUNT,
    LOO,
    Candidate,
    Folds,
    best_candidate,
    fold_of_share,
    folds,
    penalised_factor,
    pooled_mean,
)
from dlmexp.core.inputs import check_leave_one_out, checked_betas, checked_loss, checked_splits
from dlmexp.core.objectives import Objective
from dlmexp.core.training.automatic import with_number_of_inducing_inputs
from dlmexp.core.training.data import Minibatches
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.recalibration import loss_profile
from dlmexp.core.training.settings import Settings

BETAS = (100.0, 10.0, 1.0, 0.1)
"""The default betas to choose from."""


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """The chosen candidate, trained on all rows, and the losses of all candidates.

    Attributes:
        fit: The chosen candidate, trained on all rows.
        chosen: The beta and the number of components of the chosen candidate.
        losses: The mean loss over the held-out rows of all folds, by candidate; NaN where training
            failed in a fold.
        fold_losses: The mean loss in each fold, by candidate; with `cv="loo"` a single mean.
        metric: The name of the loss: "nll", "mse", "error" or "mre".
        temperature: The factor that would recalibrate predictions best, judged by the held-out rows
            of all folds (docs/SPEC.md, section 7); in regression it multiplies the predictive
            variance. 1 if the objective predicts no variance.
    """

    fit: Fit
    chosen: Candidate
    losses: dict[Candidate, float]
    fold_losses: dict[Candidate, list[float]] = field(repr=False)
    metric: str
    temperature: float


def cross_validate(  # noqa: PLR0913 - every argument but X and y has a default
    X: Any,
    y: Any,
    model: Model | None = None,
    objective: str | Objective = "log_dlm",
    betas: float | Sequence[float] | None = None,
    seed: int = 0,
    settings: Settings | None = None,
    test: tuple[Any, Any] | None = None,
    *,
    cv: int | float | str = DEFAULT_FOLD_COUNT,
    components: Sequence[int] | None = None,
    M_in_folds: int | None = None,
    metric: str | None = None,
    estimator: str | Estimator | None = None,
    minibatches: int | Minibatches | None = None,
    collapsed: bool = True,
    device: str = "auto",
    dtype: str = "float64",
    progress: Callable[[Progress], object] | None = None,
) -> CrossValidation:
    """Choose beta, and the components of q, by cross-validation; train the choice on all rows.

    For each number of components, all folds and all betas train as one batch.

    Args:
        X: Inputs [n, D]: an array or tensor.
        y: Targets [n].
        model: As in `dlmexp.fit`. In a fold it has at most as many inducing inputs as rows.
        objective: As in `dlmexp.fit`.
        betas: The betas to choose from; None: 100, 10, 1 and 0.1 if the objective has a beta.
        seed: The seed that orders the rows before they are cut into folds, and that is the seed of
            the fit to all rows.
        settings: As in `dlmexp.fit`.
        test: Inputs and targets to evaluate the fit to all rows on.
        cv: The number of folds; or the share of the rows that is held out once, such as 0.1; or
            "loo" for objectives with a closed form over q: every row is predicted from all others,
            with the hyperparameters of the fit to all rows, so that no fold is trained.
        components: The numbers of Gaussians of q to choose from; None: that of the model.
        M_in_folds: The most inducing inputs of fits to folds, which take most of the time; None: as
            many as `model` has.
        metric: The loss on held-out rows: "nll", "mse" (regression), "error" (binary data) or "mre"
            (counts). None: "nll", or "mse" where the objective predicts no variance.
        estimator: As in `dlmexp.fit`.
        minibatches: As in `dlmexp.fit`; at most the number of rows that a fold is trained on.
        collapsed: As in `dlmexp.fit`.
        device: As in `dlmexp.fit`.
        dtype: As in `dlmexp.fit`.
        progress: Called with the progress of each batch, as in `dlmexp.fit`.

    Raises:
        UserError: An argument can't be used, or every candidate failed in some fold.

    Example:
        ```python
        import dlmexp

        result = dlmexp.cross_validate(X, y, betas=[10, 1, 0.1], cv=5)
        print(result.chosen.beta, result.losses)
        result.fit.predict(X_new).mean
        ```
    """
    model = Model() if model is None else model
    settings = Settings() if settings is None else settings
    loss = checked_loss(objective, estimator, model)
    candidate_betas = _candidate_betas(betas, loss.objective)
    options = {
        "objective": objective,
        "estimator": estimator,
        "minibatches": minibatches,
        "collapsed": collapsed,
        "device": device,
        "dtype": dtype,
        "progress": progress,
    }
    metric = metric or loss.objective.selected_by or "nll"
    if isinstance(cv, str):
        # Whether the objective has a closed form at all is checked by `check_leave_one_out`.
        wants_closed_form = loss.objective.collapsed_only or collapsed
        _check_text_of_cv(cv, loss, model, wants_closed_form, components)
        options |= {"settings": settings, "test": test}
        return _by_leaving_one_out(X, y, model, candidate_betas, seed, metric, options)
    # 1. Train every candidate on the folds.
    data = _FoldedData.of(X, y, seed, cv, model.likelihood.task)
    model = with_number_of_inducing_inputs(model, data.X, data.y, seed)
    fits: dict[Candidate, list[Fit]] = {}
    for K in sorted(set(components or [model.components])):
        model_of_K = replace(model, components=K)
        fits |= _fits_of_folds(data, model_of_K, candidate_betas, M_in_folds, settings, options)
    # 2. Choose the best candidate, and train it on all rows.
    choice = _Choice.of(fits, metric)
    best_model = replace(model, components=choice.best.components)
    (fit_to_all,) = fit(
        X,
        y,
        best_model,
        betas=choice.best.beta,
        seeds=seed,
        settings=settings,
        test=test,
        **options,
    )
    temperature = 1.0
    if loss.objective.predicts_variance:
        temperature = _temperature(data, fits[choice.best])
    return choice.result(fit_to_all, temperature)


def _candidate_betas(betas: float | Sequence[float] | None, objective: Objective) -> list[float]:
    """Return the distinct betas from which one is selected, the largest first."""
    if betas is None:
        betas = BETAS if objective.has_beta else 1.0
    return sorted(set(checked_betas(betas, objective)), reverse=True)


class _Choice(NamedTuple):
    """The best candidate, and the losses of all candidates."""

    best: Candidate
    losses: dict[Candidate, float]
    fold_losses: dict[Candidate, list[float]]
    metric: str

    @classmethod
    def of(cls, fits: Mapping[Candidate, Sequence[Fit]], metric: str) -> "_Choice":
        """Return the candidate with the lowest loss over all folds, and the losses of all.

        Args:
            fits: For each candidate, its fits to all folds.
            metric: The name of the loss.

        Raises:
            UserError: All candidates have failed.
        """
        fold_losses = {}
        losses = {}
        for candidate, fits_of_candidate in fits.items():
            fold_losses[candidate] = _losses(fits_of_candidate, metric)
            losses[candidate] = pooled_mean(metric, fold_losses[candidate])
        best = best_candidate(losses)
        if best is None:
            raise UserError(_why_all_failed(fits, metric))
        return cls(best, losses, fold_losses, metric)

    def result(self, fit_to_all: Fit, temperature: float) -> CrossValidation:
        """Return the result of `cross_validate`, with the best candidate trained on all rows."""
        return CrossValidation(
            fit=fit_to_all,
            chosen=self.best,
            losses=self.losses,
            fold_losses=self.fold_losses,
            metric=self.metric,
            temperature=temperature,
        )


def _check_text_of_cv(
    cv: str, loss: Loss, model: Model, wants_closed_form: bool, components: Sequence[int] | None
) -> None:
    """Check that `cv` is "loo", and that rows of this model can be left out in closed form.

    Raises:
        UserError: `cv` is another text, or the rows can not be left out.
    """
    if cv != LOO:
        raise UserError(f"cv={cv}: give a number of folds, a share of the rows, or 'loo'")
    check_leave_one_out("cv=loo", loss.objective, model, wants_closed_form)
    if components and set(components) != {1}:
        raise UserError("cv=loo needs a closed form over q, which a mixture does not have")


def _by_leaving_one_out(
    X: Any,
    y: Any,
    model: Model,
    betas: list[float],
    seed: int,
    metric: str,
    options: Mapping[str, Any],
) -> CrossValidation:
    """Return the fit to all rows that predicts each row best from all others."""
    fits = fit(X, y, model, betas=betas, seeds=seed, validation=LOO, **options)
    fits_by_candidate = {Candidate(fit_of_beta.beta): [fit_of_beta] for fit_of_beta in fits}
    choice = _Choice.of(fits_by_candidate, metric)
    (best_fit,) = fits_by_candidate[choice.best]
    temperature = 1.0 if best_fit.profile is None else penalised_factor(best_fit.profile)
    return choice.result(best_fit, temperature)


@dataclass(frozen=True)
class _FoldedData:
    """One data set, with its rows in the order of the seed, and the row numbers of its folds."""

    X: Float[Tensor, "n D"]
    y: Float[Tensor, "n"]
    folds: Folds

    @classmethod
    def of(cls, X: Any, y: Any, seed: int, cv: int | float, task: str) -> "_FoldedData":
        """Return the checked rows and their folds.

        Raises:
            UserError: The rows or `cv` can't be used.
        """
        if np.ndim(X) != 2:
            raise UserError(f"X has shape {list(np.shape(X))}: give [n, D]")
        # With one seed there is one split, whose rows are in the order of the seed. Validation rows
        # come from the folds, so there are no further parts.
        ordered = checked_splits(X, y, seeds=[seed], parts={}, task=task)
        n = ordered.y.shape[1]
        is_count = isinstance(cv, Integral)
        row_numbers = folds(n, int(cv)) if is_count else fold_of_share(n, cv)
        return cls(ordered.X[0], ordered.y[0], row_numbers)


def _fits_of_folds(
    data: _FoldedData,
    model: Model,
    betas: list[float],
    M_in_folds: int | None,
    settings: Settings,
    options: Mapping[str, Any],
) -> dict[Candidate, list[Fit]]:
    """Return the fits of all folds by candidate: each beta, with the components of the model."""
    train, held_out = data.folds
    row_count = train.shape[1]
    if isinstance(model.M, Integral):
        model = replace(model, M=min(model.M, row_count, M_in_folds or row_count))
    minibatches = _limited_minibatches(options["minibatches"], row_count)
    options = {**options, "minibatches": minibatches}
    fits = fit(
        data.X[train],
        data.y[train],
        model,
        betas=betas,
        settings=replace(settings, calibration=False, evaluate_every=None),
        validation=(data.X[held_out], data.y[held_out]),
        **options,
    )
    # The fits are ordered by fold, then by beta: those of beta i are i, i + len(betas), ...
    by_candidate = {}
    for i, beta in enumerate(betas):
        by_candidate[Candidate(beta, model.components)] = fits[i :: len(betas)]
    return by_candidate


def _limited_minibatches(
    minibatches: int | Minibatches | None, limit: int
) -> int | Minibatches | None:
    """Return the minibatches with their size reduced to the limit if it is larger."""
    if minibatches is None:
        return None
    if isinstance(minibatches, Minibatches):
        return replace(minibatches, size=min(minibatches.size, limit))
    return min(minibatches, limit)


def _losses(fits: Sequence[Fit], metric: str) -> list[float]:
    """Return the mean loss on the held-out rows of each fold; NaN where training failed.

    Raises:
        UserError: There is no such metric.
    """
    known_metrics = list(fits[0].metrics["validation"])
    if metric not in known_metrics:
        raise UserError(f"metric={metric}: {nearest(metric, known_metrics)}")
    losses = []
    for fold_fit in fits:
        loss = math.nan
        if not fold_fit.failed:
            loss = fold_fit.metrics["validation"][metric]
        losses.append(loss)
    return losses


def _why_all_failed(fits: Mapping[Candidate, Sequence[Fit]], metric: str) -> str:
    """Return the message for the user when every candidate failed in some fold."""
    for fits_of_candidate in fits.values():
        for fold_fit in fits_of_candidate:
            if fold_fit.failed:
                return f"training failed in some fold at every beta: {fold_fit.stopped}"
    return f"training failed in some fold at every beta: the {metric} of its rows is not finite"


def _temperature(data: _FoldedData, fits: Sequence[Fit]) -> float:
    """Return the factor that recalibrates the predictions on the held-out rows of all folds."""
    profiles = []
    for fold_fit, held_out in zip(fits, data.folds.held_out, strict=True):
        mu, v = fold_fit.marginals(data.X[held_out])
        y = data.y[held_out][None].to(mu.dtype)
        profile = loss_profile(fold_fit.model.likelihood, fold_fit.posterior.hyper, mu, v, y)
        profiles.append(profile[0].numpy())
    return penalised_factor(np.sum(profiles, 0))
