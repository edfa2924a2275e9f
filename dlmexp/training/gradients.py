"""How estimators' gradients compare with the true one: what the `bias` figure shows (docs/SPEC.md, section 8)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import BMC, Estimator, Exact
from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.training.program import Program
from dlmexp.training.step import captured

DRAWS = 100
TRUTH_SAMPLES = 10_000
TRUTH_ITERATION = 1_000_000  # draws that no gradient below shares


Statistics = tuple[dict[str, Any], dict[str, np.ndarray]]


def gradient_statistics(program: Program) -> Iterator[Statistics | None]:
    """For each cell, straight after initialisation: 100 gradients g in the mean parameters against the true G, taken
    from 10 000 bMC samples as the paper does, and from quadrature beside it (suffix `_quadrature`). Yields None where a
    GPU has been given work and the results are not there yet."""
    pool = torch.cuda.graph_pool_handle() if program.beta.is_cuda else None
    for i in range(len(program.beta)):
        cell = program.keep([i])
        gradient = _gradient(cell, cell.model.estimator, pool)
        g = torch.stack([gradient(draw) for draw in range(DRAWS)])
        sampled, exact = _gradient(cell, BMC(TRUTH_SAMPLES))(TRUTH_ITERATION), _gradient(cell, Exact())(0)
        if g.is_cuda:
            yield None  # `gradient` is held: its graph may still be replayed
        result: dict[str, Any] = {"draws": DRAWS}
        arrays: dict[str, np.ndarray] = {}
        for suffix, G in {"": sampled, "_quadrature": exact}.items():
            size = G.square().sum()
            result[f"norm2_G{suffix}"] = float(size)
            result[f"bias{suffix}"] = float((g.mean(0) - G).square().sum())
            arrays[f"condition_i{suffix}"] = ((g @ G) / size).cpu().numpy()
            arrays[f"condition_ii{suffix}"] = g.square().sum(-1).cpu().numpy()
            arrays[f"error{suffix}"] = (g - G).square().sum(-1).cpu().numpy()
        yield result, arrays


def _gradient(cell: Program, estimator: Estimator, pool: Any = None) -> Callable[[int], Float[Tensor, "M"]]:
    """The objective's gradient in m for one cell, with the numbers of an iteration; with a `pool`, by a captured graph
    where that can be."""
    model = replace(cell.model, estimator=estimator)
    program = cell if estimator is cell.model.estimator else replace(cell, model=model)
    values = {name: value.detach().requires_grad_() for name, value in program.initial().items()}
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def gradient() -> Tensor:
        objective = program.objective(values, jitter, iteration).objective
        return torch.autograd.grad(objective.sum(), values["m"])[0][0]

    if pool is not None and program.capturable:
        gradient = captured(gradient, jitter.device, pool)

    def with_draws(draw: int) -> Tensor:
        iteration.fill_(draw)
        return gradient().clone()

    return with_draws
