"""Log-loss DLM: -log E_q[p(y|f)] per row, by whichever estimator is asked for (sections 2 to 4 of the paper)."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import UPS, Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.posterior import kl
from dlmexp.objectives.base import Objective


def row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None]:
    """The estimator's value, with the gradient it stands for."""
    if isinstance(estimator, UPS):
        return estimator.loss_and_acceptance(likelihood, mu, v, y, draws)
    return estimator(likelihood, mu, v, y, draws), None


LOG_DLM = Objective("log_dlm", row_loss, kl)
