"""Direct loss minimisation for your own GPyTorch models.

The estimators of `dlmexp.core.estimators` are here objectives of GPyTorch. `DirectLoss` takes the
place of `gpytorch.mlls.VariationalELBO` in a training loop, with any `ApproximateGP` of any batch
shape and variational strategy, full batch or minibatches:

    mll = DirectLoss(likelihood, model, num_data=len(y), beta=0.1, estimator=UPS(10))
    loss = -mll(model(x), y)
    loss.backward()

Like every objective of GPyTorch it returns what is to be *maximised*, per row: the log predictive
density `mean_i log E_q p(y_i|f_i)` less `beta / num_data * KL(q || p)` (log-loss DLM, section 2 of
the paper). `SquareLoss` is the same for `-1/2 (mu_i - y_i)^2`, `CRPSLoss` for minus the CRPS and
`RobustLoss` for the gamma-robust likelihood. `MixtureLoss` is `DirectLoss` for a q that is a
mixture of Gaussians. A whole training script is `scripts/example_mlls.py`.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import gpytorch.likelihoods as theirs
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.mlls import PredictiveLogLikelihood
from gpytorch.utils.quadrature import GaussHermiteQuadrature1D
from gpytorch.utils.warnings import GPInputWarning
from jaxtyping import Bool, Float
from linear_operator.operators import ZeroLinearOperator
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
from dlmexp.core.gp.posterior import Marginals
from dlmexp.core.likelihoods.mixture import log_mean_loss
from dlmexp.core.objectives.crps import predictive_crps
from dlmexp.core.objectives.robust import ROBUST, gamma_divergence_loss

__all__ = [
    "BMC",
    "UPS",
    "CRPSLoss",
    "DirectLoss",
    "Exact",
    "MixtureLoss",
    "PoissonExpLikelihood",
    "Quadrature",
    "RobustLoss",
    "SmoothBMC",
    "SquareLoss",
    "split_components",
]

SAMPLES = 10
"""Samples of an estimator that is given by name."""
NO_DRAWS = Draws(
    torch.zeros(1, dtype=torch.int64),
    torch.zeros((), dtype=torch.int64),
    torch.zeros((), dtype=torch.int64),
)
"""For losses that draw nothing: torch's global random state stays as it is."""


class _RowLossObjective(PredictiveLogLikelihood):
    """GPyTorch's objective for approximate GPs, with fit and penalty of a subclass.

    It derives from one of GPyTorch's own so that what dispatches on these takes it too.
    """

    takes_tasks: ClassVar[bool] = True
    """Whether a row may have several latent functions, each with a target: they count as rows."""
    _has_checked = False

    @abstractmethod
    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the losses summed over rows."""

    def likelihood_of_rows(self, q: MultivariateNormal, **kwargs: Any) -> ours.Likelihood:
        """Return our likelihood with the current parameters of GPyTorch's (`translate`)."""
        return translate(self.likelihood, q, **kwargs)

    def penalty(self) -> Float[Tensor, "*B"]:
        """Return the penalty that beta weighs: KL(q || p)."""
        strategy: Any = self.model.variational_strategy
        return strategy.kl_divergence()

    def forward(
        self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the objective [*batch], to be maximised; it is called as `mll(model(x), y)`.

        Args:
            approximate_dist_f: q(f) at the rows of this step, the model's output: [*batch, N], or
                [*batch, N, T] with T tasks.
            target: Their targets [N] or [*batch, N] (or with T tasks): numbers, counts, or labels 0
                and 1 (or -1 and 1).
            **kwargs: What the likelihood takes, such as `noise=` of these rows for GPyTorch's
                `FixedNoiseGaussianLikelihood`.

        Returns:
            A value per row and model of the batch, [*batch]; with `combine_terms=False` a tuple of
            its terms: fit, penalty (to be subtracted), log prior, and added losses where the model
            has some.

        Raises:
            UserError: A target has another shape, or a value that the likelihood does not allow.
        """
        q = approximate_dist_f
        if len(q.event_shape) > 1 and not self.takes_tasks:
            raise UserError(
                f"{type(self).__name__} needs one latent function per row: "
                "a MultivariateNormal, not a multitask one"
            )
        likelihood = self.likelihood_of_rows(q, **kwargs)
        mu, v, y = marginals_and_targets(q, target)
        # On a GPU it would wait for the device in every step.
        if not (y.is_cuda and self._has_checked):
            check_values(y, likelihood, type(self.likelihood).__name__)
            self._has_checked = True
        fit = self.fit(likelihood, mu, v, y).div(q.event_shape[0])
        penalty = self.penalty() * self.beta / self.num_data
        log_prior = torch.zeros_like(fit)
        for _, module, prior, closure, _ in self.named_priors():
            log_prior.add_(prior.log_prob(closure(module)).sum().div(self.num_data))
        added_losses = [added.loss() for added in self.model.added_loss_terms()]
        added_loss = torch.zeros_like(fit) + sum(added_losses)
        if self.combine_terms:
            return fit - penalty + log_prior - added_loss
        if added_losses:
            return fit, penalty, log_prior, added_loss
        return fit, penalty, log_prior


class DirectLoss(_RowLossObjective):
    """Log-loss DLM: `mean_i log E_q p(y_i|f_i) - beta / num_data * KL(q || p)`, to be maximised.

    It differs from GPyTorch's `PredictiveLogLikelihood` in one thing: `log E_q p(y_i|f_i)` and its
    gradient come from the estimator that you choose, by default exact and in log space, where
    GPyTorch takes the logarithm of the probability, by 20-node quadrature unless the likelihood has
    a closed form. Section 2 of the paper has the objective.

    Args:
        likelihood: One of GPyTorch's with Gaussian noise (`GaussianLikelihood` and what derives
            from it, fixed noise, several tasks), Bernoulli, Poisson or Student-t, or
            `PoissonExpLikelihood`. Any other one-dimensional likelihood, your own too, is
            integrated by quadrature, and can't be drawn from by uPS.
        model: Any `ApproximateGP`; one of several tasks, independent or mixed (LMC), with Gaussian
            noise.
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
            self.estimator.check(kind_of(likelihood))
        except UserError as error:
            raise UserError(f"DirectLoss with {type(likelihood).__name__}: {error}") from error

    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return sum_i log E_q p(y_i|f_i) by the estimator."""
        return -self.log_losses(likelihood, mu, v, y).sum(-1)

    def log_losses(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B N"]:
        """Return -log E_q p(y_i|f_i) per row."""
        if likelihood.task == "binary":
            y = y.clamp_min(0)  # GPyTorch's Bernoulli takes labels {-1, 1} as well as {0, 1}
        if isinstance(self.estimator, Exact | Quadrature):
            return self.estimator(likelihood, mu, v, y)
        draws = Draws.fresh(mu.shape[:-1], dtype=mu.dtype, device=mu.device)
        return self.estimator(likelihood, mu, v, y, draws)


class MixtureLoss(DirectLoss):
    """Log-loss DLM for a q that is a mixture of K Gaussians with equal weights, to be maximised.

    It is `mean_i log 1/K sum_k E_k p(y_i|f_i) - beta / num_data * 1/K sum_k KL(q_k || p)`
    (docs/SPEC.md, section 2). The components are the last dimension of a batch of q, `[*batch, K]`;
    kernel, mean and inducing inputs may have it or be shared by all components.

    Components that start at random may each take a part of the rows and never come back. So train a
    model with one Gaussian by `DirectLoss` first, and let `split_components` start the mixture from
    it. The predictive distribution is the mean over components of `likelihood(model(x))`.

    Args:
        likelihood: As for `DirectLoss`.
        model: An `ApproximateGP` whose variational distribution has a batch of K components.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the batch shape
            without the components.
        estimator: "exact" or "quadrature", of each component.
        combine_terms: False: the terms are returned one by one, as in GPyTorch.

    Raises:
        UserError: As for `DirectLoss`, or the estimator draws samples.

    Example:
        ```python
        from dlmexp.mlls import MixtureLoss, split_components

        split_components(model, single)  # `single` is trained and has one Gaussian
        mll = MixtureLoss(likelihood, model, num_data=len(y))
        loss = -mll(model(x), y)
        loss.backward()
        ```
    """

    takes_tasks = False

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
        estimator: str | Estimator = "exact",
        combine_terms: bool = True,
    ) -> None:
        super().__init__(likelihood, model, num_data, beta, estimator, combine_terms)
        if not isinstance(self.estimator, Exact | Quadrature):
            raise UserError(
                f"MixtureLoss with estimator '{self.estimator.name}', which draws samples: "
                "give exact or quadrature"
            )

    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*BK N"],
        v: Float[Tensor, "*BK N"],
        y: Float[Tensor, "*BK N"],
    ) -> Float[Tensor, "*B"]:
        """Return sum_i log 1/K sum_k E_k p(y_i|f_i).

        Raises:
            UserError: the model has no batch of components.
        """
        if mu.ndim < 2:
            raise UserError(
                "MixtureLoss needs a model with a batch of components: give its variational "
                "distribution batch_shape=torch.Size([K])"
            )
        return -log_mean_loss(self.log_losses(likelihood, mu, v, y)).sum(-1)

    def penalty(self) -> Float[Tensor, "*B"]:
        """Return the mean over components of KL(q_k || p)."""
        return super().penalty().mean(-1)


@torch.no_grad()
def split_components(model: torch.nn.Module, single: torch.nn.Module) -> None:
    """Start a mixture from a trained model with one Gaussian.

    Every component gets the parameters of the single model. Then the mean of each is drawn from the
    single Gaussian, from torch's global random state.

    Args:
        model: An `ApproximateGP` with a batch [K] of components.
        single: The same model without that dimension.

    Raises:
        UserError: The parameters of the models do not fit, or q has no mean and factor of its own
            (`CholeskyVariationalDistribution` has).
    """
    values = model.state_dict()
    _copy_to_components(single.state_dict(), values)
    means = [name for name in values if name.endswith("variational_mean")]
    factors = [name for name in values if name.endswith("chol_variational_covar")]
    if not means or len(means) != len(factors):
        raise UserError("split_components needs a CholeskyVariationalDistribution")
    for mean, factor in zip(means, factors, strict=True):
        # m_k = m + L e_k
        L = values[factor].tril()
        draws = torch.randn_like(values[mean]).unsqueeze(-1)
        shift = (L @ draws).squeeze(-1)
        values[mean].add_(shift)


def _copy_to_components(of_single: Mapping[str, Tensor], of_mixture: Mapping[str, Tensor]) -> None:
    """Copy the parameters of a model to every component of a mixture.

    Raises:
        UserError: The models have other parameters, or shapes that differ in more than the
            dimension of the components.
    """
    for name, value in of_mixture.items():
        shape = getattr(of_single.get(name), "shape", None)
        if shape is None or shape not in (value.shape, value.shape[1:]):
            raise UserError(
                f"'{name}' of the two models does not fit: they may differ in a single batch "
                "dimension, that of the components"
            )
        value.copy_(of_single[name])


class CRPSLoss(_RowLossObjective):
    """Minus the mean CRPS of the predictive distribution, less `beta / num_data * KL(q || p)`.

    The continuous ranked probability score is in the unit of the target and grows with the distance
    of a target where the log loss grows with its square (Gneiting and Raftery 2007).

    Args:
        likelihood: GPyTorch's `GaussianLikelihood`.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.

    Raises:
        UserError: The likelihood is another one, or beta is negative.
    """

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
    ):
        _check(likelihood=likelihood, model=model, beta=beta)
        _check_gaussian("CRPSLoss", likelihood)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]

    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the CRPS summed over rows."""
        q_f = Marginals(mu, v)
        loss, _ = predictive_crps(likelihood, Exact(), q_f, y, NO_DRAWS)
        return -loss.sum(-1)


class RobustLoss(_RowLossObjective):
    """The gamma-robust likelihood of a row, less `beta / num_data * KL(q || p)`, to be maximised.

    A row far from its prediction weighs next to nothing. With beta = 1 it is GPyTorch's
    `GammaRobustVariationalELBO`, computed in log space.

    Args:
        likelihood: GPyTorch's `GaussianLikelihood`.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.
        gamma: Of the divergence, above 1 and at most 2; the larger, the less outliers weigh.

    Raises:
        UserError: The likelihood is another one, beta is negative, or gamma is not in its range.
    """

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
        gamma: float = 1.03,
    ):
        _check(likelihood=likelihood, model=model, beta=beta)
        _check_gaussian("RobustLoss", likelihood)
        ROBUST.options["gamma"].check("gamma", gamma)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]
        self.gamma = gamma

    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the losses summed over rows."""
        q_f = Marginals(mu, v)
        loss, _ = gamma_divergence_loss(likelihood, Exact(), q_f, y, NO_DRAWS, self.gamma)
        return -loss.sum(-1)


def _check_gaussian(objective: str, likelihood: torch.nn.Module) -> None:
    """Raise UserError unless the noise is Gaussian."""
    if kind_of(likelihood) is not ours.Gaussian:
        raise UserError(
            f"{objective} with {type(likelihood).__name__}: it needs Gaussian noise, "
            "GaussianLikelihood"
        )


class SquareLoss(_RowLossObjective):
    """Square-loss DLM: `-mean_i 1/2 (mu_i - y_i)^2 - beta / num_data * 1/2 |m|^2`, to be maximised.

    m is the mean of q in whitened coordinates (section 2 of the paper): for an unwhitened strategy,
    `|m|^2` is `(m - mean)^T Kuu^-1 (m - mean)`. It is the part of the KL that depends on m. Nothing
    here depends on q's covariance or on the likelihood's noise, so neither is learned.

    Args:
        likelihood: Only the priors that it may have are used.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the penalty, at least 0; a number, or a tensor of the model's batch
            shape.
    """

    takes_tasks = False

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
    ):
        _check(likelihood=likelihood, model=model, beta=beta)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]

    def likelihood_of_rows(self, q: MultivariateNormal, **kwargs: Any) -> ours.Likelihood:
        """Return Gaussian noise, which the square loss does not read."""
        return ours.Gaussian(q.mean.new_ones(1))

    def fit(
        self,
        likelihood: ours.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return -sum_i 1/2 (mu_i - y_i)^2."""
        return -0.5 * (mu - y).square().sum(-1)

    def penalty(self) -> Float[Tensor, "*B"]:
        """Return 1/2 |m|^2 in whitened coordinates."""
        strategy: Any = self.model.variational_strategy
        q = strategy.variational_distribution
        p = strategy.prior_distribution
        difference = (q.mean - p.mean).unsqueeze(-1)
        return 0.5 * p.lazy_covariance_matrix.inv_quad(difference)


def _check(beta: float | Tensor, **arguments: object) -> None:
    """Check the arguments of an objective.

    Raises:
        UserError: a class was given in place of an object, or beta is negative.
    """
    for name, value in arguments.items():
        if isinstance(value, type):
            raise UserError(
                f"{name}={value.__name__}: give an object, {value.__name__}(...), "
                "in place of the class"
            )
    if not bool((torch.as_tensor(beta) >= 0).all()):
        raise UserError(f"beta={beta}: give a number that is at least 0")


def _named(name: str) -> Estimator:
    """Return the estimator of that name; its `samples`, where it needs some, are `SAMPLES`.

    Raises:
        UserError: it is unknown, or needs other options too.
    """
    estimator = ESTIMATORS[name]
    required = [option.name for option in fields(estimator) if option.default is MISSING]
    unknown = [option for option in required if option != "samples"]
    if unknown:
        raise UserError(
            f"estimator={name!r} needs {', '.join(unknown)}: "
            f"give an object, {estimator.__name__}(...)"
        )
    return estimator(**dict.fromkeys(required, SAMPLES))


def marginals_and_targets(
    q: MultivariateNormal, target: Tensor
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """Return mu, v of q(f_i), and the targets in their dtype and shape: all [*B, N].

    The tasks of a row follow each other, as rows of their own.

    Raises:
        UserError: the targets have another shape.
    """
    mu = q.mean
    shape = list(target.shape)
    tasks = len(q.event_shape) - 1
    try:
        y = target.to(mu.dtype).expand_as(mu)
    except RuntimeError:
        y = None
    # Of the dimensions of rows and tasks none is expanded.
    if y is None or shape[-1 - tasks :] != list(q.event_shape):
        raise UserError(
            f"the targets are {shape} and the model's output is {list(mu.shape)}: give a target "
            f"for each row, {list(q.event_shape)}"
        )
    if tasks:
        return mu.flatten(-2), q.variance.flatten(-2), y.flatten(-2)
    return mu, q.variance, y


def check_values(y: Tensor, likelihood: ours.Likelihood, name: str) -> None:
    """Check the targets of a likelihood.

    Raises:
        UserError: one is not finite, or is no label or count where the likelihood needs them.
    """
    allowed = y.isfinite()
    needed = "finite numbers"
    if likelihood.task == "binary":
        allowed = (y == 0) | (y == 1) | (y == -1)
        needed = "labels 0 and 1 (or -1 and 1)"
    elif likelihood.task == "count":
        allowed &= (y >= 0) & (y == y.floor())
        needed = "counts 0, 1, 2, ..."
    if not bool(allowed.all()):
        wrong = float(y[~allowed].flatten()[0])
        raise UserError(f"a target is {wrong:g}: {name} takes {needed}")


class PoissonExpLikelihood(theirs.Likelihood):
    """y ~ Poisson(exp(f)), a link that GPyTorch does not have.

    It works with GPyTorch's objectives too, by quadrature.
    """

    def __init__(self) -> None:
        super().__init__()
        self.quadrature = GaussHermiteQuadrature1D()

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Poisson:
        """Return p(y|f) at samples of f."""
        return Poisson(function_samples.exp())

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Return E_q log p(y|f) per row, for GPyTorch's `VariationalELBO`."""
        return self.quadrature(lambda f: self.forward(f).log_prob(observations), function_dist)

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Return log E_q p(y|f) per row, for GPyTorch's `PredictiveLogLikelihood`."""
        probability = self.quadrature(
            lambda f: self.forward(f).log_prob(observations).exp(), function_dist
        )
        return probability.log()


@dataclass(frozen=True)
class ByQuadrature(ours.Likelihood):
    """Any likelihood of GPyTorch with one latent function, through its `forward`.

    `forward` takes samples [L, *batch, N].
    """

    name: ClassVar[str] = "gpytorch"
    module: theirs.Likelihood
    samples_first: bool = False

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|f) of rows [..., N], or of samples [..., L, N]."""
        if not self.samples_first:
            return self.module(f).log_prob(y)
        log_p = self.module(f.movedim(-2, 0)).log_prob(y.movedim(-2, 0))
        return log_p.movedim(0, -2)

    def over_samples(self) -> Self:
        """Return the likelihood for samples [..., L, N]."""
        return replace(self, samples_first=True)

    def at_rows(self, rows: Bool[Tensor, "*B N"]) -> None:
        """Return None: the module's parameters have its own shapes."""
        return


class Translation(NamedTuple):
    """Our class for a likelihood of GPyTorch, and how an object of it is made."""

    kind: type[ours.Likelihood]
    make: Callable[[Any], ours.Likelihood]


TRANSLATIONS: dict[type, Translation] = {
    theirs.BernoulliLikelihood: Translation(ours.Probit, lambda l: ours.Probit()),
    theirs.StudentTLikelihood: Translation(
        ours.StudentT, lambda l: ours.StudentT(l.noise.sqrt(), l.deg_free)
    ),
    PoissonExpLikelihood: Translation(ours.Poisson, lambda l: ours.Poisson()),
}
if hasattr(theirs, "PoissonLikelihood"):  # not in GPyTorch's older versions
    TRANSLATIONS[theirs.PoissonLikelihood] = Translation(
        ours.PoissonSoftplus, lambda l: ours.PoissonSoftplus()
    )


def kind_of(likelihood: torch.nn.Module) -> type[ours.Likelihood]:
    """Return our class for a likelihood of GPyTorch.

    Whatever has Gaussian noise is Gaussian, as in GPyTorch's objectives. Of the others exact types
    only: a subclass may mean something else, and is integrated by quadrature.

    Raises:
        UserError: it is none of those, and GPyTorch has no quadrature for it.
    """
    if isinstance(likelihood, _GaussianLikelihoodBase):
        return ours.Gaussian
    if type(likelihood) in TRANSLATIONS:
        return TRANSLATIONS[type(likelihood)].kind
    # GPyTorch's likelihoods of one latent function have a quadrature over it.
    has_quadrature = isinstance(getattr(likelihood, "quadrature", None), GaussHermiteQuadrature1D)
    if isinstance(likelihood, theirs.Likelihood) and has_quadrature:
        return ByQuadrature
    valid = ", ".join(["GaussianLikelihood", *(kind.__name__ for kind in TRANSLATIONS)])
    raise UserError(
        f"there is no direct loss for {type(likelihood).__name__}: use one of {valid}, "
        "or derive your own from gpytorch.likelihoods.LaplaceLikelihood, "
        "which is integrated by quadrature"
    )


def translate(likelihood: Any, q: MultivariateNormal, **kwargs: Any) -> ours.Likelihood:
    """Return our likelihood of the rows of q, with GPyTorch's parameters and their gradients.

    Args:
        likelihood: GPyTorch's.
        q: The model's output at these rows.
        kwargs: What the likelihood takes, such as `noise=`.

    Raises:
        UserError: there is none (`kind_of`), not for several tasks, or the noise of these rows is
            not known.
    """
    kind = kind_of(likelihood)
    if kind is ours.Gaussian:
        return ours.Gaussian(_noise_of_rows(likelihood, q, kwargs))
    if len(q.event_shape) > 1:
        raise UserError(
            f"{type(likelihood).__name__} with several tasks: they need Gaussian noise, such as "
            "MultitaskGaussianLikelihood"
        )
    if kind is ByQuadrature:
        return ByQuadrature(likelihood)
    return TRANSLATIONS[type(likelihood)].make(likelihood)


def _noise_of_rows(
    likelihood: _GaussianLikelihoodBase, q: MultivariateNormal, kwargs: dict[str, Any]
) -> Tensor:
    """Return the noise variance of every row, which broadcasts to [*B, N]; task by task.

    Raises:
        UserError: fixed noise was given for other rows.
    """
    if type(likelihood) is theirs.GaussianLikelihood:
        return likelihood.noise
    if isinstance(q, MultitaskMultivariateNormal):
        kwargs = {**kwargs, "interleaved": q._interleaved}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPInputWarning)
        covariance = likelihood._shaped_noise_covar(q.mean.shape, **kwargs)
    if isinstance(covariance, ZeroLinearOperator):
        raise UserError(
            f"{type(likelihood).__name__} has the noise of other rows: give that of these, "
            "mll(model(x), y, noise=...)"
        )
    noise = covariance.diagonal(dim1=-1, dim2=-2)
    if isinstance(q, MultitaskMultivariateNormal) and not q._interleaved:
        # [*B, T, N] -> [*B, N, T]
        rows, tasks = q.event_shape
        noise = noise.unflatten(-1, (tasks, rows)).mT.flatten(-2)
    return noise
