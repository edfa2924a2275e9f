"""The gamma-robust ELBO for Gaussian noise (Knoblauch 2019; Knoblauch, Jewson and Damoulas 2019).

The gamma divergence between likelihood and data takes the place of the expected log likelihood. In
it a row far from its prediction has next to no weight. GPyTorch calls the objective
`GammaRobustVariationalELBO`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.posterior import Marginals, kl
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.regression import Gaussian
from dlmexp.core.objectives.objective import OBJECTIVES, Objective, Option


def gamma_divergence_loss(
    likelihood: Likelihood,
    estimator: Estimator,
    q_f: Marginals,
    y: Tensor,
    draws: Draws,
    gamma: float = 1.03,
) -> tuple[Float[Tensor, "*B N"], None]:
    """Return the gamma-robust loss per row.

    With g = gamma - 1 it is

        -gamma / g  E_q[p(y|f)^g] ( integral of p(y'|f)^gamma dy' )^(g / gamma)

    This is the form of GPyTorch. The papers divide by the last factor in place of multiplying by
    it; for gamma near 1 it is near 1. For Gaussian noise p(y|f)^g is, up to a factor, a Gaussian
    density with variance noise / g. So E_q[p(y|f)^g] is, up to a factor, a Gaussian density with
    variance v + noise / g. The integral does not depend on f.
    """
    assert isinstance(likelihood, Gaussian)
    noise = likelihood.noise
    g = gamma - 1
    log_norm = torch.log(2 * math.pi * noise)
    # log E_q[p(y|f)^g] = -g/2 log(2 pi noise) - 1/2 log(1 + g v / noise)
    #                     - g/2 (y - mu)^2 / (noise + g v)
    log_det = g * log_norm + torch.log1p(g * q_f.variance / noise)
    quadratic = g * (y - q_f.mean).square() / (noise + g * q_f.variance)
    log_tempered = -0.5 * (log_det + quadratic)
    # log integral of p^gamma = -g/2 log(2 pi noise) - 1/2 log gamma
    log_integral = -0.5 * (g * log_norm + math.log(gamma))
    log_ratio = log_tempered + g / gamma * log_integral
    return -gamma / g * log_ratio.exp(), None


ROBUST = OBJECTIVES.add(
    "robust",
    Objective(
        "robust",
        row_loss=gamma_divergence_loss,
        regulariser=kl,
        needs_gaussian=True,
        options={"gamma": Option(1.03, low=1.0001, high=2)},
    ),
)
