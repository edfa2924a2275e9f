"""Scores of predictive distributions against brute force: draws, or sums over a fine grid."""

import numpy as np
import pytest
import torch

from dlmexp.gp.likelihoods import Gaussian, Likelihood, Poisson, PoissonSoftplus, StudentT
from dlmexp.gp.likelihoods.calibration import LEVELS

DRAWS = 200_000


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


# mu, v, y: narrow and wide q, counts from 0 to thousands (those beyond 512 are tabulated in blocks), y in and far out.
REAL = [(0.0, 0.01, 0.1), (1.0, 2.0, -1.0), (-0.5, 0.2, 4.0)]
COUNTS = [
    (2.3, 0.02, 8), (2.3, 0.02, 60), (-3.0, 0.5, 0), (-3.0, 4.0, 1), (0.0, 1.0, 3), (5.0, 0.01, 160), (5.0, 0.01, 20),
    (3.0, 0.5, 10), (4.0, 1.0, 30), (6.5, 1e-4, 700), (8.6, 1e-5, 5400), (7.5, 0.02, 1500),
]  # fmt: skip
CASES = [(each, *case) for each in (Gaussian(tensor(0.3)), StudentT(tensor(0.5), tensor(4.0))) for case in REAL]
CASES += [(each, *case) for each in (Poisson(), PoissonSoftplus()) for case in COUNTS]


def drawn(likelihood: Likelihood, mu: float, v: float) -> np.ndarray:
    """Draws of y from the predictive distribution."""
    rng = np.random.default_rng(1)
    f = mu + np.sqrt(v) * rng.normal(size=DRAWS)
    if isinstance(likelihood, Gaussian):
        return f + np.sqrt(likelihood.noise.item()) * rng.normal(size=DRAWS)
    if isinstance(likelihood, StudentT):
        return f + likelihood.scale.item() * rng.standard_t(likelihood.nu.item(), size=DRAWS)
    return rng.poisson(likelihood.conditional_mean(tensor(f)).numpy()).astype(float)


@pytest.mark.parametrize(("likelihood", "mu", "v", "y"), CASES, ids=lambda each: getattr(each, "name", None))
def test_scores_against_draws(likelihood, mu, v, y):
    draws, real = drawn(likelihood, mu, v), likelihood.task == "regression"
    found = {name: value.item() for name, value in likelihood.calibration(*(tensor([[x]]) for x in (mu, v, y))).items()}
    first, second = np.split(draws, 2)
    terms = (np.abs(first - y) + np.abs(second - y) - np.abs(first - second)) / 2  # E|X - y| - E|X - X'|/2
    # 2e-3: what tabulating in blocks may cost (`count_calibration`).
    error = 5 * terms.std() / np.sqrt(len(terms))
    assert found["crps"] == pytest.approx(terms.mean(), abs=error, rel=1e-9 if real else 2e-3)
    for level in LEVELS if real else (95,):
        ends = (1 - level / 100) / 2, (1 + level / 100) / 2
        low, high = np.quantile(draws, ends, method="linear" if real else "inverted_cdf")
        # An empirical quantile's error is sqrt(p (1 - p) / draws) / density: below 1 % of the width here.
        assert found[f"width_{level}"] == pytest.approx(high - low, rel=0.017 if real else 0.02, abs=0 if real else 1)
        if min(abs(y - low), abs(y - high)) > 0.02 * (high - low):
            assert found[f"coverage_{level}"] == float(low <= y <= high)
        if real:
            inside = np.mean(np.abs(draws - mu) <= found[f"width_{level}"] / 2)
            assert inside == pytest.approx(level / 100, abs=5 * np.sqrt(0.25 / DRAWS))
