"""The control of the noise: its closed forms against the reference, term by term."""

import pytest
import torch

from dlmexp import reference
from scripts.noise_control import Rows, elbo_q, noise_by_elbo, noise_by_log_loss


@pytest.fixture
def hyperparameters() -> reference.Hyperparameters:
    generator = torch.Generator().manual_seed(3)
    Z = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    values = {"lengthscale": 1.3, "outputscale": 0.8, "noise": 1e-4, "mean": 0.2}
    h = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    return h | {"Z": Z}


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    X = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    y = X[:, 0].sin() + 0.3 * torch.randn(30, generator=generator, dtype=torch.float64)
    return X, y


def test_noise_by_elbo_has_the_greatest_elbo_of_the_reference(rows, hyperparameters) -> None:
    X, y = rows
    chosen = noise_by_elbo(Rows.of(X, y, hyperparameters))

    def negative_elbo(noise: float) -> float:
        h = hyperparameters | {"noise": torch.tensor(noise, dtype=torch.float64)}
        return reference.collapsed_objective("elbo", X, y, h, 1.0).item()

    assert negative_elbo(chosen) < negative_elbo(0.98 * chosen)
    assert negative_elbo(chosen) < negative_elbo(1.02 * chosen)


def test_noise_by_log_loss_has_the_least_log_loss_of_the_reference(rows, hyperparameters) -> None:
    X, y = rows
    projected = Rows.of(X, y, hyperparameters)
    m, L = elbo_q(projected, 0.01)
    chosen = noise_by_log_loss(projected, m, L)
    mu, v = reference.marginals(X, hyperparameters, m, L)

    def log_loss(noise: float) -> float:
        return reference.log_loss("gaussian", mu, v, y, torch.tensor(noise)).mean().item()

    assert log_loss(chosen) < log_loss(0.98 * chosen)
    assert log_loss(chosen) < log_loss(1.02 * chosen)
