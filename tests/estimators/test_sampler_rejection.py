import sys

import numpy as np
import pytest
import torch

from dlmexp.estimators.samplers import SAMPLERS
from dlmexp.estimators.samplers.rejection import widening
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, Probit
from tests.support.product_density import draws_for, t


def widening_by_search(likelihood, mu, v, y) -> int:
    """The rule as the paper states it, maxima by a dense grid."""

    def best(radius: float) -> float:
        f = t(np.linspace(mu - radius, mu + radius, 20001))
        return likelihood.log_prob(f, t(y)).max().item() - likelihood.log_p_max(t(y)).item()

    if best(np.sqrt(v)) >= np.log(0.5):
        return 1
    fits = [k for k in range(2, 11) if best(np.sqrt(v * np.log(k) / (1 - 1 / k))) <= -np.log(k) / 2]
    return max(fits, default=1)


@pytest.mark.parametrize(
    ("likelihood", "observed"), [(Probit(), [0.0, 1.0]), (Poisson(), [0.0, 1.0, 8.0]), (Logistic(), [1.0])]
)
def test_widening_follows_the_papers_rule(likelihood, observed):
    rng = np.random.default_rng(0)
    seen = set()
    for y in observed:
        for mu, v in zip(rng.normal(size=25) * 2, 10 ** rng.uniform(-1.5, 0.7, 25), strict=True):
            k = widening(likelihood, t([mu]), t([v]), t([y])).item()
            assert k == widening_by_search(likelihood, mu, v, y)
            seen.add(k)
    assert len(seen) > 2


def test_acceptance_is_samples_over_proposals():
    # With k = 1 a proposal from q is accepted with probability p / p_max, so the rate is Z / p_max.
    likelihood, rows = Gaussian(t(0.5)), torch.zeros(1, 20_000, dtype=torch.float64)
    sample = SAMPLERS["rejection"](likelihood, rows, rows + 0.4, rows + 0.3, 5, draws_for(1))
    expected = (-likelihood.log_loss(t([0.0]), t([0.4]), t([0.3])) - likelihood.log_p_max(t([0.3]))).exp().item()
    assert sample.acceptance.item() == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_rows_it_could_never_finish_come_from_the_exact_sampler():
    mu, v, y = t([[-40.0, 0.1]]), t([[0.3, 0.3]]), t([[1.0, 1.0]])
    sample = SAMPLERS["rejection"](Probit(), mu, v, y, 3, draws_for(1))
    exact = SAMPLERS["auto"](Probit(), mu, v, y, 3, draws_for(1))
    torch.testing.assert_close(sample.e[..., 0], exact.e[..., 0], rtol=1e-12, atol=1e-12)
    assert isinstance(sample.proposed, torch.Tensor)
    rate = sample.accepted / sample.proposed
    assert rate[0, 0] < 0.01
    assert rate[0, 1] > 0.1


def test_parameters_per_cell_meet_the_entries_still_open():
    noise = t([[0.05], [2.0]])
    mu = torch.zeros(2, 30_000, dtype=torch.float64)
    e = SAMPLERS["rejection"](Gaussian(noise), mu, mu + 1.0, mu + 1.0, 2, draws_for(2)).e
    mean, var = 1 / (1 + noise), noise / (1 + noise)
    torch.testing.assert_close(e.mean((1, 2)), mean.flatten(), rtol=0, atol=0.03)
    torch.testing.assert_close(e.var((1, 2)), var.flatten(), rtol=0.04, atol=0)


def test_rounds_at_once_are_rounds_one_by_one(monkeypatch):
    rng = np.random.default_rng(1)
    mu, v, y = (
        t(rng.normal(size=(2, 300)) * 2),
        t(10 ** rng.uniform(-1, 1, (2, 300))),
        t(rng.poisson(3, (2, 300)) * 1.0),
    )
    together = SAMPLERS["rejection"](Poisson(), mu, v, y, 4, draws_for(2))
    monkeypatch.setattr(sys.modules["dlmexp.estimators.samplers.rejection"], "MOST_AT_ONCE", 1)
    one_by_one = SAMPLERS["rejection"](Poisson(), mu, v, y, 4, draws_for(2))
    torch.testing.assert_close(together.e, one_by_one.e, rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.as_tensor(together.proposed), torch.as_tensor(one_by_one.proposed))
    assert torch.as_tensor(together.proposed).max() > 40, "rows that need several blocks of rounds"
