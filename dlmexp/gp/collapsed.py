"""The regression ELBO with q at its optimum, for any beta (docs/SPEC.md, section 2), and that optimum."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.closed import Closed
from dlmexp.gp.hyperparameters import Hyper
from dlmexp.gp.kernels import Kernel
from dlmexp.gp.moments import moments


def collapsed_elbo(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """min over q of `sum_i E_q[-log N(y_i; f_i, noise)] + beta KL(q)`, of the hyperparameters (see `Collapsed`).

    With t = beta noise it is `n/2 log(2 pi noise) + beta [ -log N(y; 0, Qff + t I) + tr(Kff - Qff) / 2t
    - n/2 log(2 pi t) ]`, and the q that attains it is Titsias' solution with noise t. With `H = A A^T / t` and
    `b = A y / t` its L gives `log |I + H| = -2 sum log L_jj` and `y^T (Qff + t I)^-1 y = y.y / t - |L^T b|^2`.
    At beta = 0 q is a point and t = 0: a t that is lost beside A A^T stands for it."""
    s = moments(kernel, hyper, X, y, jitter, rows_at_once)
    beta = torch.where(beta > 0, beta, s.least_ridge / hyper["noise"].detach())
    t = beta * hyper["noise"]
    H, b = s.AA / t[..., None, None], s.Ay / t[..., None]
    m, L, ok = gaussian_posterior(H, b)
    log_det = -2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    misfit = (s.yy + s.residual) / t - (L.mT @ b[..., None]).square().sum((-2, -1))
    loss = 0.5 * s.n * torch.log(2 * math.pi * hyper["noise"]) + 0.5 * beta * (log_det + misfit)
    return Closed(loss, m.detach(), L.detach(), s.ok & ok)


def gaussian_posterior(
    H: Float[Tensor, "B M M"], b: Float[Tensor, "B M"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"], Bool[Tensor, "B"]]:
    """m and lower-triangular L of N((I + H)^-1 b, (I + H)^-1), and which cells factorised. That is done from the last
    row up, `I + H = U U^T` with U upper triangular: then `L = U^-T` is lower triangular without a second factor."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    # H is positive semi-definite, so I + H needs no jitter, unless H is so large that the I is lost to rounding.
    factor = factorise(H.flip(-2, -1) + eye, torch.zeros_like(b[..., 0]))
    L = factor.inverse.flip(-2, -1).mT
    return (L @ (L.mT @ b[..., None])).squeeze(-1), L, factor.ok
