import numpy as np
import pytest

from dlmexp.estimators.samplers.envelope import log_concave, scale_mixture
from dlmexp.gp.likelihoods import Logistic, PoissonSoftplus, StudentT
from tests.support.product_density import draws_for, t


@pytest.mark.slow
def test_acceptance_is_high_everywhere():
    rng = np.random.default_rng(0)
    n = 4000
    v = 10 ** rng.uniform(-12, 4, n)
    mu = rng.normal(size=n) * 2 * (1 + np.sqrt(v))
    counts = np.where(rng.random(n) < 0.3, 0, np.floor(10 ** rng.uniform(0, 4, n)))
    rows = [
        (PoissonSoftplus(), log_concave, counts, 0.7),
        (Logistic(), log_concave, counts % 2, 0.7),
        (StudentT(t(0.5), t(4.0)), scale_mixture, rng.normal(size=n) * 10 * (1 + np.sqrt(v)), 0.9),
    ]
    for likelihood, sampler, y, worst in rows:
        rate = sampler(likelihood, t(mu)[None], t(v)[None], t(y)[None], 400, draws_for(1))
        rate = rate.accepted / rate.proposed
        assert rate.min() > worst, likelihood.name
        assert rate.mean() > 0.94, likelihood.name
