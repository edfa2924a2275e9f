"""The evidence lower bound, with its KL term weighted by beta."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.collapsed import collapsed_elbo
from dlmexp.core.gp.posterior import Marginals, kl
from dlmexp.core.gp.row_noise import elbo_row_noise
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.objectives.objective import OBJECTIVES, Objective


def expected_log_loss(
    likelihood: Likelihood, estimator: Estimator, q_f: Marginals, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "*B N"], None]:
    """Return `E_q[-log p(y|f)]` per row (section 2 of the paper).

    It is analytic, or by quadrature: neither the estimator nor the draws are used.
    """
    return likelihood.elbo_loss(q_f.mean, q_f.variance, y), None


ELBO = OBJECTIVES.add(
    "elbo",
    Objective(
        "elbo",
        row_loss=expected_log_loss,
        regulariser=kl,
        collapsed=collapsed_elbo,
        gives_hyperparameters=True,
        bounds_evidence=True,
        row_noise=elbo_row_noise,
    ),
)
