"""A GPyTorch model of any batch shape at random parameters, for the tests of `dlmexp.mlls`."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    # torch deprecates its script decorator, which GPyTorch's dependency still uses when it is imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    import gpytorch
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, batch: torch.Size, strategy: Any, M: int = 6):
        g = torch.Generator().manual_seed(3)
        q = CholeskyVariationalDistribution(M, batch_shape=batch)
        super().__init__(strategy(self, torch.randn(*batch, M, 2, generator=g), q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)
        self.double()
        for p in self.parameters():
            p.data.add_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))
        self.variational_strategy.variational_params_initialized.fill_(1)

    def forward(self, x: torch.Tensor) -> Any:
        mean: Any = self.mean_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


def make_model(batch: tuple[int, ...] = (), strategy: Any = VariationalStrategy) -> Any:
    return Model(torch.Size(batch), strategy)


@pytest.fixture(scope="session")
def model() -> Callable[..., Any]:
    return make_model


@pytest.fixture
def data() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=g, dtype=torch.float64)
    f = x.sum(-1)
    counts = torch.poisson(f.clamp(-1, 2).exp(), generator=g)
    return {
        "x": x,
        "real": f + 0.1 * torch.randn(30, generator=g, dtype=torch.float64),
        "label": (f > 0).double(),
        "count": counts,
    }
