"""The product density q~(e), proportional to N(e; 0, 1) p(y|mu + sqrt(v) e), on a fine grid, and
tests against it."""

import numpy as np
import scipy.stats as st
import torch

from dlmexp.core.estimators.draws import Draws
from dlmexp.core.estimators.product_samplers import ProductSampler
from dlmexp.core.likelihoods import (
    Gaussian,
    Likelihood,
    Logistic,
    Poisson,
    PoissonSoftplus,
    Probit,
    StudentT,
)

F64 = torch.float64


def t(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=F64)


ROWS = {
    "gaussian": (Gaussian(t(0.3)), 0.5, 2.0, -1.0),
    "gaussian far": (Gaussian(t(0.01)), 0.0, 1.0, 9.0),
    "probit": (Probit(), 0.3, 1.5, 1.0),
    "probit wide": (Probit(), -2.0, 1e4, 1.0),
    "probit tail": (Probit(), -12.0, 0.4, 1.0),
    "probit far tail": (Probit(), -60.0, 0.8, 1.0),
    "probit sure": (Probit(), -40.0, 0.5, 0.0),
    "poisson": (Poisson(), 0.5, 0.7, 3.0),
    "poisson zero": (Poisson(), 2.0, 1.0, 0.0),
    "poisson tail": (Poisson(), -4.0, 0.3, 40.0),
    "poisson large": (Poisson(), 6.0, 0.5, 5000.0),
    "poisson narrow": (Poisson(), 1.0, 1e-10, 30.0),
    "poisson wide": (Poisson(), -3.0, 1e3, 0.0),
    "poisson wide count": (Poisson(), 0.0, 1e4, 7.0),
    "softplus": (PoissonSoftplus(), 0.5, 2.0, 3.0),
    "softplus zero": (PoissonSoftplus(), 3.0, 9.0, 0.0),
    "softplus wide": (PoissonSoftplus(), 0.0, 1e3, 4.0),
    "softplus large": (PoissonSoftplus(), 4000.0, 400.0, 5000.0),
    "logistic": (Logistic(), -1.0, 2.0, 1.0),
    "logistic tail": (Logistic(), -30.0, 3.0, 1.0),
    "logistic wide": (Logistic(), 50.0, 1e4, 0.0),
    "student": (StudentT(t(0.5), t(4.0)), 0.0, 1.0, 1.0),
    "student outlier": (StudentT(t(0.3), t(3.0)), 0.0, 0.5, 8.0),
    "student two modes": (StudentT(t(0.1), t(3.0)), 0.0, 1.0, 4.8),
    "cauchy": (StudentT(t(1.0), t(1.0)), 0.0, 4.0, -3.0),
    "student normal": (StudentT(t(1.0), t(200.0)), 0.0, 1.0, 3.0),
}


def draws_for(cells: int, seed: int = 0, iteration: int = 0) -> Draws:
    seeds = torch.arange(seed, seed + cells)
    return Draws(seeds, torch.arange(cells), torch.tensor(iteration))


def grid_and_cdf(
    likelihood: Likelihood, mu: float, v: float, y: float
) -> tuple[np.ndarray, np.ndarray]:
    """Grid of e and the distribution function there: 400 001 points between where the density is
    1e-14 of its peak."""

    def log_density(e: np.ndarray) -> np.ndarray:
        f = t(mu) + t(v).sqrt() * t(e)
        return likelihood.log_prob(f, t(y)).numpy() - e * e / 2

    wide = np.concatenate((np.linspace(-3e3, 3e3, 600_001), np.sinh(np.linspace(-12, 12, 200_001))))
    wide.sort()
    h = log_density(wide)
    inside = wide[h > np.nanmax(h) - 32]
    span = max(inside[-1] - inside[0], 1e-9)
    e = np.linspace(inside[0] - 0.01 * span, inside[-1] + 0.01 * span, 400_001)
    h = log_density(e)
    p = np.exp(h - h.max())
    cdf = np.concatenate(([0.0], np.cumsum((p[1:] + p[:-1]) / 2)))
    return e, cdf / cdf[-1]


def draw(
    sampler: ProductSampler,
    likelihood: Likelihood,
    mu: float,
    v: float,
    y: float,
    n: int,
    seed: int = 0,
) -> np.ndarray:
    """n samples for one row, 20 to a row of the batch: what a training step asks for."""
    rows = n // 20
    full = torch.ones(1, rows, dtype=F64)
    return (
        sampler.draw(likelihood, mu * full, v * full, y * full, 20, draws_for(1, seed))
        .e.flatten()
        .numpy()
    )


BINS = 20
SAMPLES = 200_000


def p_values(samples: np.ndarray, e: np.ndarray, cdf: np.ndarray) -> tuple[float, float]:
    """p-values of Kolmogorov's and Smirnov's test, and of Pearson's on 20 equally probable bins.

    Power of the latter: a density wrong by 2 % (up in half of the bins, down in the others) gives
    the statistic the non-centrality 200 000 * 0.02^2 = 80, and a chi-square with 19 degrees of
    freedom and that non-centrality exceeds the 1e-4 point of the central one (50) with probability
    0.99."""
    uniform = np.interp(samples, e, cdf)
    observed = np.histogram(uniform, bins=np.linspace(0, 1, BINS + 1))[0]
    return float(st.kstest(uniform, "uniform").pvalue), float(st.chisquare(observed).pvalue)
