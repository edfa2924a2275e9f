"""The parameters of a batch of cells: initial values, and the map from what Adam moves to what the model means."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.gp.cholesky import FIRST_JITTER, Factor, factorise
from dlmexp.gp.kernels import Kernel

Tensors = dict[str, Tensor]

POSITIVE = ("lengthscale", "outputscale", "noise")
HYPERPARAMETERS = (*POSITIVE, "mean", "Z")
INITIAL_NOISE = 0.1


def unsoftplus(x: Tensor) -> Tensor:
    """The inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def constrain(raw: Tensors) -> Tensors:
    """Positive parameters through softplus, q's factor as a lower triangle; the rest as they are."""
    meaning = {name: softplus(value) if name in POSITIVE else value for name, value in raw.items()}
    if "L" in meaning:
        meaning["L"] = meaning["L"].tril()
    return meaning


def unconstrain(meaning: Tensors) -> Tensors:
    """The inverse of `constrain`, for hyperparameters taken from another fit."""
    return {name: unsoftplus(value) if name in POSITIVE else value for name, value in meaning.items()}


def initial_hyperparameters(Z: Float[Tensor, "B M D"], ard: bool, noisy: bool, learns_mean: bool) -> Tensors:
    """Unit lengthscale and outputscale, and where there are any: zero mean, noise variance 0.1 (SPEC section 1)."""
    B, _, D = Z.shape
    values = {"lengthscale": Z.new_ones(B, D if ard else 1), "outputscale": Z.new_ones(B), "Z": Z}
    if noisy:
        values["noise"] = Z.new_full((B,), INITIAL_NOISE)
    if learns_mean:
        values["mean"] = Z.new_zeros(B)
    return unconstrain(values)


def initial_q(hyper: Tensors, kernel: Kernel, whitened: bool) -> Tensors:
    """q at the prior: m = 0 and L = I in whitened coordinates, L = chol(Kuu) in unwhitened ones."""
    Z = hyper["Z"]
    if whitened:
        L = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device).repeat(Z.shape[0], 1, 1)
    else:
        L = unwhitened_factor(constrain(hyper), kernel, Z.new_full((len(Z),), FIRST_JITTER)).L
    return {"m": Z.new_zeros(Z.shape[:2]), "L": L}


def unwhitened_factor(meaning: Tensors, kernel: Kernel, jitter: Float[Tensor, "B"]) -> Factor:
    """The factor of Kuu that leads from unwhitened to whitened coordinates."""
    Z = meaning["Z"]
    return factorise(kernel(Z, Z, meaning["lengthscale"], meaning["outputscale"]), jitter)
