import pytest
import torch

from dlmexp.estimators.samplers.envelope import POOL, replace_rejected, spares
from tests.support.product_density import t


@pytest.mark.parametrize("samples", [1, 2, 7, 10, 100, 1000])
def test_there_are_always_enough_candidates(samples):
    assert spares(samples) >= 2
    assert spares(samples) + samples >= POOL


def test_rejected_candidates_give_way_to_accepted_ones():
    x = t([10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).view(1, 10, 1)
    accepted = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 0, 1], dtype=torch.bool).view(1, 10, 1)
    got = replace_rejected(x, accepted, 3).flatten().tolist()
    # Samples are 0..6; stand-ins are the first three accepted of the pool: 10, 12, 0.
    assert got == [0.0, 12.0, 2.0, 3.0, 12.0, 0.0, 6.0]


def test_one_accepted_candidate_serves_all_and_none_at_all_is_still_a_number():
    x = torch.arange(11, dtype=torch.float64).view(1, 11, 1)
    accepted = torch.zeros(1, 11, 1, dtype=torch.bool)
    accepted[0, 4] = True
    assert set(replace_rejected(x, accepted, 3).flatten().tolist()) == {4.0}
    assert replace_rejected(x, torch.zeros_like(accepted), 3).isfinite().all()
