"""A A^T, A y, y.y and the trace against dense matrices; gradients; pieces; cells of a batch."""

import pytest
import torch
from torch.autograd import gradcheck

from dlmexp.gp.collapsed import moments
from dlmexp.gp.kernels import KERNELS, rbf

LEARNED = ("Z", "lengthscale", "outputscale", "mean")


def test_equals_dense_matrices(cells):
    c = cells(2, 5, 30, 2)
    s = moments(rbf, c, c["X"], c["y"], c["jitter"])
    Kuu = rbf(c["Z"], c["Z"], c)
    Kuu = Kuu + 1e-6 * c["outputscale"][:, None, None] * torch.eye(5, dtype=torch.float64)
    Kuf, Kff = (rbf(a, c["X"], c) for a in (c["Z"], c["X"]))
    A = torch.linalg.solve(torch.linalg.cholesky(Kuu), Kuf)
    y = c["y"] - c["mean"][:, None]
    trace = (Kff - Kuf.mT @ torch.linalg.solve(Kuu, Kuf)).diagonal(dim1=-2, dim2=-1).sum(-1)
    expected = (A @ A.mT, (A @ y[..., None])[..., 0], y.square().sum(-1), trace)
    for ours, theirs in zip(s[:4], expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert s.n == 30
    assert s.ok.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("rows_at_once", [None, 2])
def test_gradient_by_finite_differences(name, rows_at_once, cells):
    c = cells(2, 3, 5, 2)

    def f(*args):
        return moments(KERNELS[name], dict(zip(LEARNED, args, strict=True)), c["X"], c["y"], c["jitter"], rows_at_once)[
            :4
        ]

    assert gradcheck(f, [c[k].requires_grad_() for k in LEARNED])


def test_a_cell_that_fails_is_marked_and_changes_no_other(cells):
    c = cells(3, 5, 20, 2)
    broken = c | {"outputscale": c["outputscale"].clone()}
    broken["outputscale"][1] = torch.nan
    ours, expected = (moments(rbf, h, c["X"], c["y"], c["jitter"]) for h in (broken, c))
    assert ours.ok.tolist() == [True, False, True]
    for a, b in zip(ours[:4], expected[:4], strict=True):
        torch.testing.assert_close(a[[0, 2]], b[[0, 2]], rtol=1e-10, atol=1e-12)
