"""Direct loss minimisation for your own GPyTorch models.

This module has the objectives of `dlmexp` as objectives of GPyTorch, with the estimators of
`dlmexp.core.estimators`. In a training loop, `DirectLoss` takes the place of
`gpytorch.mlls.VariationalELBO`. It works with any `ApproximateGP`, of any batch shape and
variational strategy, with all rows in each step or with minibatches:

    mll = DirectLoss(likelihood, model, num_data=len(y), beta=0.1, estimator=UPS(10))
    loss = -mll(model(x), y)
    loss.backward()

Like every objective of GPyTorch, it returns the mean over rows of a quantity that is to be
*maximised*: the log predictive density minus the penalty,
`mean_i log E_q p(y_i|f_i) - beta / num_data * KL(q || p)` (log-loss DLM, section 2 of the paper).
In place of `log E_q p(y_i|f_i)`, `SquareLoss` has `-1/2 (mu_i - y_i)^2`, `CRPSLoss` has minus the
CRPS, and `RobustLoss` has the gamma-robust likelihood. `MixtureLoss` is `DirectLoss` for a q that
is a mixture of Gaussians. `scripts/example_mlls.py` is a complete training script.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import gpytorch.likelihoods as gpytorch_likelihoods
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
from dlmexp.core import likelihoods
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
"""Number of samples of an estimator that the user chooses by its name."""
NO_DRAWS = Draws(
    seeds=torch.zeros(1, dtype=torch.int64),
    index=torch.zeros((), dtype=torch.int64),
    iteration=torch.zeros((), dtype=torch.int64),
)
"""The argument `draws` for losses that use no random numbers. `Draws.fresh` would change torch's
global random state."""


class _RowLossObjective(PredictiveLogLikelihood):
    """An objective of GPyTorch for approximate GPs: a fit term minus a penalty.

    Subclasses define the fit term, and may define another penalty. This is a subclass of one of
    GPyTorch's objectives, because other libraries (such as BoTorch) decide by the class of an
    objective how to train a model.
    """

    takes_tasks: ClassVar[bool] = True
    """Whether a row may have several tasks: latent functions with a target each. Each task of a row
    then counts as a row."""
    _targets_checked = False

    @abstractmethod
    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the sum of the rows' losses."""

    def likelihood_of_rows(self, q: MultivariateNormal, **kwargs: Any) -> likelihoods.Likelihood:
        """Return `self.likelihood` as a likelihood of `dlmexp`, with its current parameters.

        Args:
            q: q(f) at the rows of this step.
            **kwargs: Arguments of the likelihood, such as `noise=`.
        """
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
            target: The targets of these rows, [N] or [*batch, N], with T tasks [N, T] or
                [*batch, N, T]: numbers, counts, or labels 0 and 1 (or -1 and 1).
            **kwargs: Arguments of the likelihood, such as the `noise=` of these rows for GPyTorch's
                `FixedNoiseGaussianLikelihood`.

        Returns:
            The objective of every model of the batch, [*batch]. With `combine_terms=False`, a tuple
            of its terms: fit, penalty (to be subtracted), log prior, and the added loss terms of
            the model (to be subtracted), if it has any.

        Raises:
            UserError: A target has another shape, or a value that the likelihood does not allow.
        """
        q = approximate_dist_f
        if len(q.event_shape) > 1 and not self.takes_tasks:
            raise UserError(
                f"{type(self).__name__} needs one latent function per row: "
                "a MultivariateNormal, not a multitask one"
            )
        # 1. The likelihood and the targets
        likelihood = self.likelihood_of_rows(q, **kwargs)
        mu, v, y = marginals_and_targets(q, target)
        # On a GPU, the check has to wait for pending computations: check only the first step.
        if not (y.is_cuda and self._targets_checked):
            check_values(y, likelihood, type(self.likelihood).__name__)
            self._targets_checked = True
        # 2. The terms of the objective, per row: N rows in this step, `num_data` rows in all
        n_rows = q.event_shape[0]
        fit = self.fit_term(likelihood, mu, v, y).div(n_rows)
        penalty = self.penalty() * self.beta / self.num_data
        log_prior = torch.zeros_like(fit)
        for _, module, prior, closure, _ in self.named_priors():
            log_prior.add_(prior.log_prob(closure(module)).sum().div(self.num_data))
        added_losses = [term.loss() for term in self.model.added_loss_terms()]
        added_loss = torch.zeros_like(fit) + sum(added_losses)
        if self.combine_terms:
            return fit - penalty + log_prior - added_loss
        if added_losses:
            return fit, penalty, log_prior, added_loss
        return fit, penalty, log_prior


class DirectLoss(_RowLossObjective):
    """Log-loss DLM: `mean_i log E_q p(y_i|f_i) - beta / num_data * KL(q || p)`, to be maximised.

    It differs from GPyTorch's `PredictiveLogLikelihood` in one thing. Here, the estimator that you
    choose computes `log E_q p(y_i|f_i)` and its gradient in log space; by default it is exact.
    GPyTorch takes the logarithm of the probability, which it computes by 20-node quadrature unless
    the likelihood has a closed form. The objective is in section 2 of the paper.

    Args:
        likelihood: One of GPyTorch's likelihoods with Gaussian noise (`GaussianLikelihood` and its
            subclasses, fixed noise, several tasks), Bernoulli, Poisson or Student-t, or
            `PoissonExpLikelihood`. Any other one-dimensional likelihood, also your own, is
            integrated by quadrature, and can't be combined with uPS.
        model: Any `ApproximateGP`. It may have several tasks, independent or mixed (LMC), if the
            noise is Gaussian.
        num_data: The number of all training rows, also if a step has a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.
        estimator: How the log loss and its gradient are computed (docs/SPEC.md, section 4): an
            estimator such as `BMC(10)`, `SmoothBMC(10, nu=1e-4)` or `UPS(10)`, or a name:
            `"exact"`, `"quadrature"`, `"bmc"`, `"smooth_bmc"`, `"ups"`; the last three then draw 10
            samples. Draws come from torch's global random state (`torch.manual_seed`).
        combine_terms: Whether to return the objective itself; otherwise its terms, as in GPyTorch.

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
        _check_arguments(likelihood=likelihood, model=model, estimator=estimator, beta=beta)
        super().__init__(likelihood, model, num_data, beta, combine_terms)  # pyright: ignore[reportArgumentType]
        self.estimator = _estimator_named(estimator) if isinstance(estimator, str) else estimator
        # Raise errors here rather than at the first step.
        try:
            self.estimator.check(likelihood_class(likelihood))
        except UserError as error:
            raise UserError(f"DirectLoss with {type(likelihood).__name__}: {error}") from error

    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return sum_i log E_q p(y_i|f_i) by the estimator."""
        return -self.log_losses(likelihood, mu, v, y).sum(-1)

    def log_losses(
        self,
        likelihood: likelihoods.Likelihood,
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

    If components start at random, each may learn to explain only a part of the rows. So first train
    a model with one Gaussian by `DirectLoss`, and then let `split_components` start the mixture
    from it. The predictive distribution is the mean over components of `likelihood(model(x))`.

    Args:
        likelihood: Any likelihood that `DirectLoss` accepts for one latent function per row.
        model: An `ApproximateGP` whose variational distribution has a batch of K components.
        num_data: The number of all training rows, also if a step has a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the batch shape
            without the dimension of components.
        estimator: The estimator for each component: "exact" or "quadrature".
        combine_terms: Whether to return the objective itself; otherwise its terms, as in GPyTorch.

    Raises:
        UserError: An argument is one that `DirectLoss` refuses, or the estimator draws samples.

    Example:
        ```python
        from dlmexp.mlls import MixtureLoss, split_components

        split_components(model, single)  # `single` is a trained model with one Gaussian
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

    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
        mu: Float[Tensor, "*BK N"],
        v: Float[Tensor, "*BK N"],
        y: Float[Tensor, "*BK N"],
    ) -> Float[Tensor, "*B"]:
        """Return sum_i log 1/K sum_k E_k p(y_i|f_i).

        Raises:
            UserError: The model has no batch of components.
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

    Every component gets the parameters of the single model. Then the mean of each component is
    drawn from the single Gaussian, with torch's global random state.

    Args:
        model: An `ApproximateGP` with a batch [K] of components; it is changed.
        single: The same model without that dimension.

    Raises:
        UserError: The parameters of the models do not fit together, or q is not a
            `CholeskyVariationalDistribution`.
    """
    values = model.state_dict()
    _copy_to_components(single=single.state_dict(), mixture=values)
    means = [name for name in values if name.endswith("variational_mean")]
    factors = [name for name in values if name.endswith("chol_variational_covar")]
    if not means or len(means) != len(factors):
        raise UserError("split_components needs a CholeskyVariationalDistribution")
    for mean, factor in zip(means, factors, strict=True):
        # m_k = m + L e_k
        L = values[factor].tril()
        e = torch.randn_like(values[mean]).unsqueeze(-1)
        values[mean].add_((L @ e).squeeze(-1))


def _copy_to_components(single: Mapping[str, Tensor], mixture: Mapping[str, Tensor]) -> None:
    """Copy the parameters of a single model to every component of a mixture.

    Raises:
        UserError: The mixture has a parameter that the single model does not have, or shapes differ
            in more than the dimension of components.
    """
    for name, value in mixture.items():
        shape = getattr(single.get(name), "shape", None)
        if shape is None or shape not in (value.shape, value.shape[1:]):
            raise UserError(
                f"'{name}' of the two models does not fit: they may differ in a single batch "
                "dimension, that of the components"
            )
        value.copy_(single[name])  # broadcasts to all components


class CRPSLoss(_RowLossObjective):
    """`-mean_i CRPS_i - beta / num_data * KL(q || p)`, to be maximised.

    The CRPS is the continuous ranked probability score of the predictive distribution, in the unit
    of the target. It grows linearly with the distance between target and prediction; the log loss
    grows with its square (Gneiting and Raftery 2007).

    Args:
        likelihood: GPyTorch's `GaussianLikelihood`.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of all training rows, also if a step has a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.

    Raises:
        UserError: The likelihood does not have Gaussian noise, or beta is negative.
    """

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
    ):
        _check_arguments(likelihood=likelihood, model=model, beta=beta)
        _check_gaussian("CRPSLoss", likelihood)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]

    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the sum of the rows' CRPS."""
        q_f = Marginals(mu, v)
        loss, _ = predictive_crps(likelihood, Exact(), q_f, y, NO_DRAWS)
        return -loss.sum(-1)


class RobustLoss(_RowLossObjective):
    """Mean gamma-robust likelihood of a row minus `beta / num_data * KL(q || p)`, to be maximised.

    A row whose target is far from its prediction has almost no weight. With beta = 1, the objective
    is GPyTorch's `GammaRobustVariationalELBO`, computed in log space.

    Args:
        likelihood: GPyTorch's `GaussianLikelihood`.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of all training rows, also if a step has a minibatch of them.
        beta: The weight of the KL term, at least 0; a number, or a tensor of the model's batch
            shape.
        gamma: The parameter of the divergence, above 1 and at most 2; the larger, the less weight
            outliers have.

    Raises:
        UserError: The likelihood does not have Gaussian noise, beta is negative, or gamma is out of
            range.
    """

    def __init__(
        self,
        likelihood: torch.nn.Module,
        model: torch.nn.Module,
        num_data: int,
        beta: float | Tensor = 1.0,
        gamma: float = 1.03,
    ):
        _check_arguments(likelihood=likelihood, model=model, beta=beta)
        _check_gaussian("RobustLoss", likelihood)
        ROBUST.options["gamma"].check("gamma", gamma)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]
        self.gamma = gamma

    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
    ) -> Float[Tensor, "*B"]:
        """Return minus the sum of the rows' losses."""
        q_f = Marginals(mu, v)
        loss, _ = gamma_divergence_loss(likelihood, Exact(), q_f, y, NO_DRAWS, self.gamma)
        return -loss.sum(-1)


def _check_gaussian(objective: str, likelihood: torch.nn.Module) -> None:
    """Raise UserError unless the noise is Gaussian."""
    if likelihood_class(likelihood) is not likelihoods.Gaussian:
        raise UserError(
            f"{objective} with {type(likelihood).__name__}: it needs Gaussian noise, "
            "GaussianLikelihood"
        )


class SquareLoss(_RowLossObjective):
    """Square-loss DLM: `-mean_i 1/2 (mu_i - y_i)^2 - beta / num_data * 1/2 |m|^2`, to be maximised.

    m is the mean of q in whitened coordinates (section 2 of the paper). If u with mean `mu_u` is
    not whitened, `|m|^2` is `(mu_u - mean)^T Kuu^-1 (mu_u - mean)`. The penalty `1/2 |m|^2` is the
    part of the KL that depends on m. The objective depends neither on the covariance of q nor on
    the noise, so they are not learned.

    Args:
        likelihood: Any likelihood; only the priors of its parameters are used.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of all training rows, also if a step has a minibatch of them.
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
        _check_arguments(likelihood=likelihood, model=model, beta=beta)
        super().__init__(likelihood, model, num_data, beta)  # pyright: ignore[reportArgumentType]

    def likelihood_of_rows(self, q: MultivariateNormal, **kwargs: Any) -> likelihoods.Likelihood:
        """Return a placeholder: the square loss does not depend on the likelihood."""
        return likelihoods.Gaussian(q.mean.new_ones(1))

    def fit_term(
        self,
        likelihood: likelihoods.Likelihood,
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


def _check_arguments(beta: float | Tensor, **arguments: object) -> None:
    """Check the arguments of an objective.

    Raises:
        UserError: An argument is a class in place of an object, or beta is negative.
    """
    for name, value in arguments.items():
        if isinstance(value, type):
            raise UserError(
                f"{name}={value.__name__}: give an object, {value.__name__}(...), "
                "in place of the class"
            )
    if not bool((torch.as_tensor(beta) >= 0).all()):  # also if it is NaN
        raise UserError(f"beta={beta}: give a number that is at least 0")


def _estimator_named(name: str) -> Estimator:
    """Return the estimator of that name, with `SAMPLES` samples if it draws samples.

    Raises:
        UserError: There is no such estimator, or it requires further options.
    """
    estimator = ESTIMATORS[name]
    required = [option.name for option in fields(estimator) if option.default is MISSING]
    other_options = [option for option in required if option != "samples"]
    if other_options:
        raise UserError(
            f"estimator={name!r} needs {', '.join(other_options)}: "
            f"give an object, {estimator.__name__}(...)"
        )
    options = {"samples": SAMPLES} if required else {}
    return estimator(**options)


def marginals_and_targets(
    q: MultivariateNormal, target: Tensor
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """Return mean and variance of q(f_i), and the targets in the same dtype: all [*B, N].

    The T tasks of a row become T consecutive rows.

    Raises:
        UserError: The targets have another shape.
    """
    mu = q.mean
    shape = list(target.shape)
    event_shape = list(q.event_shape)  # [N], or [N, T] with tasks
    try:
        y = target.to(mu.dtype).expand_as(mu)
    except RuntimeError:
        y = None
    # Batch dimensions of the targets may be expanded, but not the dimensions of rows and tasks.
    if y is None or shape[-len(event_shape) :] != event_shape:
        raise UserError(
            f"the targets are {shape} and the model's output is {list(mu.shape)}: give a target "
            f"for each row, {event_shape}"
        )
    has_tasks = len(event_shape) > 1
    if has_tasks:
        return mu.flatten(-2), q.variance.flatten(-2), y.flatten(-2)
    return mu, q.variance, y


def check_values(y: Tensor, likelihood: likelihoods.Likelihood, name: str) -> None:
    """Check that a likelihood allows all targets.

    Args:
        y: The targets.
        likelihood: The likelihood, whose task decides.
        name: The name of the likelihood in messages.

    Raises:
        UserError: A target is not finite, or is not a label or a count although it must be one.
    """
    is_allowed = y.isfinite()
    expected = "finite numbers"
    if likelihood.task == "binary":
        is_allowed = (y == 0) | (y == 1) | (y == -1)
        expected = "labels 0 and 1 (or -1 and 1)"
    elif likelihood.task == "count":
        is_allowed &= (y >= 0) & (y == y.floor())
        expected = "counts 0, 1, 2, ..."
    if not bool(is_allowed.all()):
        first_wrong = float(y[~is_allowed].flatten()[0])
        raise UserError(f"a target is {first_wrong:g}: {name} takes {expected}")


class PoissonExpLikelihood(gpytorch_likelihoods.Likelihood):
    """y ~ Poisson(exp(f)); GPyTorch has no Poisson likelihood with this link.

    It also works with GPyTorch's own objectives, by quadrature.
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
class ByQuadrature(likelihoods.Likelihood):
    """A likelihood of `dlmexp` whose p(y|f) is computed by a likelihood of GPyTorch.

    The likelihood must have one latent function per row. The dimension of L samples is the last but
    one in `dlmexp`, [*batch, L, N], and the first one in GPyTorch, [L, *batch, N].

    Attributes:
        module: The likelihood of GPyTorch.
        has_samples: Whether f and y have a dimension of samples, [..., L, N].
    """

    name: ClassVar[str] = "gpytorch"
    module: gpytorch_likelihoods.Likelihood
    has_samples: bool = False

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|f) of rows [..., N], or of samples [..., L, N]."""
        if not self.has_samples:
            return self.module(f).log_prob(y)
        log_p = self.module(f.movedim(-2, 0)).log_prob(y.movedim(-2, 0))
        return log_p.movedim(0, -2)

    def over_samples(self) -> Self:
        """Return the likelihood for samples [..., L, N]."""
        return replace(self, has_samples=True)

    def at_rows(self, rows: Bool[Tensor, "*B N"]) -> None:
        """Return None: it can't be cut into rows, as parameters of a module can have any shape."""
        return


class Translation(NamedTuple):
    """How a likelihood of GPyTorch becomes one of `dlmexp`.

    Attributes:
        result_class: The class of `dlmexp`.
        convert: The function from a likelihood of GPyTorch to an instance of that class.
    """

    result_class: type[likelihoods.Likelihood]
    convert: Callable[[Any], likelihoods.Likelihood]


def _student_t(likelihood: Any) -> likelihoods.Likelihood:
    return likelihoods.StudentT(likelihood.noise.sqrt(), likelihood.deg_free)


TRANSLATIONS: dict[type, Translation] = {
    gpytorch_likelihoods.BernoulliLikelihood: Translation(
        likelihoods.Probit, lambda likelihood: likelihoods.Probit()
    ),
    gpytorch_likelihoods.StudentTLikelihood: Translation(likelihoods.StudentT, _student_t),
    PoissonExpLikelihood: Translation(
        likelihoods.Poisson, lambda likelihood: likelihoods.Poisson()
    ),
}
"""The translations by the class of GPyTorch."""
if hasattr(gpytorch_likelihoods, "PoissonLikelihood"):  # not in GPyTorch's older versions
    TRANSLATIONS[gpytorch_likelihoods.PoissonLikelihood] = Translation(
        likelihoods.PoissonSoftplus, lambda likelihood: likelihoods.PoissonSoftplus()
    )


def likelihood_class(likelihood: torch.nn.Module) -> type[likelihoods.Likelihood]:
    """Return the class of `dlmexp` for a likelihood of GPyTorch.

    Every likelihood with Gaussian noise becomes `Gaussian`, as in GPyTorch's objectives. Other
    classes are looked up in `TRANSLATIONS`. A subclass of one of them may have another density, so
    it is not looked up, but integrated by quadrature.

    Raises:
        UserError: There is no such class, and GPyTorch has no quadrature for the likelihood.
    """
    if isinstance(likelihood, _GaussianLikelihoodBase):
        return likelihoods.Gaussian
    if type(likelihood) in TRANSLATIONS:
        return TRANSLATIONS[type(likelihood)].result_class
    # In GPyTorch, likelihoods with one latent function have an attribute for its quadrature.
    has_quadrature = isinstance(getattr(likelihood, "quadrature", None), GaussHermiteQuadrature1D)
    if isinstance(likelihood, gpytorch_likelihoods.Likelihood) and has_quadrature:
        return ByQuadrature
    valid_names = ["GaussianLikelihood", *(valid.__name__ for valid in TRANSLATIONS)]
    raise UserError(
        f"there is no direct loss for {type(likelihood).__name__}: use one of "
        f"{', '.join(valid_names)}, "
        "or derive your own from gpytorch.likelihoods.LaplaceLikelihood, "
        "which is integrated by quadrature"
    )


def translate(likelihood: Any, q: MultivariateNormal, **kwargs: Any) -> likelihoods.Likelihood:
    """Return the likelihood of `dlmexp` for the rows of q that corresponds to one of GPyTorch.

    Args:
        likelihood: The likelihood of GPyTorch. Its parameters are used, and get gradients.
        q: The model's output at these rows.
        kwargs: Arguments of the likelihood, such as `noise=`.

    Raises:
        UserError: No likelihood of `dlmexp` corresponds to it, or none that can have several tasks;
            or the noise of these rows is not known.
    """
    result_class = likelihood_class(likelihood)
    if result_class is likelihoods.Gaussian:
        return likelihoods.Gaussian(_noise_of_rows(likelihood, q, kwargs))
    if len(q.event_shape) > 1:
        raise UserError(
            f"{type(likelihood).__name__} with several tasks: they need Gaussian noise, such as "
            "MultitaskGaussianLikelihood"
        )
    if result_class is ByQuadrature:
        return ByQuadrature(likelihood)
    return TRANSLATIONS[type(likelihood)].convert(likelihood)


def _noise_of_rows(
    likelihood: _GaussianLikelihoodBase, q: MultivariateNormal, kwargs: dict[str, Any]
) -> Tensor:
    """Return the noise variance of every row, broadcastable to [*B, N].

    The tasks of a row are consecutive, as in `marginals_and_targets`.

    Raises:
        UserError: The likelihood has fixed noise, but for other rows.
    """
    if type(likelihood) is gpytorch_likelihoods.GaussianLikelihood:
        return likelihood.noise
    if isinstance(q, MultitaskMultivariateNormal):
        kwargs = {**kwargs, "interleaved": q._interleaved}
    # If fixed noise is for other rows, GPyTorch warns and returns zero noise. Here it is an error.
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
        # Bring the tasks of a row together: [*B, T * N] -> [*B, T, N] -> [*B, N, T] -> [*B, N * T]
        rows, tasks = q.event_shape
        noise = noise.unflatten(-1, (tasks, rows)).mT.flatten(-2)
    return noise
