"""The continuous ranked probability score of the predictive distribution, as a training loss.

For Gaussian noise it has a closed form (Gneiting and Raftery 2007, section 4.2). It is in the unit
of y and grows with |y - mu| where the log loss grows with its square, so outliers weigh less.
"""

from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.posterior import Marginals, kl
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.objectives.objective import OBJECTIVES, Objective


def predictive_crps(
    likelihood: Likelihood, estimator: Estimator, q_f: Marginals, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "*B N"], None]:
    """Return the CRPS of N(mu_i, v_i + noise) at y_i, per row.

    It has a closed form: neither the estimator nor the draws are used.
    """
    return likelihood.calibration(q_f.mean, q_f.variance, y)["crps"], None


CRPS = OBJECTIVES.add(
    "crps",
    Objective("crps", row_loss=predictive_crps, regulariser=kl, needs_gaussian=True),
)
