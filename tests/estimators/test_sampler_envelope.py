import numpy as np
import pytest
import torch
from product_density import draws_for, t

from dlmexp.estimators.samplers.envelope import POOL, _replace_rejected, spares
from dlmexp.estimators.samplers.log_concave import log_concave
from dlmexp.estimators.samplers.scale_mixture import scale_mixture
from dlmexp.gp.likelihoods import Logistic, Poisson, PoissonSoftplus, StudentT


@pytest.mark.parametrize("samples", [1, 2, 7, 10, 100, 1000])
def test_there_are_always_enough_candidates(samples):
    assert spares(samples) >= 2
    assert spares(samples) + samples >= POOL


def test_rejected_candidates_give_way_to_accepted_ones():
    x = t([10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).view(1, 10, 1)
    accepted = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 0, 1], dtype=torch.bool).view(1, 10, 1)
    got = _replace_rejected(x, accepted, 3).flatten().tolist()
    # Samples are 0..6; stand-ins are the first three accepted of the pool: 10, 12, 0.
    assert got == [0.0, 12.0, 2.0, 3.0, 12.0, 0.0, 6.0]


def test_one_accepted_candidate_serves_all_and_none_at_all_is_still_a_number():
    x = torch.arange(11, dtype=torch.float64).view(1, 11, 1)
    accepted = torch.zeros(1, 11, 1, dtype=torch.bool)
    accepted[0, 4] = True
    assert set(_replace_rejected(x, accepted, 3).flatten().tolist()) == {4.0}
    assert _replace_rejected(x, torch.zeros_like(accepted), 3).isfinite().all()


def test_acceptance_is_high_everywhere():
    rng = np.random.default_rng(0)
    n = 4000
    v = 10 ** rng.uniform(-12, 4, n)
    mu = rng.normal(size=n) * 2 * (1 + np.sqrt(v))
    counts = np.where(rng.random(n) < 0.3, 0, np.floor(10 ** rng.uniform(0, 4, n)))
    rows = [
        (Poisson(), log_concave, counts, 0.85),
        (PoissonSoftplus(), log_concave, counts, 0.7),
        (Logistic(), log_concave, counts % 2, 0.7),
        (StudentT(t(0.5), t(4.0)), scale_mixture, rng.normal(size=n) * 10 * (1 + np.sqrt(v)), 0.9),
    ]
    for likelihood, sampler, y, worst in rows:
        rate = sampler(likelihood, t(mu)[None], t(v)[None], t(y)[None], 400, draws_for(1)).acceptance
        assert rate.min() > worst, likelihood.name
        assert rate.mean() > 0.94, likelihood.name
