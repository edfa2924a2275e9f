"""The RBF posterior in one function against the general ones, and its gradient against finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

from dlmexp.gp.kernels import matern52, rbf
from dlmexp.gp.posterior import marginals, projection
from dlmexp.gp.products import Workspace
from dlmexp.gp.rbf_posterior import fits, rbf_marginals

SHAPES = {"usual": (3, 7, 40, 4, 1), "ard": (2, 9, 30, 3, 3), "strips": (2, 100, 600, 3, 1), "one": (1, 1, 1, 1, 1)}


def _problem(shape):
    B, M, N, D, P = SHAPES[shape]
    g = torch.Generator().manual_seed(0)
    random = lambda *size: torch.randn(*size, generator=g, dtype=torch.float64)  # noqa: E731
    hyper = {"Z": random(B, M, D), "lengthscale": 0.3 + random(B, P).abs(), "outputscale": 0.5 + random(B).abs()}
    hyper["mean"] = random(B)
    m, L = random(B, M), (0.1 * random(B, M, M) + torch.eye(M)).tril()
    for tensor in (*hyper.values(), m, L):
        tensor.requires_grad_()
    return hyper, m, L, random(B, N, D), torch.full((B,), 1e-6, dtype=torch.float64), random(2, B, N)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_general_way_with_an_rbf_kernel(shape):
    hyper, m, L, X, jitter, weight = _problem(shape)
    p = projection(rbf, hyper, X, jitter)
    mu, v, ok = rbf_marginals(hyper, X, jitter, m, L, Workspace())
    expected = torch.stack(marginals(p, hyper["mean"], m, L))
    torch.testing.assert_close(torch.stack([mu, v]), expected, rtol=1e-10, atol=1e-12)
    assert ok.tolist() == p.ok.tolist() == [True] * len(m)
    leaves = [*hyper.values(), m, L]
    ours = torch.autograd.grad((torch.stack([mu, v]) * weight).sum(), leaves)
    theirs = torch.autograd.grad((expected * weight).sum(), leaves)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * float(other.abs().max()))


@pytest.mark.parametrize("shape", ["ard", "one"])
def test_its_gradient_is_that_of_finite_differences(shape):
    hyper, m, L, X, jitter, _ = _problem(shape)
    jitter = 1e5 * jitter  # well conditioned

    def f(Z, l, s, mean, m, L):
        given = {"Z": Z, "lengthscale": l, "outputscale": s, "mean": mean}
        return rbf_marginals(given, X, jitter, m, L.tril(), Workspace())[:2]

    assert gradcheck(f, (*hyper.values(), m, L))


def test_a_cell_that_does_not_factorise_is_marked_and_leaves_the_others_alone():
    hyper, m, L, X, jitter, weight = _problem("usual")
    alone = rbf_marginals(hyper, X, jitter, m, L, Workspace())
    spoiled = {**hyper, "Z": hyper["Z"].detach().clone()}
    spoiled["Z"][1] = torch.nan
    spoiled["Z"].requires_grad_()
    mu, v, ok = rbf_marginals(spoiled, X, jitter, m, L, Workspace())
    assert ok.tolist() == [True, False, True]
    d_m, d_Z = torch.autograd.grad((torch.stack([mu, v]) * weight)[:, [0, 2]].sum(), [m, spoiled["Z"]])
    assert d_m[[0, 2]].isfinite().all()
    assert d_Z[[0, 2]].isfinite().all()
    for one, other in zip((mu, v), alone, strict=False):
        torch.testing.assert_close(one[[0, 2]], other[[0, 2]], rtol=1e-12, atol=1e-12)


def test_one_step_after_another_in_the_same_memory():
    hyper, m, L, X, jitter, weight = _problem("usual")
    memory, found = Workspace(), []
    for _ in range(2):
        mu, v, _ = rbf_marginals(hyper, X, jitter, m, L, memory)
        found.append(torch.autograd.grad((torch.stack([mu, v]) * weight).sum(), [hyper["Z"], L]))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_it_is_for_rbf_kernels_in_float64():
    X = torch.zeros(1, 2, 1, dtype=torch.float64)
    assert fits(rbf, X)
    assert not fits(rbf, X.float())
    assert not fits(matern52, X)
