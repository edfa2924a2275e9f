"""Marginals at new inputs, in pieces of bounded memory."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.hyperparameters import Hyper
from dlmexp.gp.kernels import Kernel
from dlmexp.gp.posterior import Projection, marginals
from dlmexp.gp.precision import hyper_as_rows


@torch.no_grad()
def predict(
    kernel: Kernel,
    hyper: Hyper,
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    jitter: Float[Tensor, "B"],
    X: Float[Tensor, "B N D"],
    rows_at_once: int | None = None,
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """mu, v of a whitened q at X. Kuu is factorised once; then `rows_at_once` rows of X at a time, so that arrays of
    shape [B, M, rows_at_once] are the largest there are."""
    Z = hyper["Z"]
    Kuu = factorise(kernel(Z, Z, hyper), jitter)
    of_rows = hyper_as_rows(X, hyper)
    mu, v = [], []
    for rows in X.split(rows_at_once or max(1, X.shape[-2]), dim=-2):
        mu_rows, v_rows = marginals(Projection(kernel, of_rows, rows, Kuu), hyper["mean"], m, L)
        mu.append(mu_rows)
        v.append(v_rows)
    return torch.cat(mu, -1), torch.cat(v, -1)
