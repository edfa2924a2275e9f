"""The parameters of a batch of cells: initial values, and the map from what Adam moves to constrained values."""

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.gp.cholesky import FIRST_JITTER, factorise
from dlmexp.gp.kernels import Kernel, Parameter

Tensors = dict[str, Tensor]

NO_FLOORS: Mapping[str, float] = {}
Q = ("m", "L")  # the names of q's own parameters; all others are hyperparameters


def unsoftplus(x: Tensor) -> Tensor:
    """The inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def constrain(raw: Tensors, positive: Collection[str], floors: Mapping[str, float] = NO_FLOORS) -> Tensors:
    """Positive parameters through softplus, plus their floor; q's factor as a lower triangle; the rest as they are."""
    constrained = {name: softplus(value) if name in positive else value for name, value in raw.items()}
    constrained |= {name: constrained[name] + floor for name, floor in floors.items() if name in constrained}
    if "L" in constrained:
        constrained["L"] = constrained["L"].tril()
    return constrained


def unconstrain(constrained: Tensors, positive: Collection[str], floors: Mapping[str, float] = NO_FLOORS) -> Tensors:
    """The inverse of `constrain`, for hyperparameters taken from another fit."""
    above = constrained | {name: constrained[name] - floor for name, floor in floors.items() if name in constrained}
    return {name: unsoftplus(value) if name in positive else value for name, value in above.items()}


def floors_of(parameters: Mapping[str, Parameter]) -> dict[str, float]:
    """The floors of those parameters that have one."""
    return {name: each.floor for name, each in parameters.items() if each.floor > 0}


def initial_hyperparameters(
    Z: Float[Tensor, "B M D"], parameters: Mapping[str, Parameter], initial: Mapping[str, float]
) -> Tensors:
    """Inducing inputs at Z, every parameter at its own initial value or at that in `initial`; unconstrained."""
    values = {name: each.start(Z, len(Z), initial.get(name)) for name, each in parameters.items()}
    positive = {name for name, each in parameters.items() if each.positive}
    return unconstrain({"Z": Z} | values, positive, floors_of(parameters))


def initial_q(hyper: Tensors, kernel: Kernel, whitened: bool) -> Tensors:
    """q at the prior: m = 0 and L = I in whitened coordinates, L = chol(Kuu) in unwhitened ones."""
    Z = hyper["Z"]
    if whitened:
        L = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device).repeat(Z.shape[0], 1, 1)
    else:
        L = factorise(kernel(Z, Z, hyper), Z.new_full((len(Z),), FIRST_JITTER)).L
    return {"m": Z.new_zeros(Z.shape[:2]), "L": L}
