"""Power expectation propagation for Gaussian noise (Bui, Yan and Turner, 2017), and FITC, which is its alpha = 1.

The covariance of y is approximated by Qff + alpha diag(Kff - Qff) + noise I. alpha -> 0 is the ELBO."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.collapsed import Closed, gaussian_posterior
from dlmexp.gp.kernels import Hyper, Kernel
from dlmexp.gp.posterior import positive
from dlmexp.gp.precision import PARAMETERS, as_rows, hyper_as_rows, row_gram, row_sum, sum_over_rows


def power_ep(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """The negative power-EP energy at its fixed point, with r_i = (Kff - Qff)_ii and D = diag(alpha r_i + noise):

        -log N(y; mean, Qff + D) + (1 - alpha) / (2 alpha) sum_i log(1 + alpha r_i / noise)

    and its q. alpha, in [0, 1], is given where others have `beta` [B]; at 0 the sum has its limit,
    sum_i r_i / (2 noise), and it is the ELBO.
    With `A = Luu^-1 Kuf` and `H = A D^-1 A^T`: `|Qff + D| = |D| |I + H|`, and q(w) = N((I+H)^-1 A D^-1 y, (I+H)^-1)."""
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    of_rows, (inverse,) = hyper_as_rows(X, hyper), as_rows(X, Kuu.inverse)
    constant = kernel.diagonal(X[..., :1, :], of_rows) if kernel.stationary else None
    noise, (power,) = of_rows["noise"][..., None], as_rows(X, beta[..., None])
    share = (1 - power) / (2 * torch.where(power > 0, power, torch.ones_like(power)))

    def piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A = inverse @ kernel(of_rows["Z"], X, of_rows)
        prior = kernel.diagonal(X, of_rows) if constant is None else constant
        rest = positive(prior - A.square().sum(-2), prior)
        d = power * rest + noise
        corrected = torch.where(power > 0, share * torch.log1p(power * rest / noise), rest / (2 * noise))
        scaled = A / d.sqrt().unsqueeze(-2)
        b = A @ (y / d).unsqueeze(-1)
        return row_gram(scaled), b.squeeze(-1).to(PARAMETERS), row_sum(y.square() / d), row_sum(d.log() + 2 * corrected)

    H, b, yy, log_d = sum_over_rows(piece, X, y - of_rows["mean"][..., None], rows_at_once)
    m, L, ok = gaussian_posterior(H, b)
    # (I + H)^-1 = L L^T, so log|I + H| = -2 sum log L_jj and b^T (I + H)^-1 b = |L^T b|^2.
    log_h = -2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    loss = 0.5 * (
        X.shape[-2] * math.log(2 * math.pi) + log_d + log_h + yy - (L.mT @ b[..., None]).square().sum((-2, -1))
    )
    return Closed(loss, m.detach(), L.detach(), Kuu.ok & ok)
