"""The noise variance t_i of each row in the linear model of q (docs/SPEC.md, section 2).

With Gaussian noise the q of a closed form is the posterior of a linear model,

    y_i = mean + A_i^T w + e_i,    e_i ~ N(0, t_i),    w ~ N(0, I)

and objectives differ in t_i alone. Knowing t_i, the contribution of row i to q can be removed from
q (`leave_one_out.left_out_marginals`). The functions `..._row_noise` take the problem, beta [B] and
the residual variances r [B, N] of some rows, in the type of the rows, and return t [B, N].
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.closed_form import RIDGE_SHARE, Problem
from dlmexp.core.gp.precision import PARAMETER_DTYPE

RowNoise = Callable[[Problem, Float[Tensor, "B"], Float[Tensor, "B N"]], Float[Tensor, "B N"]]
"""row_noise(problem, beta, r) returns t_i of some rows."""


def effective_noise(
    problem: Problem, beta: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
    """Return beta [B] and t = beta noise [B].

    Where beta is 0, t is a number that is negligible against A A^T (`ridge_without_moments`), and
    the returned beta is t / noise.
    """
    noise = problem.hyper["noise"]
    beta = torch.where(beta > 0, beta, ridge_without_moments(problem) / noise.detach())
    return beta, beta * noise


def ridge_without_moments(problem: Problem) -> Float[Tensor, "B"]:
    """Return a number that is negligible against A A^T, without computing A A^T.

    With a stationary kernel it is an upper bound of `Moments.smallest_ridge`, which is the share
    `RIDGE_SHARE` of the mean diagonal entry of A A^T: that entry is at most n / M times the prior
    variance.
    """
    M = problem.hyper["Z"].shape[-2]
    first_row = problem.X[..., :1, :].to(PARAMETER_DTYPE)
    prior_variance = problem.kernel.diagonal(first_row, problem.hyper)[..., 0].detach()
    return RIDGE_SHARE * problem.n / M * prior_variance


def elbo_row_noise(problem: Problem, beta: Tensor, r: Tensor) -> Tensor:
    """Return `t_i = beta noise`, which holds for all lower bounds of the evidence."""
    _, t = effective_noise(problem, beta)
    return t.to(r.dtype)[..., None].expand_as(r)


def square_row_noise(problem: Problem, beta: Tensor, r: Tensor) -> Tensor:
    """Return `t_i = beta` for the square loss, whose best mean is a ridge regression."""
    ridge = torch.where(beta > 0, beta, ridge_without_moments(problem))
    return ridge.to(r.dtype)[..., None].expand_as(r)


def power_ep_row_noise(problem: Problem, beta: Tensor, r: Tensor) -> Tensor:
    """Return `t_i = alpha r_i + noise`, where beta stands for alpha."""
    alpha = beta.to(r.dtype)[..., None]
    noise = problem.hyper["noise"].to(r.dtype)[..., None]
    return alpha * r + noise


def fitc_row_noise(problem: Problem, beta: Tensor, r: Tensor) -> Tensor:
    """Return `t_i = r_i + noise`; beta is not used."""
    return power_ep_row_noise(problem, torch.ones_like(beta), r)


def scaled_power_ep_row_noise(
    problem: Problem, beta: Tensor, r: Tensor, alpha: float = 0.5
) -> Tensor:
    """Return `t_i = alpha c r_i + noise`, with the scale c of the conditional; beta is not used."""
    c = problem.hyper["conditional_scale"].to(r.dtype)[..., None]
    noise = problem.hyper["noise"].to(r.dtype)[..., None]
    return alpha * c * r + noise
