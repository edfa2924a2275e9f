"""The fixed variants: one A per repetition gives what every cell's own would."""

import pytest
import torch

from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.training.program import unconstrain
from dlmexp.training.variants import Fixed
from tests.support.small_programs import held, program

INDEX, BETAS = (0, 0, 1, 1, 1), (5.0, 0.5, 7.0, 1.0, 0.1)


def _pair(whitened=True, minibatch=None, likelihood="probit"):
    fixed = program("fixed", BETAS, INDEX, whitened=whitened, minibatch=minibatch, likelihood=likelihood)
    joint = program("joint", BETAS, INDEX, whitened=whitened, minibatch=minibatch, likelihood=likelihood)
    g = torch.Generator().manual_seed(5)
    q = fixed.initial()
    q["m"] = torch.randn(q["m"].shape, generator=g, dtype=torch.float64)
    q["L"] = q["L"] + 0.2 * torch.randn(q["L"].shape, generator=g, dtype=torch.float64).tril()
    hyper = {name: value[fixed.split.index] for name, value in unconstrain(held(2), joint.positive).items()}
    if likelihood == "probit":
        del hyper["noise"]
    return fixed, joint, q, hyper | q


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("minibatch", [None, 10])
def test_equals_joint_with_the_same_hyperparameters(whitened, minibatch):
    fixed, joint, q, everything = _pair(whitened, minibatch)
    jitter, iteration = torch.full((5,), FIRST_JITTER, dtype=torch.float64), torch.tensor(4)
    for each in (fixed, joint):
        each.load_minibatch(4)
    ours, theirs = fixed.objective(q, jitter, iteration), joint.objective(everything, jitter, iteration)
    torch.testing.assert_close(ours.objective, theirs.objective, rtol=1e-11, atol=1e-12)
    for mine, other in zip(fixed.posterior(q, jitter)[1:3], joint.posterior(everything, jitter)[1:3], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)


def test_only_q_is_learned():
    assert set(program("fixed").initial()) == {"m", "L"}


def test_keeping_cells_keeps_their_values():
    fixed, _, q, _ = _pair()
    jitter, chosen = torch.full((5,), FIRST_JITTER, dtype=torch.float64), [2, 4]
    whole = fixed.objective(q, jitter, torch.tensor(0)).objective
    part = fixed.keep(chosen)
    assert isinstance(part, Fixed)
    assert len(part.hyper["Z"]) == 1
    kept = part.objective({name: value[chosen] for name, value in q.items()}, jitter[chosen], torch.tensor(0)).objective
    torch.testing.assert_close(kept, whole[chosen], rtol=1e-12, atol=1e-12)


def test_the_jitter_it_needs_is_found_once_for_all():
    """Inputs so far from the origin that rounding makes the kernel matrix indefinite by more than 1e-6."""
    fixed = program("fixed", BETAS, INDEX)
    assert isinstance(fixed, Fixed)
    hyper = fixed.hyper | {"Z": fixed.hyper["Z"] * 1e-3 + 2e5}
    made = Fixed(fixed.model, fixed.split, fixed.beta, hyper)
    assert (made.jitter > FIRST_JITTER).all()
    value = made.objective(made.initial(), torch.full((5,), FIRST_JITTER, dtype=torch.float64), torch.tensor(0))
    assert value.ok.all()
    assert value.objective.isfinite().all()
