"""How estimators' gradients compare with the true one: what the `bias` figure shows (docs/SPEC.md, section 8)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import BMC, Exact
from dlmexp.estimators.base import Estimator
from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.training.program import Program

DRAWS = 100
TRUTH_SAMPLES = 10_000
TRUTH_ITERATION = 1_000_000  # draws that no gradient below shares


def gradient_statistics(program: Program) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """For each cell, straight after initialisation: 100 gradients g in the mean parameters against the true G, taken
    from 10 000 bMC samples as the paper does, and from quadrature beside it (suffix `_quadrature`)."""
    for i in range(len(program.beta)):
        one = program.keep([i])
        g = torch.stack([_gradient(one, one.model.estimator, draw) for draw in range(DRAWS)])
        truths = {"": _gradient(one, BMC(TRUTH_SAMPLES), TRUTH_ITERATION), "_quadrature": _gradient(one, Exact(), 0)}
        result: dict[str, Any] = {"draws": DRAWS}
        arrays: dict[str, np.ndarray] = {}
        for suffix, G in truths.items():
            size = G.square().sum()
            result[f"norm2_G{suffix}"] = float(size)
            result[f"bias{suffix}"] = float((g.mean(0) - G).square().sum())
            arrays[f"condition_i{suffix}"] = ((g @ G) / size).cpu().numpy()
            arrays[f"condition_ii{suffix}"] = g.square().sum(-1).cpu().numpy()
            arrays[f"error{suffix}"] = (g - G).square().sum(-1).cpu().numpy()
        yield result, arrays


def _gradient(one: Program, estimator: Estimator, draw: int) -> Float[Tensor, "M"]:
    """The objective's gradient in m for one cell, with the numbers of iteration `draw`."""
    program = one if estimator is one.model.estimator else replace(one, model=replace(one.model, estimator=estimator))
    values = {name: value.detach().requires_grad_() for name, value in program.initial().items()}
    iteration = torch.tensor(draw, device=program.beta.device)
    objective = program.objective(values, torch.full_like(program.beta, FIRST_JITTER), iteration).objective
    return torch.autograd.grad(objective.sum(), values["m"])[0][0]
