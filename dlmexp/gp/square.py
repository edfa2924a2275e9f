"""Square-loss DLM in closed form, and its whole path over beta from one eigendecomposition."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.closed import Closed
from dlmexp.gp.hyperparameters import Hyper
from dlmexp.gp.kernels import Kernel
from dlmexp.gp.moments import Moments, moments


def collapsed_square(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """min over m of `1/2 |y - A^T m|^2 + beta/2 |m|^2 = 1/2 (y.y - y.A^T m)`, of the hyperparameters (see `Collapsed`).
    Square loss says nothing about q's covariance: L is 0."""
    s = moments(kernel, hyper, X, y, jitter, rows_at_once)
    m, ok = square_mean(s, beta)
    return Closed(0.5 * (s.yy - (s.Ay * m).sum(-1)), m.detach(), torch.zeros_like(s.AA), s.ok & ok)


def square_mean(s: Moments, beta: Float[Tensor, "B"]) -> tuple[Float[Tensor, "B M"], Bool[Tensor, "B"]]:
    """`m = (A A^T + beta I)^-1 A y`, and which cells factorised."""
    eye = torch.eye(s.AA.shape[-1], dtype=s.AA.dtype, device=s.AA.device)
    ridge = torch.where(beta > 0, beta, s.least_ridge)
    factor = factorise(s.AA + ridge[..., None, None] * eye, torch.zeros_like(beta))
    R = factor.inverse
    return (R.mT @ (R @ s.Ay[..., None])).squeeze(-1), factor.ok


def square_path(s: Moments, betas: Float[Tensor, "K"]) -> tuple[Float[Tensor, "B K M"], Float[Tensor, "B K"]]:
    """m and objective of every cell (split) at every beta: with `A A^T = U diag(e) U^T`,
    `m = U diag(1 / (e + beta)) U^T A y`. One eigendecomposition per split, whatever the number of betas."""
    e, U = torch.linalg.eigh(s.AA)
    c = U.mT @ s.Ay[..., None]
    ridges = torch.where(betas > 0, betas, s.least_ridge[..., None])
    shrunk = c.mT / (e.clamp_min(0)[..., None, :] + ridges[..., None])
    return shrunk @ U.mT, 0.5 * (s.yy[..., None] - (shrunk @ c).squeeze(-1))
