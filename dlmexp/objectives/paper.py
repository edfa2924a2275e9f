"""The objectives of the paper: direct loss minimisation, whose loss is that of the prediction itself (sections 2 to 4);
its baselines, the ELBO with its KL weighted by beta, and FITC; power EP, which lies between these two; and the exact
Gaussian process, which all of them approximate."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import Estimator
from dlmexp.estimators.draws import Draws
from dlmexp.gp.collapsed import collapsed_elbo, collapsed_square, square_path
from dlmexp.gp.exact import exact_evidence
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.posterior import kl
from dlmexp.gp.power_ep import power_ep
from dlmexp.objectives.base import OBJECTIVES, Objective


def elbo_row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "B N"], None]:
    """E_q[-log p(y|f)] (section 2 of the paper), analytic or by quadrature: no estimator, no draws."""
    return likelihood.elbo_loss(mu, v, y), None


ELBO = OBJECTIVES.add(
    "elbo", Objective("elbo", elbo_row_loss, kl, collapsed=collapsed_elbo, gives_hyperparameters=True)
)

# Its alpha stands where others have beta: 1 is FITC, 0 the ELBO.
FITC = OBJECTIVES.add("fitc", Objective("fitc", collapsed=power_ep, has_beta=False, needs_gaussian=True))
POWER_EP = OBJECTIVES.add("power_ep", Objective("power_ep", collapsed=power_ep, needs_gaussian=True))

EXACT = OBJECTIVES.add(
    "exact", Objective("exact", collapsed=exact_evidence, has_beta=False, needs_gaussian=True, all_rows_inducing=True)
)


def log_row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None]:
    """-log E_q[p(y|f)] by the estimator, with the gradient it stands for."""
    return estimator.loss_and_acceptance(likelihood, mu, v, y, draws)


LOG_DLM = OBJECTIVES.add(
    "log_dlm",
    Objective(
        "log_dlm",
        log_row_loss,
        kl,
        takes_estimator=True,
        gives_hyperparameters=True,
        joint_binary_note="the penalty does not see the outputscale: where all training rows are classified right, "
        "a larger one always lowers the objective and no minimiser exists; this is where training stopped",
        joint_interpolation_note="no minimiser exists: with beta < 1 the objective falls without bound as inducing "
        "inputs move onto training rows and the variances there and the noise vanish; this is where training stopped",
    ),
)

# 1/2 (mu - y)^2 per row and beta/2 |m|^2: it depends on the mean of q alone.
SQ_DLM = OBJECTIVES.add(
    "sq_dlm",
    Objective(
        "sq_dlm",
        collapsed=collapsed_square,
        path=square_path,
        needs_gaussian=True,
        predicts_variance=False,
        selected_by="mse",
        joint_note="no minimiser exists: the penalty vanishes as the outputscale grows; this is where training stopped",
    ),
)
