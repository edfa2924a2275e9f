"""Direct loss minimisation for your own GPyTorch models: the estimators of `dlmexp.estimators` as GPyTorch objectives.

`DirectLoss` takes the place of `gpytorch.mlls.VariationalELBO` in a training loop, with any `ApproximateGP` of any
batch shape and variational strategy, full batch or minibatches:

    mll = DirectLoss(likelihood, model, num_data=len(y), beta=0.1, estimator=UPS(10))
    loss = -mll(model(x), y)
    loss.backward()

Like every objective of GPyTorch it returns what is to be *maximised*, per row: the log predictive density
`mean_i log E_q p(y_i|f_i)` less `beta / num_data * KL(q || p)` (log-loss DLM, section 2 of the paper). `SquareLoss` is
the same for `-1/2 (mu_i - y_i)^2`. A whole training script is `scripts/example_mlls.py`.
"""

from dlmexp.estimators import BMC, UPS, Exact, Quadrature, SmoothBMC
from dlmexp.mlls.losses import DirectLoss, SquareLoss
from dlmexp.mlls.translation import PoissonExpLikelihood

__all__ = ["BMC", "UPS", "DirectLoss", "Exact", "PoissonExpLikelihood", "Quadrature", "SmoothBMC", "SquareLoss"]
