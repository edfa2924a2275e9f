"""Initial hyperparameters and inducing inputs of a batch (docs/SPEC.md, section 1)."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.inducing import INDUCING, InducingRequest, median_distance
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.mixed_kernels import Mixed
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.model import Model
from dlmexp.core.training.parameters import Tensors

LENGTHSCALES = ("sqrt", "median")
"""Rules for initial lengthscales that depend on the data: the square root of the number of
features, and the median distance between training rows."""


@torch.no_grad()
def initial_values(
    model: Model, parameters: Mapping[str, Parameter], M: int, data: BatchData
) -> Tensors:
    """Return the constrained initial hyperparameters of every split, and the inducing inputs Z.

    Args:
        model: The kernel, initial values, and how inducing inputs are chosen.
        parameters: All hyperparameters except Z.
        M: The number of inducing inputs.
        data: The training rows of the splits.
    """
    like = torch.empty((), dtype=PARAMETER_DTYPE, device=data.X.device)
    splits = len(data.seed_of)
    values = {}
    for name, parameter in parameters.items():
        initial = model.initial.get(name)
        if isinstance(initial, str):
            feature_count = _numeric_feature_count(model, data)
            lengthscales = _lengthscales(initial, data, feature_count).to(like)
            # [S] -> [S, *shape]
            shaped = lengthscales.view(-1, *[1] * len(parameter.shape))
            values[name] = shaped.expand(-1, *parameter.shape).clone()
        else:
            values[name] = parameter.start(like, splits, initial)
    choose = INDUCING[model.inducing]
    inducing_inputs = []
    for split, seed in enumerate(data.seed_of):
        hyper = {name: value[split : split + 1] for name, value in values.items()}
        request = InducingRequest(X=data.X[split], M=M, seed=seed, kernel=model.kernel, hyper=hyper)
        inducing_inputs.append(choose(request).to(PARAMETER_DTYPE))
    return {"Z": torch.stack(inducing_inputs), **values}


def _numeric_feature_count(model: Model, data: BatchData) -> int:
    """Return the number of numeric features, which come before the indicators of categories."""
    indicators = model.kernel.indicator_count if isinstance(model.kernel, Mixed) else 0
    return data.X.shape[-1] - indicators


def _lengthscales(rule: str, data: BatchData, numeric_feature_count: int) -> Float[Tensor, "S"]:
    """Return the initial lengthscale of the numeric features, for every split.

    `rule` is one of `LENGTHSCALES`. Without numeric features the lengthscale, 1, has no effect.
    """
    splits = len(data.seed_of)
    if rule == "sqrt" or not numeric_feature_count:
        return torch.full((splits,), math.sqrt(max(numeric_feature_count, 1)))
    medians = []
    for X, seed in zip(data.X[..., :numeric_feature_count], data.seed_of, strict=True):
        medians.append(median_distance(X, seed))
    return torch.tensor(medians, dtype=torch.float64)
