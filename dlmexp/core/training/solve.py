"""Nothing is iterated: the hyperparameters are held, and q has a closed form."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.collapsed import Problem, moments
from dlmexp.core.training.collapsed import Collapsed, rows_at_once
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.metrics import evaluate


class Solution(NamedTuple):
    """q and the objective of every cell, not divided by n."""

    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    objective: Float[Tensor, "B"]


@torch.no_grad()
def solve(program: Fixed, batches_at_once: Callable[[], int] = lambda: 1) -> Iterator[FinishedFit]:
    """Yield every cell with its solution and its metrics.

    Args:
        program: The cells, with the hyperparameters that are held.
        batches_at_once: Returns how many batches share the device, and so the time.
    """
    start = perf_counter()
    solution = _path(program) if program.loss.objective.path else _collapsed(program)
    posterior = program.posterior({"m": solution.m, "L": solution.L}, program.beta)
    evaluation = evaluate(program, posterior)
    evaluations = evaluation.read()
    profiles = evaluation.profiles()
    posteriors = posterior.cells()
    sharing = batches_at_once()
    seconds = (perf_counter() - start) / (sharing * len(program.beta))
    for i, (metrics, reliability) in enumerate(evaluations):
        yield FinishedFit(
            cell=i,
            stopped="closed form",
            iterations=0,
            seconds=seconds,
            alone=sharing == 1,
            objective=np.array([float(solution.objective[i] / program.n)]),
            metrics=metrics,
            reliability=reliability,
            posterior=posteriors[i],
            profile=profiles[i],
        )


def _path(program: Fixed) -> Solution:
    """Return the solutions of `Objective.path`: one computation per split serves all betas."""
    data = program.data
    assert program.loss.objective.path is not None
    rows = rows_at_once(program, len(data.X))
    problem = Problem(program.model.kernel, program.hyper, data.X, data.y, program.jitter, rows)
    statistics = moments(problem)
    betas, beta_of_cell = torch.unique(program.beta, return_inverse=True)
    means, objectives = program.loss.objective.path(statistics, betas)
    # The path is one of means alone: the covariance of q is zero.
    L = torch.zeros_like(statistics.AA)[data.index]
    return Solution(means[data.index, beta_of_cell], L, objectives[data.index, beta_of_cell])


def _collapsed(program: Fixed) -> Solution:
    """Return the solutions of `Objective.collapsed`, cell by cell."""
    cells = Collapsed(program.model, program.loss, program.data, program.beta)
    closed = cells.closed(program.hyperparameters({}), program.jitter[program.data.index])
    return Solution(closed.m, closed.L, closed.loss)
