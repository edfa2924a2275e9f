"""How gradients of an estimator compare with the true gradient (docs/SPEC.md, section 8).

The `bias` figure shows the comparison.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.estimators import BMC, Estimator, Exact
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.training.graphs import capture
from dlmexp.core.training.program import Program

DRAWS = 100
"""Number of gradients that are drawn with the estimator."""
TRUTH_SAMPLES = 10_000
"""Samples per row from which the true gradient is computed."""
TRUTH_ITERATION = 1_000_000
"""The true gradient uses the random draws of this iteration, which no drawn gradient uses."""

Statistics = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Numbers and arrays by the names that they have in records."""


def gradient_statistics(program: Program) -> Iterator[Statistics | None]:
    """Yield statistics of the gradient of every cell in m, at the initial parameters.

    `DRAWS` gradients g are compared with the true gradient G. There are two versions of G: from bMC
    samples, as in the paper, and from quadrature, whose statistics have the suffix `_quadrature`.
    Yields None while a GPU is busy.
    """
    pool = torch.cuda.graph_pool_handle() if program.beta.is_cuda else None
    for i in range(len(program.beta)):
        cell = program.keep([i])
        gradient = gradient_of(cell, cell.loss.estimator, pool)
        draws = torch.stack([gradient(draw) for draw in range(DRAWS)])
        sampled_truth = gradient_of(cell, BMC(TRUTH_SAMPLES))(TRUTH_ITERATION)
        exact_truth = gradient_of(cell, Exact())(0)
        if draws.is_cuda:
            # Meanwhile `gradient` stays alive: the GPU may still be replaying its graph.
            yield None
        result: dict[str, Any] = {"draws": DRAWS}
        arrays: dict[str, np.ndarray] = {}
        for suffix, truth in {"": sampled_truth, "_quadrature": exact_truth}.items():
            numbers, by_draw = compare(draws, G=truth)
            for name, number in numbers.items():
                result[name + suffix] = number
            for name, values in by_draw.items():
                arrays[name + suffix] = values.cpu().numpy()
        yield result, arrays


def compare(
    g: Float[Tensor, "draws M"], G: Float[Tensor, "M"]
) -> tuple[dict[str, float], dict[str, Float[Tensor, "draws"]]]:
    """Return statistics of drawn gradients g against the true gradient G.

    Returns:
        Numbers by name: |G|^2 and the squared bias |mean g - G|^2. Arrays by name, with an entry
        per draw: condition (i), g.G / |G|^2; condition (ii), |g|^2; and the error, |g - G|^2.
    """
    norm2_G = G.square().sum()
    bias = (g.mean(0) - G).square().sum()
    by_draw = {
        "condition_i": (g @ G) / norm2_G,
        "condition_ii": g.square().sum(-1),
        "error": (g - G).square().sum(-1),
    }
    return {"norm2_G": float(norm2_G), "bias": float(bias)}, by_draw


def gradient_of(
    cell: Program, estimator: Estimator, pool: Any = None
) -> Callable[[int], Float[Tensor, "M"]]:
    """Return a function from the number of a draw to the gradient of the objective in m.

    The number takes the place of the iteration, which fixes the random draws.

    Args:
        cell: A program of one cell.
        estimator: Estimates the terms `-log E_q p(y|f)` of the objective.
        pool: The memory of a CUDA graph, in which the gradient is captured if the program allows
            it; None: nothing is captured.
    """
    program = replace(cell, loss=replace(cell.loss, estimator=estimator))
    values = {name: value.detach().requires_grad_() for name, value in program.initial().items()}
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def gradient() -> Tensor:
        objective = program.objective(values, jitter, iteration).per_row
        (gradient_by_cell,) = torch.autograd.grad(objective.sum(), values["m"])
        return gradient_by_cell[0]

    compute = gradient
    if pool is not None and program.capturable:
        compute = capture(gradient, jitter.device, pool)

    def gradient_of_draw(draw: int) -> Tensor:
        iteration.fill_(draw)
        return compute().clone()

    return gradient_of_draw
