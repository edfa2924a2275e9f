"""The evidence lower bound with its KL weighted by beta: E_q[-log p(y|f)] per row (section 2 of the paper)."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.collapsed import collapsed_elbo
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.posterior import kl
from dlmexp.objectives.base import Objective


def row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
) -> tuple[Float[Tensor, "B N"], None]:
    """Analytic or by quadrature: no estimator, no draws."""
    return likelihood.elbo_loss(mu, v, y), None


ELBO = Objective("elbo", row_loss, kl, collapsed_elbo)
