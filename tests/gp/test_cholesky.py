"""The batch factorisation: right and differentiable. Cells that fail are in test_posterior.py."""

import pytest
import torch
from torch.autograd import gradcheck

from dlmexp.gp.cholesky import FIRST_JITTER, LAST_JITTER, escalate, factorise


def positive_definite(B: int, M: int, seed: int = 0) -> torch.Tensor:
    R = torch.randn(B, M, M, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return R @ R.mT + torch.eye(M, dtype=torch.float64)


def test_factor_inverse_and_relative_jitter():
    K = positive_definite(2, 6)
    jitter = torch.tensor([0.0, 1e-2], dtype=torch.float64)
    f = factorise(K, jitter)
    scale = jitter * K.diagonal(dim1=-2, dim2=-1).mean(-1)
    eye = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(f.L @ f.L.mT, K + scale[:, None, None] * eye, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(f.L @ f.inverse, eye.expand(2, 6, 6), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(f.K, f.L @ f.L.mT, rtol=1e-12, atol=1e-12)
    assert f.ok.all()


@pytest.mark.parametrize("part", ["K", "L", "inverse", "all"])
def test_gradient_through_every_part(part):
    """The input is symmetrised on the way in, as a gradient in K is only defined along symmetric directions."""
    jitter = torch.tensor([0.0, 0.1], dtype=torch.float64)

    def f(R):
        found = factorise(R + R.mT, jitter)
        return (found.K.sin() + found.L.cos() + found.inverse.sin()) if part == "all" else getattr(found, part)

    assert gradcheck(f, [(positive_definite(2, 4) / 2).requires_grad_()])


def test_escalation_raises_only_the_jitter_of_cells_that_need_it():
    K = torch.stack(
        [positive_definite(1, 8)[0], torch.ones(8, 8, dtype=torch.float64), -torch.eye(8, dtype=torch.float64)]
    )
    # The middle cell misses positive definiteness by 3e-4 of its mean diagonal.
    K[1] -= 3e-4 * torch.eye(8, dtype=torch.float64)
    jitter, ok = escalate(K, torch.full((3,), FIRST_JITTER, dtype=torch.float64))
    assert ok.tolist() == [True, True, False]
    torch.testing.assert_close(jitter[:2], torch.tensor([1e-6, 1e-3], dtype=torch.float64), rtol=1e-9, atol=0)
    assert jitter[2] == pytest.approx(LAST_JITTER)
