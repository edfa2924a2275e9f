"""The regression ELBO with q at its optimum, for any beta (SPEC section 2), and that optimum."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.cholesky import Factor, factorise
from dlmexp.gp.closed import Closed, Collapsed, Hyper
from dlmexp.gp.kernels import Kernel
from dlmexp.gp.moments import Moments, moments

__all__ = ["COLLAPSED_ELBO", "Collapsed", "collapsed_elbo", "elbo", "elbo_posterior", "gaussian_posterior"]


def collapsed_elbo(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """`elbo` and its q, of the hyperparameters (see `Collapsed`)."""
    s = moments(kernel, hyper, X, y, jitter, rows_at_once)
    with torch.no_grad():
        m, L = elbo_posterior(s, beta, hyper["noise"])
    return Closed(elbo(s, beta, hyper["noise"]), m, L, s.ok)


COLLAPSED_ELBO: Collapsed = collapsed_elbo


def elbo(s: Moments, beta: Float[Tensor, "B"], noise: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """min over q of `sum_i E_q[-log N(y_i; f_i, noise)] + beta KL(q)` (not divided by n). With t = beta noise it is
    `n/2 log(2 pi noise) + beta [ -log N(y; 0, Qff + t I) + tr(Kff - Qff) / 2t - n/2 log(2 pi t) ]`."""
    t = beta * noise
    precision = _precision(s.AA / t[..., None, None])
    log_det = 2 * precision.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    fitted = (precision.inverse @ s.Ay[..., None]).square().sum((-2, -1)) / t
    return 0.5 * s.n * torch.log(2 * math.pi * noise) + 0.5 * beta * (log_det + (s.yy - fitted + s.residual) / t)


def elbo_posterior(
    s: Moments, beta: Float[Tensor, "B"], noise: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """The q that attains `elbo`: Titsias' solution with noise t = beta noise, as whitened m and lower-triangular L."""
    t = beta * noise
    return gaussian_posterior(s.AA / t[..., None, None], s.Ay / t[..., None])


def gaussian_posterior(
    H: Float[Tensor, "B M M"], b: Float[Tensor, "B M"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """m and lower-triangular L of N((I + H)^-1 b, (I + H)^-1). Factorised from the last row up, `I + H = U U^T` with U
    upper triangular, so that `L = U^-T` is lower triangular without a second factorisation."""
    L = _precision(H.flip(-2, -1)).inverse.flip(-2, -1).mT
    return (L @ (L.mT @ b[..., None])).squeeze(-1), L


def _precision(H: Tensor) -> Factor:
    """The factor of I + H; H is positive semi-definite, so no jitter is needed."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    return factorise(H + eye, torch.zeros_like(H[..., 0, 0]))
