"""The paper's baselines: the evidence lower bound with its KL weighted by beta, and FITC. Power EP lies between them;
the exact Gaussian process is what all of them approximate."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.collapsed import collapsed_elbo
from dlmexp.gp.exact import exact_evidence
from dlmexp.gp.fitc import fitc, power_ep
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.posterior import kl
from dlmexp.objectives.base import OBJECTIVES, Objective


def elbo_row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
) -> tuple[Float[Tensor, "B N"], None]:
    """E_q[-log p(y|f)] (section 2 of the paper), analytic or by quadrature: no estimator, no draws."""
    return likelihood.elbo_loss(mu, v, y), None


ELBO = OBJECTIVES.add(
    "elbo", Objective("elbo", elbo_row_loss, kl, collapsed=collapsed_elbo, gives_hyperparameters=True)
)

FITC = OBJECTIVES.add("fitc", Objective("fitc", collapsed=fitc, has_beta=False, needs_gaussian=True))

# Its alpha stands where others have beta: 1 is FITC, 0 the ELBO.
POWER_EP = OBJECTIVES.add("power_ep", Objective("power_ep", collapsed=power_ep, needs_gaussian=True))

EXACT = OBJECTIVES.add(
    "exact", Objective("exact", collapsed=exact_evidence, has_beta=False, needs_gaussian=True, all_rows_inducing=True)
)
