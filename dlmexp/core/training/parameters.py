"""The parameters that Adam moves: their constraints, and the initial q.

Adam moves unconstrained ("raw") values by name. A positive hyperparameter is the softplus of its
raw value, plus a floor.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.core.gp.cholesky import FIRST_JITTER, factorise
from dlmexp.core.gp.kernels import Kernel, Parameter

Tensors = dict[str, Tensor]
"""Tensors by name, such as the parameters of B cells, each [B, ...]."""

Q_NAMES = ("m", "L")
"""The names of the parameters of q. All other parameters are hyperparameters."""


def unsoftplus(x: Tensor) -> Tensor:
    """Return the inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def constrain(raw: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """Return the constrained values: softplus(raw) + floor if positive, raw itself otherwise."""
    constrained = dict(raw)
    for name, parameter in parameters.items():
        if name in raw and parameter.positive:
            value = softplus(raw[name])
            constrained[name] = value + parameter.floor if parameter.floor else value
    return constrained


def unconstrain(constrained: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """Return the raw values of constrained parameters: the inverse of `constrain`."""
    raw = dict(constrained)
    for name, parameter in parameters.items():
        if name in constrained and parameter.positive:
            raw[name] = unsoftplus(constrained[name] - parameter.floor)
    return raw


def to_logarithms(raw: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """Return raw values, with log(value - floor) for the positive parameters."""
    logarithms = dict(raw)
    for name, parameter in parameters.items():
        if name in raw and parameter.positive:
            # softplus(raw) = value - floor
            logarithms[name] = softplus(raw[name]).log()
    return logarithms


def from_logarithms(logarithms: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """Return raw values: the inverse of `to_logarithms`."""
    raw = dict(logarithms)
    for name, parameter in parameters.items():
        if name in raw and parameter.positive:
            raw[name] = unsoftplus(raw[name].exp())
    return raw


def initial_q(hyper: Tensors, kernel: Kernel, whitened: bool) -> Tensors:
    """Return m and L of q at the prior.

    In whitened coordinates m = 0 and L = I, in unwhitened ones m = 0 and L = chol(Kuu).
    """
    Z = hyper["Z"]
    m = Z.new_zeros(Z.shape[:2])
    if whitened:
        L = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device).repeat(Z.shape[0], 1, 1)
    else:
        jitter = Z.new_full((len(Z),), FIRST_JITTER)
        L = factorise(kernel(Z, Z, hyper), jitter).L
    return {"m": m, "L": L}
