"""How gradients of an estimator compare with the true one (docs/SPEC.md, section 8).

The `bias` figure shows it.
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
from dlmexp.core.training.graphs import captured
from dlmexp.core.training.program import Program

DRAWS = 100  # gradients of the estimator
TRUTH_SAMPLES = 10_000  # samples of the true gradient
TRUTH_ITERATION = 1_000_000  # its draws are shared with no other gradient

Statistics = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Numbers and arrays by the names that they have in records."""


def gradient_statistics(program: Program) -> Iterator[Statistics | None]:
    """Yield statistics of every cell, straight after initialisation.

    100 gradients g in m are compared with the true gradient G, taken from 10 000 bMC samples as in
    the paper, and from quadrature (suffix `_quadrature`). Yields None where a GPU has been given
    work whose results are not there yet.
    """
    pool = torch.cuda.graph_pool_handle() if program.beta.is_cuda else None
    for i in range(len(program.beta)):
        cell = program.keep([i])
        gradient = gradient_of(cell, cell.loss.estimator, pool)
        draws = torch.stack([gradient(draw) for draw in range(DRAWS)])
        sampled_truth = gradient_of(cell, BMC(TRUTH_SAMPLES))(TRUTH_ITERATION)
        exact_truth = gradient_of(cell, Exact())(0)
        if draws.is_cuda:
            yield None  # `gradient` is held: its graph may still be replayed
        result: dict[str, Any] = {"draws": DRAWS}
        arrays: dict[str, np.ndarray] = {}
        for suffix, truth in {"": sampled_truth, "_quadrature": exact_truth}.items():
            numbers, values = compare(draws, truth)
            result |= {name + suffix: number for name, number in numbers.items()}
            arrays |= {name + suffix: value.cpu().numpy() for name, value in values.items()}
        yield result, arrays


def compare(
    g: Float[Tensor, "draws M"], G: Float[Tensor, "M"]
) -> tuple[dict[str, float], dict[str, Float[Tensor, "draws"]]]:
    """Return the size of G and the bias of g, and by draw the two conditions and the error.

    Condition (i) is g.G / |G|^2, condition (ii) |g|^2, the error |g - G|^2.
    """
    size = G.square().sum()
    numbers = {"norm2_G": float(size), "bias": float((g.mean(0) - G).square().sum())}
    values = {
        "condition_i": (g @ G) / size,
        "condition_ii": g.square().sum(-1),
        "error": (g - G).square().sum(-1),
    }
    return numbers, values


def gradient_of(
    cell: Program, estimator: Estimator, pool: Any = None
) -> Callable[[int], Float[Tensor, "M"]]:
    """Return a function of the number of a draw: the gradient in m of the objective of one cell.

    With a memory `pool` it is a captured graph where that is possible.
    """
    program = replace(cell, loss=replace(cell.loss, estimator=estimator))
    values = {name: value.detach().requires_grad_() for name, value in program.initial().items()}
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def gradient() -> Tensor:
        objective = program.objective(values, jitter, iteration).objective
        return torch.autograd.grad(objective.sum(), values["m"])[0][0]

    compute = gradient
    if pool is not None and program.capturable:
        compute = captured(gradient, jitter.device, pool)

    def gradient_of_draw(draw: int) -> Tensor:
        iteration.fill_(draw)
        return compute().clone()

    return gradient_of_draw
