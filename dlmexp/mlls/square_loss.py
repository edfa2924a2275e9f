"""Square-loss DLM as a GPyTorch objective."""

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls._approximate_mll import _ApproximateMarginalLogLikelihood
from torch import Tensor

from dlmexp.mlls.direct_loss import marginals_and_targets


class SquareLoss(_ApproximateMarginalLogLikelihood):
    """Square-loss DLM: `-mean_i 1/2 (mu_i - y_i)^2 - beta / num_data * 1/2 |m|^2`, to be maximised (section 2).

    m is the mean of q in whitened coordinates: for an unwhitened strategy, `|m|^2` is `(m - mean)^T Kuu^-1 (m - mean)`.
    It is the part of the KL that depends on m. Nothing here depends on q's covariance or on the likelihood's noise, so
    neither is learned.

    Args:
        likelihood: Only the priors that it may have are used.
        model: Any `ApproximateGP` with one latent function per row.
        num_data: The number of training rows, also where a step sees a minibatch of them.
        beta: The weight of the penalty; a number, or a tensor of the model's batch shape.

    Example:
        ```python
        from dlmexp.mlls import SquareLoss

        mll = SquareLoss(likelihood, model, num_data=len(y), beta=0.1)
        loss = -mll(model(x), y)
        ```
    """

    def __init__(self, likelihood: torch.nn.Module, model: torch.nn.Module, num_data: int, beta: float | Tensor = 1.0):
        super().__init__(likelihood, model, num_data, beta, combine_terms=False)  # pyright: ignore[reportArgumentType]

    def _log_likelihood_term(self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any) -> Tensor:
        mu, _, y = marginals_and_targets(approximate_dist_f, target)
        return -0.5 * (mu - y).square().sum(-1)

    def forward(self, approximate_dist_f: MultivariateNormal, target: Tensor, **kwargs: Any) -> Tensor:
        fit, _, log_prior, *added = super().forward(approximate_dist_f, target, **kwargs)
        strategy: Any = self.model.variational_strategy
        q, p = strategy.variational_distribution, strategy.prior_distribution
        penalty = 0.5 * p.lazy_covariance_matrix.inv_quad((q.mean - p.mean).unsqueeze(-1))
        return fit - penalty * self.beta / self.num_data + log_prior - sum(added)
