"""Direct loss minimisation for your own GPyTorch models: the estimators of `dlmexp.core.estimators`
as GPyTorch objectives.

`DirectLoss` takes the place of `gpytorch.mlls.VariationalELBO` in a training loop, with any
`ApproximateGP` of any batch shape and variational strategy, full batch or minibatches:

    mll = DirectLoss(likelihood, model, num_data=len(y), beta=0.1, estimator=UPS(10))
    loss = -mll(model(x), y)
    loss.backward()

Like every objective of GPyTorch it returns what is to be *maximised*, per row: the log predictive
density `mean_i log E_q p(y_i|f_i)` less `beta / num_data * KL(q || p)` (log-loss DLM, section 2 of
the paper). `SquareLoss` is the same for `-1/2 (mu_i - y_i)^2`. A whole training script is
`scripts/example_mlls.py`."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Self

import gpytorch.likelihoods as theirs
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood
from gpytorch.mlls._approximate_mll import _ApproximateMarginalLogLikelihood
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Poisson

from dlmexp.common.errors import UserError
from dlmexp.core import likelihoods as ours
from dlmexp.core.estimators import (
    BMC,
    ESTIMATORS,
    UPS,
    Draws,
    Estimator,
    Exact,
    Quadrature,
    SmoothBMC,
)

__all__ = [
    "BMC",
    "UPS",
    "DirectLoss",
    "Exact",
    "PoissonExpLikelihood",
    "Quadrature",
    "SmoothBMC",
    "SquareLoss",
]

SAMPLES = 10  # of an estimator given by name


class DirectLoss(_ApproximateMarginalLogLikelihood):
    """Log-loss DLM: `mean_i log E_q p(y_i|f_i) - beta / num_data * KL(q || p)`, to be maximised
    (section 2).

    With a Gaussian or Bernoulli likelihood and the exact estimator it is GPyTorch's
    `PredictiveLogLikelihood`, except that the Bernoulli's tails do not underflow.

    Args:
        likelihood: GPyTorch's Gaussian, Bernoulli, Poisson or Student-t, or `PoissonExpLikelihood`.
            Any other one-dimensional likelihood, your own too, is integrated by quadrature, and
            can't be drawn from by uPS.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.
        estimator: How the log loss and its gradient are computed (docs/SPEC.md, section 4): an
            estimator such as `BMC(10)`, `SmoothBMC(10, nu=1e-4)` or `UPS(10)`, or a name:
            `"exact"`, `"quadrature"`, `"bmc"`, `"smooth_bmc"`, `"ups"`, those with samples with 10.
            Draws come from torch's global random state (`torch.manual_seed`).
        combine_terms: False: the terms are returned one by one, as in GPyTorch.

    Raises:
        UserError: There is no direct loss for this likelihood, no such estimator, or beta is
            negative.

    Example:
        ```python
        from dlmexp.mlls import UPS, DirectLoss

        mll = DirectLoss(likelihood, model, num_data=len(y), beta=0.1, estimator=UPS(10))
        loss = -mll(model(x), y)
        loss.backward()
        ```
    """

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
        estimator: str | Estimator = "exact",
        combine_terms: bool = True,
    ) -> None:
        _check(likelihood=likelihood, model=model, estimator=estimator, beta=beta)
        super().__init__(likelihood, model, num_data, beta, combine_terms)  # pyright: ignore[reportArgumentType]
        self.estimator = _named(estimator) if isinstance(estimator, str) else estimator
        try:  # now rather than at the first step
            self.estimator.check(type(translate(likelihood)))
        except UserError as error:
            raise UserError(f"DirectLoss with {type(likelihood).__name__}: {error}") from error

    def forward(
        self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any
    ) -> Tensor:
        """The objective, which is to be maximised; it is called as `mll(model(x), y)`.

        Args:
            approximate_dist_f: q(f) at the rows of this step, what the model returns: [*batch, N].
            target: Their targets [N] or [*batch, N]: numbers, counts, or labels 0 and 1 (or -1 and
                1).
            **kwargs: Handed on to GPyTorch's own objective, which has no use for any here.

        Returns:
            A value per row and model of the batch, [*batch]; with `combine_terms=False` a tuple of
            its terms: log loss, KL (to be subtracted), log prior, and added losses where the model
            has some."""
        return super().forward(approximate_dist_f, target, **kwargs)  # pyright: ignore[reportReturnType]

    def _log_likelihood_term(
        self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any
    ) -> Tensor:
        mu, v, y = marginals_and_targets(approximate_dist_f, target)
        likelihood = translate(self.likelihood)
        if likelihood.task == "binary":
            y = y.clamp_min(0)  # GPyTorch's Bernoulli takes labels {-1, 1} as well as {0, 1}
        draws = Draws.fresh(mu.shape[:-1], dtype=mu.dtype, device=mu.device)
        return -self.estimator(likelihood, mu, v, y, draws).sum(-1)


class SquareLoss(_ApproximateMarginalLogLikelihood):
    """Square-loss DLM: `-mean_i 1/2 (mu_i - y_i)^2 - beta / num_data * 1/2 |m|^2`, to be maximised
    (section 2).

    m is the mean of q in whitened coordinates: for an unwhitened strategy, `|m|^2` is `(m - mean)^T
    Kuu^-1 (m - mean)`. It is the part of the KL that depends on m. Nothing here depends on q's
    covariance or on the likelihood's noise, so neither is learned.

    Args:
        likelihood: Only the priors that it may have are used.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the penalty, at least 0; a number, or a tensor of the model's batch
    shape."""

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
    ):
        _check(likelihood=likelihood, model=model, beta=beta)
        super().__init__(likelihood, model, num_data, beta, combine_terms=False)  # pyright: ignore[reportArgumentType]

    def _log_likelihood_term(
        self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any
    ) -> Tensor:
        mu, _, y = marginals_and_targets(approximate_dist_f, target)
        return -0.5 * (mu - y).square().sum(-1)

    def forward(
        self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any
    ) -> Tensor:
        """The objective [*batch], which is to be maximised, of q(f) [*batch, N] and targets [N] or
        [*batch, N]."""
        fit, _, log_prior, *added = super().forward(approximate_dist_f, target, **kwargs)
        strategy: Any = self.model.variational_strategy
        q, p = strategy.variational_distribution, strategy.prior_distribution
        penalty = 0.5 * p.lazy_covariance_matrix.inv_quad((q.mean - p.mean).unsqueeze(-1))
        return fit - penalty * self.beta / self.num_data + log_prior - sum(added)


def _check(beta: float | Tensor, **given: object) -> None:
    for name, value in given.items():
        if isinstance(value, type):
            raise UserError(
                f"{name}={value.__name__}: give an object, {value.__name__}(...), in place of the class"
            )
    if not bool((torch.as_tensor(beta) >= 0).all()):
        raise UserError(f"beta={beta}: give a number that is at least 0")


def _named(name: str) -> Estimator:
    """The estimator of that name; its `samples`, where it needs some, are `SAMPLES`."""
    required = [option.name for option in fields(ESTIMATORS[name]) if option.default is MISSING]
    if unknown := [option for option in required if option != "samples"]:
        raise UserError(
            f"estimator={name!r} needs {', '.join(unknown)}: give an object, {ESTIMATORS[name].__name__}(...)"
        )
    return ESTIMATORS[name](**dict.fromkeys(required, SAMPLES))


def marginals_and_targets(
    q: MultivariateNormal, target: Tensor
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """mu, v of q(f_i), and the targets in their dtype and shape."""
    if len(q.event_shape) != 1:
        raise UserError(
            "direct loss needs one latent function per row: a MultivariateNormal, not a multitask one"
        )
    return q.mean, q.variance, target.to(q.mean.dtype).expand_as(q.mean)


class PoissonExpLikelihood(_OneDimensionalLikelihood):
    """y ~ Poisson(exp(f)), a link that GPyTorch does not have; it works with GPyTorch's objectives
    too."""

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Poisson:
        return Poisson(function_samples.exp())


@dataclass(frozen=True)
class ByQuadrature(ours.Likelihood):
    """Any one-dimensional likelihood of GPyTorch, through what its `forward` says of samples [L,
    *batch, N]."""

    name: ClassVar[str] = "gpytorch"
    module: _OneDimensionalLikelihood
    samples_first: bool = False

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        if not self.samples_first:
            return self.module(f).log_prob(y)
        return self.module(f.movedim(-2, 0)).log_prob(y.movedim(-2, 0)).movedim(0, -2)

    def over_samples(self) -> Self:
        return replace(self, samples_first=True)


TRANSLATIONS: dict[type, Callable[[Any], ours.Likelihood]] = {
    theirs.GaussianLikelihood: lambda l: ours.Gaussian(l.noise),
    theirs.BernoulliLikelihood: lambda l: ours.Probit(),
    theirs.StudentTLikelihood: lambda l: ours.StudentT(l.noise.sqrt(), l.deg_free),
    PoissonExpLikelihood: lambda l: ours.Poisson(),
}
if hasattr(theirs, "PoissonLikelihood"):  # not in GPyTorch's older versions
    TRANSLATIONS[theirs.PoissonLikelihood] = lambda l: ours.PoissonSoftplus()


def translate(likelihood: torch.nn.Module) -> ours.Likelihood:
    """Our likelihood with the current parameters of GPyTorch's (still attached to their gradients).
    Exact types only: a subclass may mean something else, and is integrated by quadrature."""
    if type(likelihood) in TRANSLATIONS:
        return TRANSLATIONS[type(likelihood)](likelihood)
    if isinstance(likelihood, _OneDimensionalLikelihood):
        return ByQuadrature(likelihood)
    valid = ", ".join(kind.__name__ for kind in TRANSLATIONS)
    raise UserError(
        f"there is no direct loss for {type(likelihood).__name__}: use one of {valid}, or derive your own from "
        "gpytorch.likelihoods.likelihood._OneDimensionalLikelihood"
    )
