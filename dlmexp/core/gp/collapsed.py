"""Objectives with a closed form over q, for Gaussian noise (docs/SPEC.md, section 2).

These are the ELBO for any beta, the square loss, power EP (of which FITC is a case), and the exact
Gaussian process. The ELBO and the square loss depend on the rows only through a few sums over them
(`closed_form.moments`).

In this module, `A = Luu^-1 Kuf`, `Qff = A^T A`, `r_i = (Kff - Qff)_ii`, y is the targets minus
their prior mean, and matrices are [B, ...]. Two identities turn determinants and quadratic forms of
n x n matrices into those of M x M ones. With a diagonal D, `H = A D^-1 A^T` and `b = A D^-1 y`:

    log |Qff + D|       = log |D| + log |I + H|
    y^T (Qff + D)^-1 y  = y^T D^-1 y - b^T (I + H)^-1 b

`closed_form.gaussian_posterior` computes the right-hand sides.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.closed_form import (
    Closed,
    CollapsedObjective,
    Moments,
    Problem,
    gaussian_posterior,
    moments,
    row_projection,
)
from dlmexp.core.gp.matrix_products import row_gram
from dlmexp.core.gp.precision import PARAMETER_DTYPE, in_type_of, row_sum, sum_over_rows

# Objectives, and the types and sums of `closed_form` that their callers need
__all__ = [
    "Closed",
    "CollapsedObjective",
    "Moments",
    "Problem",
    "collapsed_elbo",
    "collapsed_square",
    "exact_evidence",
    "moments",
    "power_ep",
    "square_path",
]


def collapsed_elbo(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """Return the minimum over q of `sum_i E_q[-log N(y_i; f_i, noise)] + beta KL(q)`.

    With t = beta noise it is (docs/SPEC.md, section 2)

        n/2 log(2 pi noise) + beta [ -log N(y; 0, Qff + t I) + sum_i r_i / 2t - n/2 log(2 pi t) ]

    and the q that attains it is that of Titsias (2009) with noise t. At beta = 0, t would be 0 and
    q would have no variance: t is then a number that is negligible against A A^T.
    """
    sums = moments(problem)
    noise = problem.hyper["noise"]
    beta = torch.where(beta > 0, beta, sums.smallest_ridge / noise.detach())
    t = beta * noise
    # H = A A^T / t,  b = A y / t
    q = gaussian_posterior(sums.AA / t[..., None, None], sums.Ay / t[..., None])
    # y^T (Qff + t I)^-1 y + sum_i r_i / t
    misfit = (sums.yy + sums.residual) / t - q.explained
    # n/2 log(2 pi noise) + beta/2 ( log |I + H| + misfit ); the terms n/2 log(2 pi t) cancel.
    loss = 0.5 * sums.n * torch.log(2 * math.pi * noise) + 0.5 * beta * (q.log_det + misfit)
    return Closed(loss, q.m, q.L, sums.ok & q.ok)


def collapsed_square(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """Return the minimum over m of `1/2 |y - A^T m|^2 + beta/2 |m|^2` (docs/SPEC.md, section 2).

    The square loss does not depend on the covariance of q: L is 0.
    """
    sums = moments(problem)
    eye = torch.eye(sums.AA.shape[-1], dtype=sums.AA.dtype, device=sums.AA.device)
    ridge = torch.where(beta > 0, beta, sums.smallest_ridge)
    # m = (A A^T + beta I)^-1 A y
    factor = factorise(sums.AA + ridge[..., None, None] * eye, torch.zeros_like(beta))
    m = (factor.L_inverse.mT @ (factor.L_inverse @ sums.Ay[..., None])).squeeze(-1)
    # At the minimum the two terms are 1/2 ( y.y - y.A^T m ).
    loss = 0.5 * (sums.yy - (sums.Ay * m).sum(-1))
    return Closed(loss, m.detach(), torch.zeros_like(sums.AA), sums.ok & factor.ok)


def square_path(
    sums: Moments, betas: Float[Tensor, "K"]
) -> tuple[Float[Tensor, "B K M"], Float[Tensor, "B K"]]:
    """Return m [B, K, M] and the minimum [B, K] of `collapsed_square` for every cell at K betas.

    One eigendecomposition per cell serves all betas.
    """
    # A A^T = U diag(e) U^T
    e, U = torch.linalg.eigh(sums.AA)
    # c = U^T A y
    c = U.mT @ sums.Ay[..., None]
    ridges = torch.where(betas > 0, betas, sums.smallest_ridge[..., None])
    # m = U d  with d = c / (e + beta), a row of [B, K, M]
    d = c.mT / (e.clamp_min(0)[..., None, :] + ridges[..., None])
    m = d @ U.mT
    # 1/2 ( y.y - y.A^T m ),  with y.A^T m = d . c
    loss = 0.5 * (sums.yy[..., None] - (d @ c).squeeze(-1))
    return m, loss


def power_ep(problem: Problem, alpha: Float[Tensor, "B"]) -> Closed:
    """Return the energy of power EP at its fixed point, and the q of the fixed point.

    Power expectation propagation is defined as by Bui, Yan and Turner (2017; docs/SPEC.md,
    section 2). With D = diag(alpha r_i + noise) the energy, which is minimised, is

        -log N(y; 0, Qff + D) + (1 - alpha) / (2 alpha) sum_i log(1 + alpha r_i / noise)

    alpha, in [0, 1], takes the place of the beta of other objectives. At alpha = 1 this is FITC. At
    alpha = 0 the second term has its limit, sum_i r_i / (2 noise), and the energy is minus the
    ELBO.
    """
    projection = row_projection(problem)
    noise = projection.hyper["noise"][..., None]
    (row_alpha,) = in_type_of(problem.X, alpha[..., None])
    # (1 - alpha) / (2 alpha). Where alpha is 0, it is any finite number: an infinite one would make
    # gradients NaN, although `torch.where` below does not choose it.
    safe_alpha = torch.where(row_alpha > 0, row_alpha, torch.ones_like(row_alpha))
    weight = (1 - row_alpha) / (2 * safe_alpha)

    def sums_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        # D = diag(alpha r_i + noise)
        d = row_alpha * r + noise
        # (1 - alpha) / (2 alpha) log(1 + alpha r_i / noise), or its limit where alpha is 0
        log_term = weight * torch.log1p(row_alpha * r / noise)
        correction = torch.where(row_alpha > 0, log_term, r / (2 * noise))
        # H = A D^-1 A^T
        H = row_gram(A / d.sqrt().unsqueeze(-2))
        # b = A D^-1 y
        b = (A @ (y / d).unsqueeze(-1)).squeeze(-1).to(PARAMETER_DTYPE)
        # y^T D^-1 y
        yy = row_sum(y.square() / d)
        # log |D| + 2 sum of the corrections
        log_det_D = row_sum(d.log() + 2 * correction)
        return H, b, yy, log_det_D

    H, b, yy, log_det_D = sum_over_rows(
        sums_of_piece, problem.X, problem.centred_y, problem.rows_at_once
    )
    q = gaussian_posterior(H, b)
    # -log N(y; 0, Qff + D) + sum of the corrections
    loss = 0.5 * (problem.n * math.log(2 * math.pi) + log_det_D + q.log_det + yy - q.explained)
    return Closed(loss, q.m, q.L, projection.ok & q.ok)


def exact_evidence(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """Return `-log N(y; 0, Kff + noise I)` and the posterior of f (docs/SPEC.md, section 2).

    The inducing inputs are held at the training rows, Z = X, so that Kuu is Kff, and A is Luu^T.
    beta and `rows_at_once` are not used. The jitter adds j to the diagonal:
    `Luu Luu^T = Kff + j I`. With t = noise - j, `Kff + noise I` is `Luu Luu^T + t I`: so the jitter
    changes neither the evidence nor the predictions (as long as noise > 2 j). Like Kuu, Kff is
    float64 even if the rows are float32.
    """
    X = problem.X.to(PARAMETER_DTYPE)
    Kff = problem.kernel(X, X, problem.hyper)
    factor = factorise(Kff, problem.jitter)
    # t = noise - j, kept at j or more
    j = problem.jitter * Kff.diagonal(dim1=-2, dim2=-1).mean(-1)
    t = torch.maximum(problem.hyper["noise"] - j, j)[..., None]
    y = problem.y.to(PARAMETER_DTYPE) - problem.hyper["mean"][..., None]
    # A = Luu^T:  b = Luu^T y / t,  H = Luu^T Luu / t
    b = (factor.L.mT @ y[..., None]).squeeze(-1) / t
    q = gaussian_posterior(factor.L.mT @ factor.L / t[..., None], b)
    # log |Kff + noise I| = n log t + log |I + H|
    log_det = problem.n * t[..., 0].log() + q.log_det
    # y^T (Kff + noise I)^-1 y
    misfit = (y.square() / t).sum(-1) - q.explained
    loss = 0.5 * (problem.n * math.log(2 * math.pi) + log_det + misfit)
    return Closed(loss, q.m, q.L, factor.ok & q.ok)
