"""Objectives with a closed form over q, for Gaussian noise: the ELBO for any beta (docs/SPEC.md,
section 2), square loss, power EP with FITC, and the exact Gaussian process.

The first two are functions of a few moments in whitened coordinates, A A^T, A y, y.y and tr(Kff -
Qff), whatever the number of rows."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.kernels import Hyper, Kernel, fused_parameters
from dlmexp.core.gp.matrix_products import moment_gradients, moments_of_rows, row_gram
from dlmexp.core.gp.posterior import positive
from dlmexp.core.gp.precision import PARAMETERS, as_rows, hyper_as_rows, row_sum, sum_over_rows
from dlmexp.core.gp.special import once_differentiable


class Problem(NamedTuple):
    """The rows of B cells, and hyperparameters. With `rows_at_once` memory, backward pass included,
    is that of so many rows."""

    kernel: Kernel
    hyper: Hyper
    X: Float[Tensor, "B N D"]
    y: Float[Tensor, "B N"]
    jitter: Float[Tensor, "B"]
    rows_at_once: int | None = None


class Closed(NamedTuple):
    """The objective at its minimum over q (not divided by n), and the whitened q that attains
    it."""

    loss: Float[Tensor, "B"]
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    ok: Bool[Tensor, "B"]
    """which cells could be factorised"""


CollapsedObjective = Callable[[Problem, Float[Tensor, "B"]], Closed]
"""An objective as a function of the hyperparameters alone, in which `loss` is differentiable, and of beta [B]."""
SINGULAR = 1e-10  # relative to the mean of the diagonal


class Moments(NamedTuple):
    """Moments of n rows, with `A = Luu^-1 Kuf` and y less its prior mean. `ok` marks the cells
    whose Kuu factorised."""

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


def moments(problem: Problem) -> Moments:
    """The moments of all rows, differentiable in the hyperparameters."""
    kernel, hyper, X, y, jitter, rows_at_once = problem
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    of_rows, (K, inverse) = hyper_as_rows(X, hyper), as_rows(X, Kuu.K, Kuu.inverse.detach())
    y = y - of_rows["mean"][..., None]

    def piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        if parameters := fused_parameters(kernel, of_rows, X):
            from dlmexp.core.gp.fused import projected

            AA, Ay = projected.FusedMoments.apply(*parameters, X, K, inverse, y)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            AA, Ay = _Moments.apply(kernel(of_rows["Z"], X, of_rows), K, inverse, y)  # pyright: ignore[reportGeneralTypeIssues]
        return AA, Ay.to(PARAMETERS)

    AA, Ay = sum_over_rows(piece, X, y, rows_at_once)
    trace = kernel.trace(X if kernel.stationary else X.to(PARAMETERS), hyper)
    residual = trace - AA.diagonal(dim1=-2, dim2=-1).sum(-1)
    return Moments(AA, Ay, row_sum(y.square()), residual, X.shape[-2], Kuu.ok)


class _Moments(torch.autograd.Function):
    """(Kuf, Kuu, Luu^-1, y) -> A A^T, A y at three products of M x M by M x N in all.

    For cotangents G (plus its transpose) of A A^T and g of A y: `dA = G A + g y^T`, so `dKuf =
    Luu^-T dA` and, since Kuf = Luu A, `Luu^T dLuu = -dA A^T = -(G AA + g Ay^T)`, which is M x M and
    goes straight into Kuu."""

    @staticmethod
    def forward(
        ctx: Any, Kuf: Tensor, Kuu: Tensor, Luu_inv: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
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


class GaussianPosterior(NamedTuple):
    """N(m, L L^T) = N((I + H)^-1 b, (I + H)^-1) of q, and what evidences need of it."""

    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    log_det: Float[Tensor, "B"]
    """log |I + H|"""
    explained: Float[Tensor, "B"]
    """b^T (I + H)^-1 b"""
    ok: Bool[Tensor, "B"]


def gaussian_posterior(H: Float[Tensor, "B M M"], b: Float[Tensor, "B M"]) -> GaussianPosterior:
    """With L lower triangular. `I + H` is factorised from the last row up, `U U^T` with U upper
    triangular: then `L = U^-T` is lower triangular without a second factor."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    # H is positive semi-definite, so I + H needs no jitter, unless H is so large that the I is lost
    # to rounding.
    factor = factorise(H.flip(-2, -1) + eye, torch.zeros_like(b[..., 0]))
    L = factor.inverse.flip(-2, -1).mT
    Lb = L.mT @ b[..., None]
    log_det = -2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return GaussianPosterior(
        (L @ Lb).squeeze(-1).detach(), L.detach(), log_det, Lb.square().sum((-2, -1)), factor.ok
    )


def collapsed_elbo(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """min over q of `sum_i E_q[-log N(y_i; f_i, noise)] + beta KL(q)`.

    With t = beta noise it is `n/2 log(2 pi noise) + beta [ -log N(y; 0, Qff + t I) + tr(Kff - Qff)
    / 2t - n/2 log(2 pi t) ]`, and the q that attains it is Titsias' solution with noise t. With `H
    = A A^T / t` and `b = A y / t` the first term has `log |I + H|` and `y^T (Qff + t I)^-1 y = y.y
    / t - b^T (I + H)^-1 b`. At beta = 0 q is a point and t = 0: a t that is lost beside A A^T
    stands for it."""
    s, noise = moments(problem), problem.hyper["noise"]
    beta = torch.where(beta > 0, beta, s.least_ridge / noise.detach())
    t = beta * noise
    q = gaussian_posterior(s.AA / t[..., None, None], s.Ay / t[..., None])
    misfit = (s.yy + s.residual) / t - q.explained
    loss = 0.5 * s.n * torch.log(2 * math.pi * noise) + 0.5 * beta * (q.log_det + misfit)
    return Closed(loss, q.m, q.L, s.ok & q.ok)


def collapsed_square(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """min over m of `1/2 |y - A^T m|^2 + beta/2 |m|^2 = 1/2 (y.y - y.A^T m)`, at `m = (A A^T + beta
    I)^-1 A y`. Square loss says nothing about q's covariance: L is 0."""
    s = moments(problem)
    eye = torch.eye(s.AA.shape[-1], dtype=s.AA.dtype, device=s.AA.device)
    ridge = torch.where(beta > 0, beta, s.least_ridge)
    factor = factorise(s.AA + ridge[..., None, None] * eye, torch.zeros_like(beta))
    m = (factor.inverse.mT @ (factor.inverse @ s.Ay[..., None])).squeeze(-1)
    return Closed(
        0.5 * (s.yy - (s.Ay * m).sum(-1)), m.detach(), torch.zeros_like(s.AA), s.ok & factor.ok
    )


def square_path(
    s: Moments, betas: Float[Tensor, "K"]
) -> tuple[Float[Tensor, "B K M"], Float[Tensor, "B K"]]:
    """m and objective of every cell (split) at every beta: with `A A^T = U diag(e) U^T`, `m = U
    diag(1 / (e + beta)) U^T A y`. One eigendecomposition per split, whatever the number of
    betas."""
    e, U = torch.linalg.eigh(s.AA)
    c = U.mT @ s.Ay[..., None]
    ridges = torch.where(betas > 0, betas, s.least_ridge[..., None])
    shrunk = c.mT / (e.clamp_min(0)[..., None, :] + ridges[..., None])
    return shrunk @ U.mT, 0.5 * (s.yy[..., None] - (shrunk @ c).squeeze(-1))


def power_ep(problem: Problem, alpha: Float[Tensor, "B"]) -> Closed:
    """The negative energy of power expectation propagation (Bui, Yan and Turner, 2017) at its fixed
    point, and its q. With r_i = (Kff - Qff)_ii and D = diag(alpha r_i + noise):

        -log N(y; mean, Qff + D) + (1 - alpha) / (2 alpha) sum_i log(1 + alpha r_i / noise)

    alpha, in [0, 1], is given where others have beta. 1 is FITC; at 0 the sum has its limit, sum_i
    r_i / (2 noise), and it is the ELBO. With `A = Luu^-1 Kuf` and `H = A D^-1 A^T`: `|Qff + D| =
    |D| |I + H|`, and q(w) = N((I+H)^-1 A D^-1 y, (I+H)^-1)."""
    kernel, hyper, X, y, jitter, rows_at_once = problem
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    of_rows, (inverse,) = hyper_as_rows(X, hyper), as_rows(X, Kuu.inverse)
    constant = kernel.diagonal(X[..., :1, :], of_rows) if kernel.stationary else None
    noise, (power,) = of_rows["noise"][..., None], as_rows(X, alpha[..., None])
    share = (1 - power) / (2 * torch.where(power > 0, power, torch.ones_like(power)))

    def piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A = inverse @ kernel(of_rows["Z"], X, of_rows)
        prior = kernel.diagonal(X, of_rows) if constant is None else constant
        rest = positive(prior - A.square().sum(-2), prior)
        d = power * rest + noise
        corrected = torch.where(
            power > 0, share * torch.log1p(power * rest / noise), rest / (2 * noise)
        )
        scaled = A / d.sqrt().unsqueeze(-2)
        b = A @ (y / d).unsqueeze(-1)
        return (
            row_gram(scaled),
            b.squeeze(-1).to(PARAMETERS),
            row_sum(y.square() / d),
            row_sum(d.log() + 2 * corrected),
        )

    H, b, yy, log_d = sum_over_rows(piece, X, y - of_rows["mean"][..., None], rows_at_once)
    q = gaussian_posterior(H, b)
    loss = 0.5 * (X.shape[-2] * math.log(2 * math.pi) + log_d + q.log_det + yy - q.explained)
    return Closed(loss, q.m, q.L, Kuu.ok & q.ok)


def exact_evidence(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """`-log N(y; mean, Kff + noise I)` and the posterior of f at the training rows, Z = X, which
    stay where they are.

    With `Luu Luu^T = Kff + j I` and t = noise - j, where j is what the jitter adds to the diagonal,
    `Kff + noise I` is `Luu Luu^T + t I`: so the jitter changes neither the evidence nor the
    predictions (as long as noise > 2 j). Neither beta nor `rows_at_once` plays a part."""
    kernel, hyper, X, y, jitter, _ = problem
    Kff = kernel(X, X, hyper)
    factor = factorise(Kff, jitter)
    added = jitter * Kff.diagonal(dim1=-2, dim2=-1).mean(-1)
    t = torch.maximum(hyper["noise"] - added, added)[..., None]
    y = y - hyper["mean"][..., None]
    b = (factor.L.mT @ y[..., None]).squeeze(-1) / t
    q = gaussian_posterior(factor.L.mT @ factor.L / t[..., None], b)
    log_det = X.shape[-2] * t[..., 0].log() + q.log_det
    misfit = (y.square() / t).sum(-1) - q.explained
    return Closed(
        0.5 * (X.shape[-2] * math.log(2 * math.pi) + log_det + misfit), q.m, q.L, factor.ok & q.ok
    )
