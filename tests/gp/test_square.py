"""Square loss: the closed form is the minimum, and the path is a direct solve at every beta."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.gp.collapsed import collapsed_square, moments, square_path
from dlmexp.gp.kernels import rbf
from dlmexp.gp.posterior import projection

LEARNED = ("Z", "lengthscale", "outputscale", "mean")
BETA = torch.tensor([0.01, 1.0, 40.0], dtype=torch.float64)


def loss_of(c, m):
    A = projection(rbf, c, c["X"], c["jitter"]).A
    error = c["y"] - c["mean"][:, None] - (m[..., None, :] @ A)[..., 0, :]
    return 0.5 * error.square().sum(-1) + 0.5 * BETA * m.square().sum(-1)


def test_is_the_objective_at_a_stationary_m(cells):
    c = cells(3, 6, 50, 2)
    ours = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    closed = collapsed_square(rbf, ours, c["X"], c["y"], BETA, c["jitter"])
    closed.loss.sum().backward()
    explicit = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    m = closed.m.clone().requires_grad_()
    value = loss_of(explicit, m)
    value.sum().backward()
    torch.testing.assert_close(closed.loss, value, rtol=1e-10, atol=1e-10)
    assert m.grad is not None
    assert m.grad.abs().max() < 1e-10
    for k in LEARNED:
        torch.testing.assert_close(ours[k].grad, explicit[k].grad, rtol=1e-8, atol=1e-8, msg=lambda s, k=k: f"{k}: {s}")


@settings(max_examples=20)
@given(M=st.integers(1, 12), N=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_path_is_a_direct_solve_at_every_beta(M, N, seed, cells):
    """Also where A A^T has not full rank (N < M)."""
    c = cells(2, M, N, 2, seed=seed)
    s = moments(rbf, c, c["X"], c["y"], c["jitter"])
    betas = torch.tensor([float(N) / 2**k for k in range(8)], dtype=torch.float64)
    m, loss = square_path(s, betas)
    for k, beta in enumerate(betas):
        system = s.AA + beta * torch.eye(M, dtype=torch.float64)
        direct = torch.linalg.solve(system, s.Ay[..., None])[..., 0]
        torch.testing.assert_close(m[:, k], direct, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(loss[:, k], 0.5 * (s.yy - (s.Ay * direct).sum(-1)), rtol=1e-9, atol=1e-10)
