"""Log-loss DLM as a GPyTorch objective."""

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls._approximate_mll import _ApproximateMarginalLogLikelihood
from jaxtyping import Float
from torch import Tensor

from dlmexp.errors import UserError, nearest
from dlmexp.estimators import ESTIMATORS, Estimator, FreshDraws
from dlmexp.mlls.translation import translate


class DirectLoss(_ApproximateMarginalLogLikelihood):
    """Log-loss DLM: `mean_i log E_q p(y_i|f_i) - beta / num_data * KL(q || p)`, to be maximised (section 2).

    It is called like every objective of GPyTorch, with q(f) of shape [*batch, N] and targets; the value has shape
    [*batch]. With a Gaussian or Bernoulli likelihood and the exact estimator it is GPyTorch's
    `PredictiveLogLikelihood`, except that the Bernoulli's tails do not underflow.

    Args:
        likelihood: GPyTorch's Gaussian, Bernoulli, Poisson or Student-t, or `PoissonExpLikelihood`.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the KL term; a number, or a tensor of the model's batch shape.
        estimator: How the log loss and its gradient are computed (docs/SPEC.md, section 4): `"exact"`,
            `"quadrature"`, or an estimator such as `BMC(10)`, `SmoothBMC(10, nu=1e-4)` or `UPS(10)`. Draws come from
            torch's global random state (`torch.manual_seed`).
        combine_terms: False: the terms are returned one by one, as in GPyTorch.

    Raises:
        UserError: There is no direct loss for this likelihood, or no such estimator.

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
        super().__init__(likelihood, model, num_data, beta, combine_terms)  # pyright: ignore[reportArgumentType]
        translate(likelihood)  # an unknown likelihood is refused now rather than at the first step
        if isinstance(estimator, str):
            by_name = [n for n in ESTIMATORS if not any(o.required for o in ESTIMATORS[n].options().values())]
            if estimator not in by_name:
                raise UserError(
                    f"no estimator is called {estimator!r}: {nearest(estimator, by_name)} "
                    "Those with samples are given as BMC(10), SmoothBMC(10) or UPS(10)."
                )
            estimator = ESTIMATORS[estimator]()
        self.estimator = estimator

    def _log_likelihood_term(self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any) -> Tensor:
        mu, v, y = marginals_and_targets(approximate_dist_f, target)
        likelihood = translate(self.likelihood)
        if likelihood.task == "binary":
            y = y.clamp_min(0)  # GPyTorch's Bernoulli takes labels {-1, 1} as well as {0, 1}
        draws = FreshDraws(tuple(mu.shape[:-1]), dtype=mu.dtype, device=mu.device)
        return -self.estimator(likelihood, mu, v, y, draws).sum(-1)


def marginals_and_targets(
    q: MultivariateNormal, target: Tensor
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """mu, v of q(f_i), and the targets in their dtype and shape."""
    if len(q.event_shape) != 1:
        raise UserError("direct loss needs one latent function per row: a MultivariateNormal, not a multitask one")
    return q.mean, q.variance, target.to(q.mean.dtype).expand_as(q.mean)
