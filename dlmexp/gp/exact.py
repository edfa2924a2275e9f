"""The exact Gaussian process for Gaussian noise: every training row is an inducing input."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.collapsed import Closed, gaussian_posterior
from dlmexp.gp.kernels import Hyper, Kernel


def exact_evidence(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    beta: Float[Tensor, "B"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Closed:
    """`-log N(y; mean, Kff + noise I)` and the posterior of f at the training rows, Z = X, which stay where they are.

    With `Luu Luu^T = Kff + j I` and t = noise - j, where j is what the jitter adds to the diagonal, `Kff + noise I` is
    `Luu Luu^T + t I`: so the jitter changes neither the evidence nor the predictions (as long as noise > 2 j).
    `beta` and `rows_at_once` are accepted, as by every `CollapsedObjective`, and play no part."""
    Kff = kernel(X, X, hyper)
    factor = factorise(Kff, jitter)
    added = jitter * Kff.diagonal(dim1=-2, dim2=-1).mean(-1)
    t = torch.maximum(hyper["noise"] - added, added)[..., None]
    y = y - hyper["mean"][..., None]
    b = (factor.L.mT @ y[..., None]).squeeze(-1) / t
    m, L, ok = gaussian_posterior(factor.L.mT @ factor.L / t[..., None], b)
    log_det = X.shape[-2] * t[..., 0].log() - 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    misfit = (y.square() / t).sum(-1) - (L.mT @ b[..., None]).square().sum((-2, -1))
    loss = 0.5 * (X.shape[-2] * math.log(2 * math.pi) + log_det + misfit)
    return Closed(loss, m.detach(), L.detach(), factor.ok & ok)
