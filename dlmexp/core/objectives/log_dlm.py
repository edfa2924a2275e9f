"""Direct loss minimisation of the log loss of predictions."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.posterior import Marginals, kl
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.mixture import log_mean_loss
from dlmexp.core.objectives.objective import OBJECTIVES, Notes, Objective


def predictive_log_loss(
    likelihood: Likelihood, estimator: Estimator, q_f: Marginals, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B"] | None]:
    """Return `-log E_q[p(y|f)]` per row, with value and gradient of the estimator."""
    return estimator.loss_and_acceptance(likelihood, q_f.mean, q_f.variance, y, draws)


LOG_DLM = OBJECTIVES.add(
    "log_dlm",
    Objective(
        "log_dlm",
        row_loss=predictive_log_loss,
        regulariser=kl,
        takes_estimator=True,
        mixture_loss=log_mean_loss,
        gives_hyperparameters=True,
        notes=Notes(
            binary="the penalty does not see the outputscale: where all training rows are "
            "classified right, a larger one always lowers the objective and no minimiser exists; "
            "this is where training stopped",
            regression_below_one="no minimiser exists: with beta < 1 the objective falls without "
            "bound as inducing inputs move onto training rows and the variances there and the "
            "noise vanish; this is where training stopped",
        ),
    ),
)
