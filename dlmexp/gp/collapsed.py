"""Objectives with a closed form over q: the regression ELBO for any beta (docs/SPEC.md, section 2) and square loss.

Both are functions of a few moments in whitened coordinates, A A^T, A y, y.y and tr(Kff - Qff), whatever the number of
rows.
"""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.kernels import Hyper, Kernel, has_fused
from dlmexp.gp.precision import PARAMETERS, as_rows, hyper_as_rows, row_sum, sum_over_rows
from dlmexp.gp.projected import moment_gradients, moments_of_rows
from dlmexp.gp.special import once_differentiable


class Closed(NamedTuple):
    """The objective at its minimum over q (not divided by n), and the whitened q that attains it."""

    loss: Float[Tensor, "B"]
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    ok: Bool[Tensor, "B"]
    """which cells could be factorised"""


@runtime_checkable
class CollapsedObjective(Protocol):
    """An objective as a function of the hyperparameters alone. `loss` is differentiable in `hyper`; with `rows_at_once`
    its memory, backward pass included, is that of so many rows."""

    def __call__(
        self,
        kernel: Kernel,
        hyper: Hyper,
        X: Float[Tensor, "B N D"],
        y: Float[Tensor, "B N"],
        beta: Float[Tensor, "B"],
        jitter: Float[Tensor, "B"],
        rows_at_once: int | None = None,
    ) -> Closed: ...


SINGULAR = 1e-10  # relative to the mean of the diagonal


class Moments(NamedTuple):
    """Moments of n rows, with `A = Luu^-1 Kuf` and y less its prior mean. `ok` marks the cells whose Kuu factorised."""

    AA: Float[Tensor, "B M M"]
    Ay: Float[Tensor, "B M"]
    yy: Float[Tensor, "B"]
    residual: Float[Tensor, "B"]
    """tr(Kff - Qff), Qff = A^T A"""
    n: int
    ok: Bool[Tensor, "B"]

    @property
    def least_ridge(self) -> Float[Tensor, "B"]:
        """What is added to the diagonal of A A^T, which may be singular, where beta = 0."""
        return SINGULAR * self.AA.detach().diagonal(dim1=-2, dim2=-1).mean(-1)


def moments(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Moments:
    """The moments of all N rows, differentiable; with `rows_at_once`, memory is that of so many rows in both passes."""
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    of_rows, (K, inverse) = hyper_as_rows(X, hyper), as_rows(X, Kuu.K, Kuu.inverse.detach())
    y = y - of_rows["mean"][..., None]

    def piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        if has_fused(kernel, of_rows["Z"], X):
            from dlmexp.gp.fused.projected import moments_of_stationary

            AA, Ay = moments_of_stationary(kernel, of_rows, X, K, inverse, y)
        else:
            AA, Ay = _Moments.apply(kernel(of_rows["Z"], X, of_rows), K, inverse, y)  # pyright: ignore[reportGeneralTypeIssues]
        return AA, Ay.to(PARAMETERS)

    AA, Ay = sum_over_rows(piece, X, y, rows_at_once)
    trace = kernel.trace(X if kernel.stationary else X.to(PARAMETERS), hyper)
    residual = trace - AA.diagonal(dim1=-2, dim2=-1).sum(-1)
    return Moments(AA, Ay, row_sum(y.square()), residual, X.shape[-2], Kuu.ok)


class _Moments(torch.autograd.Function):
    """(Kuf, Kuu, Luu^-1, y) -> A A^T, A y at three products of M x M by M x N in all.

    For cotangents G (plus its transpose) of A A^T and g of A y: `dA = G A + g y^T`, so `dKuf = Luu^-T dA` and, since
    Kuf = Luu A, `Luu^T dLuu = -dA A^T = -(G AA + g Ay^T)`, which is M x M and goes straight into Kuu."""

    @staticmethod
    def forward(ctx: Any, Kuf: Tensor, Kuu: Tensor, Luu_inv: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        A, AA, Ay = moments_of_rows(Kuf, Luu_inv, y)
        ctx.save_for_backward(Luu_inv, y, A, AA, Ay)
        return AA, Ay

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
        Luu_inv, y, A, AA, Ay = ctx.saved_tensors
        V, w, d_Kuu = moment_gradients(Luu_inv, A, AA, Ay, *grads)
        d_y = (grads[1].unsqueeze(-2) @ A).squeeze(-2) if ctx.needs_input_grad[3] else None
        return V.addcmul_(w.unsqueeze(-1), y.unsqueeze(-2)), d_Kuu, None, d_y


def collapsed_elbo(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """min over q of `sum_i E_q[-log N(y_i; f_i, noise)] + beta KL(q)`, of the hyperparameters.

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


def collapsed_square(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """min over m of `1/2 |y - A^T m|^2 + beta/2 |m|^2 = 1/2 (y.y - y.A^T m)`, of the hyperparameters.
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
