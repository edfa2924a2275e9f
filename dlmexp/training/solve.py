"""Objectives that need no training with fixed hyperparameters: their q is in closed form."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from dlmexp.gp.collapsed import moments
from dlmexp.training.collapsed import ENTRIES_AT_ONCE
from dlmexp.training.fixed import Fixed
from dlmexp.training.metrics import evaluate_finally
from dlmexp.training.train import Curve, Finished


@torch.no_grad()
def solve(program: Fixed, batches_at_once: Callable[[], int] = lambda: 1) -> Iterator[Finished]:
    """Every cell's solution (`Objective.path`, or `Objective.collapsed` where there is no path) and metrics."""
    began = perf_counter()
    m, L, loss = _at_all_betas(program) if program.model.objective.path else _cell_by_cell(program)
    posterior = program.posterior({"m": m, "L": L}, program.beta)
    measured, posterior = evaluate_finally(program, posterior).read(), posterior.cpu()
    hyper = {name: value.cpu().numpy() for name, value in program.hyperparameters({}).items()}
    at_once = batches_at_once()
    seconds = (perf_counter() - began) / (at_once * len(program.beta))
    for i in range(len(program.beta)):
        yield Finished(
            cell=i,
            stopped="closed form",
            failed=False,
            iterations=0,
            seconds=seconds,
            alone=at_once == 1,
            objective=np.array([float(loss[i] / program.n)]),
            acceptance=None,
            metrics=measured[i].metrics,
            reliability=measured[i].reliability,
            hyperparameters={name: value[i] for name, value in hyper.items()},
            curve=Curve(),
            state={},
            posterior=posterior.of(i),
        )


def _at_all_betas(program: Fixed) -> tuple[Tensor, Tensor, Tensor]:
    """m, L and the objective of every cell: one solution per repetition serves all betas."""
    path, split = program.model.objective.path, program.split
    assert path is not None
    entries = len(split.X) * program.model.M
    s = moments(program.model.kernel, program.hyper, split.X, split.y, program.jitter, _rows_at_once(program, entries))
    betas, which = torch.unique(program.beta, return_inverse=True)
    means, losses = path(s, betas)
    return means[split.index, which], torch.zeros_like(s.AA)[split.index], losses[split.index, which]


def _cell_by_cell(program: Fixed) -> tuple[Tensor, Tensor, Tensor]:
    """m, L and the objective of every cell by the closed form over q."""
    collapsed, index = program.model.objective.collapsed, program.split.index
    assert collapsed is not None
    found = collapsed(
        program.model.kernel,
        program.hyperparameters({}),
        program.split.X[index],
        program.split.y[index],
        program.beta,
        program.jitter[index],
        _rows_at_once(program, len(program.beta) * program.model.M),
    )
    return found.m, found.L, found.loss


def _rows_at_once(program: Fixed, entries: int) -> int:
    return max(1, ENTRIES_AT_ONCE[program.split.X.device.type] // entries)
