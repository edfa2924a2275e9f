"""What all programs share: rows, draws, the scale of the objective."""

import pytest
import torch

from dlmexp.estimators import UPS, Exact
from tests.support.small_programs import N, program


@pytest.mark.parametrize("kind", ["joint", "fixed"])
def test_minibatch_objectives_average_to_the_whole_one(kind):
    # 30 rows in batches of 10: an epoch is three steps and every row is in exactly one of them.
    whole, parts = program(kind), program(kind, minibatch=10)
    jitter, values = torch.full_like(whole.beta, 1e-6), whole.initial()
    values["m"] = values["m"] + 0.3
    seen = []
    for iteration in range(3):
        parts.load_minibatch(iteration)
        seen.append(parts.objective(values, jitter, torch.tensor(iteration)).objective)
    expected = whole.objective(values, jitter, torch.tensor(0)).objective
    torch.testing.assert_close(torch.stack(seen).mean(0), expected, rtol=1e-12, atol=1e-12)


def test_keeping_cells_drops_repetitions_nobody_needs():
    made = program(index=(0, 1, 1))
    part = made.keep([1, 2])
    assert part.split.X.shape[0] == 1
    assert part.split.seeds.tolist() == [11]
    assert part.beta.tolist() == [1.0, 0.1]
    assert torch.equal(part.split.X[0], made.split.X[1])
    assert made.keep([0, 2]).split.seeds.tolist() == [10, 11]


def test_draws_follow_seed_and_iteration_alone():
    made = program(index=(0, 1, 1))
    here = made.draws(torch.tensor(5)).normal(2, N)
    alone = made.keep([2]).draws(torch.tensor(5)).normal(2, N)
    torch.testing.assert_close(here[2:], alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(here[1], here[2], rtol=1e-12, atol=1e-12)
    assert not torch.equal(here[0], here[1])
    assert not torch.equal(here, made.draws(torch.tensor(6)).normal(2, N))


def test_only_the_rejection_sampler_can_not_be_captured():
    assert program(estimator=Exact()).capturable
    assert program(estimator=UPS(2)).capturable
    assert not program(estimator=UPS(2, "rejection")).capturable


def test_acceptance_is_reported_where_it_is_known():
    made = program(likelihood="poisson", estimator=UPS(4, "rejection"))
    value = made.objective(made.initial(), torch.full_like(made.beta, 1e-6), torch.tensor(0))
    assert ((value.acceptance > 0) & (value.acceptance <= 1)).all()


def test_student_t_has_a_scale_and_heavy_tails():
    made = program(likelihood="student_t")
    likelihood = made.model.likelihood.from_hyper({"noise": torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64)})
    far = torch.full((3, 1), 50.0, dtype=torch.float64)
    expected = torch.distributions.StudentT(4.0, 0.0, torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64))
    found = likelihood.log_prob(torch.zeros_like(far), far)
    torch.testing.assert_close(found, expected.log_prob(far), rtol=1e-12, atol=1e-12)
