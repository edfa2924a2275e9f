"""The collapsed ELBO against the uncollapsed one at its optimum, and against the formula with n x n matrices."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from dlmexp.gp.collapsed import collapsed_elbo, collapsed_square, gaussian_posterior
from dlmexp.gp.fitc import fitc
from dlmexp.gp.kernels import rbf
from dlmexp.gp.posterior import kl, marginals, projection
from scripts.benchmark.measure import peak_bytes

BETA = torch.tensor([0.01, 1.0, 40.0], dtype=torch.float64)
LEARNED = ("Z", "lengthscale", "outputscale", "noise", "mean")


def uncollapsed(c, m, L):
    p = projection(rbf, c, c["X"], c["jitter"])
    mu, v = marginals(p, c["mean"], m, L)
    noise = c["noise"][:, None]
    loss = 0.5 * (torch.log(2 * math.pi * noise) + ((c["y"] - mu).square() + v) / noise)
    return loss.sum(-1) + BETA * kl(m, L)


def test_is_the_uncollapsed_objective_at_a_stationary_q(cells):
    """Same value, same gradient in every hyperparameter (envelope theorem), no gradient left in q."""
    c = cells(3, 6, 50, 2)
    ours = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    closed = collapsed_elbo(rbf, ours, c["X"], c["y"], BETA, c["jitter"])
    closed.loss.sum().backward()

    explicit = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    m, L = closed.m.clone().requires_grad_(), closed.L.clone().requires_grad_()
    value = uncollapsed(explicit, m, L)
    value.sum().backward()
    torch.testing.assert_close(closed.loss, value, rtol=1e-9, atol=1e-9)
    assert m.grad is not None
    assert L.grad is not None
    # The terms that cancel at the optimum are of the size of n/noise, about 1e3.
    assert m.grad.abs().max() < 1e-8
    assert L.grad.tril().abs().max() < 1e-8
    for k in LEARNED:
        torch.testing.assert_close(ours[k].grad, explicit[k].grad, rtol=1e-7, atol=1e-7, msg=lambda s, k=k: f"{k}: {s}")
    assert torch.equal(closed.L, closed.L.tril())
    assert (uncollapsed(c, closed.m + 0.01, closed.L) > value).all()


def test_is_the_formula_of_section_2(cells):
    """With dense Qff + t I; at beta = 1 it is Titsias' bound."""
    c = cells(3, 6, 30, 2)
    loss = collapsed_elbo(rbf, c, c["X"], c["y"], BETA, c["jitter"]).loss
    A = projection(rbf, c, c["X"], c["jitter"]).A
    t = BETA * c["noise"]
    Qff = A.mT @ A
    evidence = MultivariateNormal(c["mean"][:, None].expand(3, 30), Qff + t[:, None, None] * torch.eye(30)).log_prob(
        c["y"]
    )
    trace = 30 * c["outputscale"] - Qff.diagonal(dim1=-2, dim2=-1).sum(-1)
    inner = -evidence + trace / (2 * t) - 15 * torch.log(2 * math.pi * t)
    expected = 15 * torch.log(2 * math.pi * c["noise"]) + BETA * inner
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_pieces_of_rows_change_nothing(cells):
    c = cells(3, 6, 50, 2)
    values = []
    for rows_at_once in (None, 7):
        h = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
        loss = collapsed_elbo(rbf, h, c["X"], c["y"], BETA, c["jitter"], rows_at_once).loss
        loss.sum().backward()
        values.append([loss.detach(), *(h[k].grad for k in LEARNED)])
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-9)


@pytest.mark.slow
def test_memory_is_bounded_by_the_piece(cells):
    """60 000 rows, M = 50, one cell: all rows at once would hold 3 to 5 arrays of 24 MB. The peak that the pieces of
    1000 rows add is a few of 0.4 MB; the profiler counts it exactly."""
    c = cells(1, 50, 60_000, 2)
    h = c | {k: c[k].clone().requires_grad_() for k in LEARNED}

    def both_passes():
        collapsed_elbo(rbf, h, c["X"], c["y"], BETA[:1], c["jitter"], 1000).loss.sum().backward()

    assert 0 < peak_bytes(both_passes) < 12e6


def test_gaussian_posterior_inverts_its_precision(cells):
    R = cells(2, 5, 1, 1)["L"]
    H, b = R @ R.mT, cells(2, 5, 1, 1)["m"]
    m, L, ok = gaussian_posterior(H, b)
    assert ok.all()
    eye = torch.eye(5, dtype=torch.float64).expand(2, 5, 5)
    torch.testing.assert_close(L @ L.mT @ (H + eye), eye, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(((H + eye) @ m[..., None])[..., 0], b, rtol=1e-11, atol=1e-11)
    assert torch.equal(L, L.tril())


def test_a_cell_whose_precision_does_not_factorise_is_marked(cells):
    R = cells(2, 5, 1, 1)["L"]
    H = R @ R.mT
    H[1] = float("inf")
    _, _, ok = gaussian_posterior(H, cells(2, 5, 1, 1)["m"])
    assert ok.tolist() == [True, False]


@pytest.mark.parametrize("collapsed", [collapsed_elbo, collapsed_square, fitc])
def test_a_loss_without_a_factor_is_not_taken_for_one(cells, collapsed):
    """Where A A^T is not finite, the cell is marked; its neighbour is as it is alone."""
    c = cells(2, 6, 30, 2)
    c["X"][1, 0] = float("nan")
    found = collapsed(rbf, c, c["X"], c["y"], BETA[:2], c["jitter"])
    assert found.ok.tolist() == [True, False]
    alone = {name: value[:1] for name, value in c.items()}
    assert torch.allclose(
        found.loss[:1], collapsed(rbf, alone, alone["X"], alone["y"], BETA[:1], alone["jitter"]).loss, rtol=1e-12
    )
