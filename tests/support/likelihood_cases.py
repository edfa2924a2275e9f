"""Every likelihood with its density written in SciPy, and observations to try it on."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st
import torch
from torch import Tensor

from dlmexp.core.likelihoods import (
    Gaussian,
    Likelihood,
    Logistic,
    Poisson,
    PoissonSoftplus,
    Probit,
    StudentT,
)
from tests.support.product_density import t

Density = Callable[[np.ndarray, float], np.ndarray]


def log_softplus(f: np.ndarray) -> np.ndarray:
    return np.where(f < -30, f, np.log(np.logaddexp(0, np.maximum(f, -30))))


def counts(log_rate: Callable[[np.ndarray], np.ndarray]) -> Density:
    """Return log p(y|f) of counts of this rate."""

    def log_p(f: np.ndarray, y: float) -> np.ndarray:
        rate = np.exp(np.minimum(log_rate(f), 700))
        return y * log_rate(f) - rate - math.lgamma(y + 1)

    return log_p


def student(nu: float, scale: float) -> tuple[StudentT, Density]:
    return StudentT(t(scale), t(nu)), lambda f, y: st.t.logpdf(y, nu, f, scale)


LIKELIHOODS_WITH_DENSITY: dict[str, tuple[Likelihood, Density]] = {
    "gaussian": (Gaussian(t(0.3)), lambda f, y: st.norm.logpdf(y, f, math.sqrt(0.3))),
    "probit": (Probit(), lambda f, y: st.norm.logcdf((2 * y - 1) * f)),
    "poisson": (Poisson(), counts(lambda f: f)),
    "poisson_softplus": (PoissonSoftplus(), counts(log_softplus)),
    "logistic": (Logistic(), lambda f, y: st.logistic.logcdf((2 * y - 1) * f)),
    "student_t": student(4.0, 0.5),
}
"""Each registered likelihood and its log p(y|f), by name."""
OBSERVATIONS = {
    "regression": [-2.0, 0.0, 3.5],
    "binary": [0.0, 1.0],
    "count": [0.0, 1.0, 7.0, 300.0],
}
"""Observations by task."""
# mu, v, y
CORNERS_OF_CLASSES = [
    (0.0, 1.0, 1.0),
    (-40.0, 0.3, 1.0),
    (40.0, 2.0, 0.0),
    (-40.0, 100.0, 1.0),
    (30.0, 100.0, 1.0),
    (0.0, 1e4, 0.0),
    (-3000.0, 1e4, 1.0),
]

every_likelihood = pytest.mark.parametrize("name", list(LIKELIHOODS_WITH_DENSITY))
log_concave_likelihoods = pytest.mark.parametrize(
    "name", ["poisson", "poisson_softplus", "logistic"]
)


def likelihood_of(name: str) -> Any:
    """Return a likelihood, of which tests use more than the base class has."""
    likelihood, _ = LIKELIHOODS_WITH_DENSITY[name]
    return likelihood


def observations_of(name: str) -> list[float]:
    return OBSERVATIONS[likelihood_of(name).task]


def with_gradients(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor], mu: Tensor, v: Tensor, y: Tensor
) -> Tensor:
    """Return the losses of rows, and their gradients in mu and v, stacked: [3, ...]."""
    mu = mu.clone().requires_grad_()
    v = v.clone().requires_grad_()
    value = loss(mu, v, y)
    d_mu, d_v = torch.autograd.grad(value.sum(), (mu, v))
    return torch.stack((value.detach(), d_mu, d_v))
