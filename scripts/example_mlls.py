"""Train an existing GPyTorch model by direct loss minimisation: only the objective is ours."""

import gpytorch
import torch

from dlmexp.mlls import UPS, DirectLoss


class Classifier(gpytorch.models.ApproximateGP):
    def __init__(self, inducing_inputs: torch.Tensor):
        q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing_inputs))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing_inputs, q))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        # To a type checker, a module of GPyTorch returns a tensor, a distribution or an operator.
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x),  # pyright: ignore[reportArgumentType]
            self.covar_module(x),
        )


torch.manual_seed(0)
x = torch.randn(500, 2)
y = (x.norm(dim=1) + 0.2 * torch.randn(500) < 1.2).float()

model = Classifier(x[:30].clone())
likelihood = gpytorch.likelihoods.BernoulliLikelihood()
# Before: mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=400)
mll = DirectLoss(likelihood, model, num_data=400, beta=0.1, estimator=UPS(10))
optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
for _ in range(100):
    optimiser.zero_grad()
    loss = -mll(model(x[:400]), y[:400])  # pyright: ignore[reportOperatorIssue]
    loss.backward()
    optimiser.step()
with torch.no_grad():
    nll = -likelihood.log_marginal(y[400:], model.eval()(x[400:])).mean()
print(f"test NLL {nll:.3f}")
