"""A few random cells of a sparse GP, for the tests of `dlmexp.core.gp`."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

with warnings.catch_warnings():
    # torch deprecates its script decorator, which GPyTorch's dependency still uses when it is
    # imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    import gpytorch  # noqa: F401


def random_cells(
    B: int, M: int, N: int, D: int, ard: bool = False, seed: int = 0
) -> dict[str, Tensor]:
    """Hyperparameters, data and a q that is neither the prior nor near it; L's diagonal has both
    signs."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    X = normal(B, N, D)
    L = torch.eye(M, dtype=torch.float64) + 0.3 * normal(B, M, M).tril()
    L[:, 0] *= -1
    return {
        "X": X,
        "y": normal(B, N),
        "Z": 1.3 * normal(B, M, D),
        "lengthscale": 1.0 + torch.rand(B, D if ard else 1, generator=g, dtype=torch.float64),
        "outputscale": 0.5 + torch.rand(B, generator=g, dtype=torch.float64),
        "noise": 0.05 + 0.2 * torch.rand(B, generator=g, dtype=torch.float64),
        "mean": normal(B),
        "m": normal(B, M),
        "L": L,
        "jitter": torch.full((B,), 1e-6, dtype=torch.float64),
    }


@pytest.fixture(scope="session")
def cells() -> Callable[..., dict[str, Tensor]]:
    return random_cells
