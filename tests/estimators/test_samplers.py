"""Every sampler against the numerically normalised density, in the open and in the corners."""

import numpy as np
import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.estimators.samplers import SAMPLERS
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import SAMPLES, chi2_p_value, draw, draws_for, grid_and_cdf, ks_p_value, t

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("row", ROWS)
def test_auto_draws_from_the_product_density(row):
    samples = draw(SAMPLERS["auto"], *ROWS[row], n=SAMPLES, seed=1)
    e, cdf = grid_and_cdf(*ROWS[row])
    assert np.isfinite(samples).all()
    assert ks_p_value(samples, e, cdf) > 1e-3
    assert chi2_p_value(samples, e, cdf) > 1e-3


@pytest.mark.parametrize("row", ["gaussian", "probit", "poisson", "softplus zero", "logistic", "student"])
def test_rejection_draws_from_the_product_density(row):
    samples = draw(SAMPLERS["rejection"], *ROWS[row], n=SAMPLES, seed=2)
    e, cdf = grid_and_cdf(*ROWS[row])
    assert ks_p_value(samples, e, cdf) > 1e-3
    assert chi2_p_value(samples, e, cdf) > 1e-3


@pytest.mark.parametrize("row", ["probit", "poisson", "student"])
def test_these_tests_notice_a_density_wrong_by_two_per_cent(row):
    # Thin the right samples so that the density is 2 % too high in half of the 20 bins and 2 % too low in the others.
    samples = draw(SAMPLERS["auto"], *ROWS[row], n=2 * SAMPLES, seed=4)
    e, cdf = grid_and_cdf(*ROWS[row])
    keep = np.random.default_rng(0).random(len(samples)) < np.where(
        (20 * np.interp(samples, e, cdf)).astype(int) % 2, 1, 0.98 / 1.02
    )
    wrong = samples[keep][:SAMPLES]
    assert len(wrong) == SAMPLES
    assert chi2_p_value(wrong, e, cdf) < 1e-4
    assert chi2_p_value(samples[:SAMPLES], e, cdf) > 1e-3


@pytest.mark.parametrize("kind", sorted({row.split()[0] for row in ROWS}))
def test_a_row_draws_the_same_whatever_shares_its_batch(kind):
    rows = [r for name, r in ROWS.items() if name.split()[0] == kind]
    likelihood = rows[0][0]
    mu, v, y = (t([[r[i]] * 6 for r in rows] + [[r[i]] * 6 for r in rows]) for i in (1, 2, 3))
    mu[-1] = torch.nan
    together = SAMPLERS["auto"](likelihood, mu, v, y, 5, draws_for(len(mu))).e
    for b in range(len(rows)):
        alone = SAMPLERS["auto"](likelihood, mu[b : b + 1], v[b : b + 1], y[b : b + 1], 5, draws_for(1, seed=b)).e
        torch.testing.assert_close(together[b], alone[0], rtol=1e-10, atol=1e-12)


def test_unknown_sampler_is_the_users_mistake():
    with pytest.raises(UserError, match="rejection"):
        SAMPLERS["rejecton"]


def test_leading_shapes_of_any_kind():
    from dlmexp.estimators import FreshDraws

    for lead in ((), (2,), (2, 3)):
        mu, v = torch.zeros(*lead, 7, dtype=torch.float64), torch.ones(*lead, 7, dtype=torch.float64)
        for likelihood, *_ in ROWS.values():
            sample = SAMPLERS["auto"](likelihood, mu, v, torch.ones(7, dtype=torch.float64), 4, FreshDraws(lead))
            assert sample.e.shape == (*lead, 4, 7)
            assert sample.accepted.shape == (*lead, 7)
            assert sample.acceptance.shape == lead
