"""Fits without iterations: hyperparameters are held, and the best q has a closed form."""

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
    """The best q of every cell, and its objective, which is not divided by n."""

    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    objective: Float[Tensor, "B"]


@torch.no_grad()
def solve(program: Fixed, batches_at_once: Callable[[], int] = lambda: 1) -> Iterator[FinishedFit]:
    """Yield the result of every cell.

    Args:
        program: The cells, with the hyperparameters that are held.
        batches_at_once: Returns how many batches train on the device now and share its time.
    """
    start_time = perf_counter()
    jitter = program.jitter[program.data.split_index]
    if program.loss.objective.path is not None:
        solution = _solution_on_path(program)
    else:
        solution = _collapsed_solution(program, jitter)
    posterior = program.posterior({"m": solution.m, "L": solution.L}, jitter)
    evaluation = evaluate(program, posterior)
    evaluations = evaluation.read()
    profiles = evaluation.profiles()
    posteriors = posterior.cells()
    batches = batches_at_once()
    seconds = (perf_counter() - start_time) / (batches * len(program.beta))
    for i, (metrics, reliability) in enumerate(evaluations):
        yield FinishedFit(
            cell=i,
            stopped="closed form",
            iterations=0,
            seconds=seconds,
            alone=batches == 1,
            objective=np.array([float(solution.objective[i] / program.n)]),
            metrics=metrics,
            reliability=reliability,
            posterior=posteriors[i],
            profile=profiles[i],
        )


def _solution_on_path(program: Fixed) -> Solution:
    """Return the solutions of `Objective.path`: one computation per split serves all betas."""
    data = program.data
    assert program.loss.objective.path is not None
    problem = Problem(
        kernel=program.model.kernel,
        hyper=program.hyper,
        X=data.X,
        y=data.y,
        jitter=program.jitter,
        rows_at_once=rows_at_once(program, len(data.X)),
    )
    statistics = moments(problem)
    betas, beta_of_cell = torch.unique(program.beta, return_inverse=True)
    means, objectives = program.loss.objective.path(statistics, betas)
    # Objectives with a path depend on the mean of q alone. Its covariance is set to zero.
    L = torch.zeros_like(statistics.AA)[data.split_index]
    return Solution(
        m=means[data.split_index, beta_of_cell],
        L=L,
        objective=objectives[data.split_index, beta_of_cell],
    )


def _collapsed_solution(program: Fixed, jitter: Float[Tensor, "B"]) -> Solution:
    """Return the solutions of `Objective.collapsed`, one computation per cell."""
    cells = Collapsed(program.model, program.loss, program.data, program.beta)
    closed = cells.closed(program.hyperparameters({}), jitter)
    return Solution(closed.m, closed.L, closed.loss)
