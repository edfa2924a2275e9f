"""Marginals at new inputs."""

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
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """mu, v of a whitened q at X; arrays of shape [B, M, N] are the largest there are."""
    Z = hyper["Z"]
    Kuu = factorise(kernel(Z, Z, hyper), jitter)
    return marginals(Projection(kernel, hyper_as_rows(X, hyper), X, Kuu), hyper["mean"], m, L)
