"""Evidence bounds that scale the conditional of f given the inducing values.

With Gaussian noise the best q has a closed form. `tighter` then has one scale per row, and
`block_tighter` one matrix per block of rows. At equal hyperparameters both bounds lie between the
ELBO and the exact evidence, and both predict with the q of the ELBO. With other likelihoods
`tighter` learns one scale for all rows.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.closed_form import Problem
from dlmexp.core.gp.kernels import Hyper, Parameter
from dlmexp.core.gp.posterior import Marginals, kl
from dlmexp.core.gp.row_noise import elbo_row_noise
from dlmexp.core.gp.structured import (
    blocks_of_neighbours,
    collapsed_block_tighter,
    collapsed_tighter,
)
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.objectives.objective import OBJECTIVES, Objective, Option

SCALE = "conditional_scale"
"""The name of the hyperparameter c: given u, f_i has the variance `c r_i` in place of `r_i`."""


def scaled_expected_loss(
    likelihood: Likelihood, estimator: Estimator, q_f: Marginals, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "*B N"], None]:
    """Return `E[-log p(y|f)]` per row under N(mu_i, c r_i + |L^T A_i|^2)."""
    assert q_f.residual is not None
    c = q_f.parameters[SCALE]
    # c r_i + |L^T A_i|^2 = v_i - (1 - c) r_i
    variance = q_f.variance - (1 - c) * q_f.residual
    return likelihood.elbo_loss(q_f.mean, variance, y), None


def cost_of_scale(hyper: Hyper) -> Float[Tensor, "B"]:
    """Return `1/2 (c - log c - 1)`: the KL from the scaled to the true conditional, per row."""
    c = hyper[SCALE]
    return 0.5 * (c - torch.log(c) - 1)


def block_row_noise(problem: Problem, beta: Tensor, r: Tensor, blocks: int = 10) -> Tensor:
    """Return the noise variances of the rows.

    They do not depend on `blocks`, which is an argument because a `row_noise` receives the options
    of its objective.
    """
    return elbo_row_noise(problem, beta, r)


TIGHTER = OBJECTIVES.add(
    "tighter",
    Objective(
        "tighter",
        row_loss=scaled_expected_loss,
        regulariser=kl,
        collapsed=collapsed_tighter,
        uses_residual=True,
        row_parameters={SCALE: Parameter(1.0, positive=True)},
        parameter_cost=cost_of_scale,
        bounds_evidence=True,
        row_noise=elbo_row_noise,
    ),
)
BLOCK_TIGHTER = OBJECTIVES.add(
    "block_tighter",
    Objective(
        "block_tighter",
        collapsed=collapsed_block_tighter,
        needs_gaussian=True,
        bounds_evidence=True,
        options={"blocks": Option(10, low=1, high=1_000_000, whole=True)},
        row_order=blocks_of_neighbours,
        row_noise=block_row_noise,
    ),
)
