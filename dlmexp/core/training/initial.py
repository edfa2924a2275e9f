"""Initial hyperparameters and inducing inputs of a batch (docs/SPEC.md, section 1)."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.inducing import INDUCING, Start, median_distance
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.mixed_kernels import Mixed
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.model import Model
from dlmexp.core.training.parameters import Tensors

LENGTHSCALES = ("sqrt", "median")
"""Initial lengthscales that depend on the data: the root of the number of features, and the median
distance between training rows."""


@torch.no_grad()
def initial_values(
    model: Model, parameters: Mapping[str, Parameter], M: int, data: BatchData
) -> Tensors:
    """Return the initial hyperparameters of every split, constrained, with Z [S, M, D].

    Args:
        model: Says how they are chosen.
        parameters: All but Z.
        M: The number of inducing inputs.
        data: The training rows of the splits.
    """
    like = torch.empty((), dtype=PARAMETERS, device=data.X.device)
    splits = len(data.seed_of)
    values = {}
    for name, parameter in parameters.items():
        initial = model.initial.get(name)
        if isinstance(initial, str):
            by_split = _lengthscales(initial, data, _numbers(model, data)).to(like)
            shaped = by_split.view(-1, *[1] * len(parameter.shape))
            values[name] = shaped.expand(-1, *parameter.shape).clone()
        else:
            values[name] = parameter.start(like, splits, initial)
    chosen = []
    for split, seed in enumerate(data.seed_of):
        hyper = {name: value[split : split + 1] for name, value in values.items()}
        start = Start(data.X[split], M, seed, model.kernel, hyper)
        chosen.append(INDUCING[model.inducing](start).to(PARAMETERS))
    return {"Z": torch.stack(chosen), **values}


def _numbers(model: Model, data: BatchData) -> int:
    """Return how many of the features are numbers; indicators of categories come after them."""
    indicators = model.kernel.indicators if isinstance(model.kernel, Mixed) else 0
    return data.X.shape[-1] - indicators


def _lengthscales(name: str, data: BatchData, numbers: int) -> Float[Tensor, "S"]:
    """Return the initial lengthscale of every split, of its numbers: one of `LENGTHSCALES`."""
    splits = len(data.seed_of)
    if name == "sqrt" or not numbers:
        return torch.full((splits,), math.sqrt(max(numbers, 1)))
    values = []
    for X, seed in zip(data.X[..., :numbers], data.seed_of, strict=True):
        values.append(median_distance(X, seed))
    return torch.tensor(values, dtype=torch.float64)
