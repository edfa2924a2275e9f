"""A step like those of a batch, on made-up data of the same shape: for those who time it before the batch runs."""

from collections.abc import Callable
from dataclasses import replace

import torch

from dlmexp.plan.cell import Cell
from dlmexp.running.device import Target
from dlmexp.running.programs import model, settings
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.graph import stepper
from dlmexp.training.joint import Joint
from dlmexp.training.parameters import constrain
from dlmexp.training.program import Program
from dlmexp.training.rows import Split
from dlmexp.training.state import State
from dlmexp.training.trial import synthetic_data

STEPS = 100_000  # that may be made, however few the batch would make
MINIBATCHES = 3  # as many rows as this many minibatches stand for a large dataset


def step_like(batch: tuple[Cell, ...], features: int, target: Target) -> Callable[[], None]:
    """The engine's own step of such a batch (objective, gradient, Adam, stopping rule); a replayed graph on a GPU."""
    how = settings(batch[0], target)
    program, how = program_like(batch, features, target), replace(how, iterations=max(how.iterations, STEPS))
    return stepper(program, State.fresh(program.initial(), how), how)


def program_like(batch: tuple[Cell, ...], features: int, target: Target) -> Program:
    """The program of such a batch. A fixed variant has the initial hyperparameters instead of those of an ELBO fit."""
    first = batch[0]
    seeds = sorted({cell.seed for cell in batch})
    rows = min(first.n, MINIBATCHES * first.minibatch) if first.minibatch else first.n
    data = synthetic_data(len(seeds), rows, features, first.likelihood, target.device.type)
    X, y = (part.to(target.dtype) for part in data)
    split = Split(X, y, {}, seeds, [seeds.index(cell.seed) for cell in batch])
    beta = torch.tensor([1.0 if cell.beta is None else cell.beta for cell in batch], dtype=X.dtype, device=X.device)
    shared = model(first)
    if first.variant != "fixed":
        return (Collapsed if first.form == "collapsed" else Joint)(shared, split, beta)
    each = Split(X, y, {}, seeds, list(range(len(seeds))))
    start = Joint(shared, each, torch.ones(len(seeds), dtype=X.dtype, device=X.device))
    values = start.initial_hyperparameters()
    hyper = constrain(values, start.positive, start.floors)
    hyper.setdefault("mean", X.new_zeros(len(seeds)))
    return Fixed(shared, split, beta, hyper)
