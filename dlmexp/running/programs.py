"""The program that trains a batch of cells, and its settings: the one place that builds them from cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.estimators import ESTIMATORS
from dlmexp.gp.kernels import kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.gp.precision import PARAMETERS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import FIELDS, Cell
from dlmexp.running.clock import TRIAL_SECONDS, mean_seconds
from dlmexp.running.device import Target
from dlmexp.training.metrics import evaluate
from dlmexp.training.program import Model, Program, Split
from dlmexp.training.state import Settings, State
from dlmexp.training.step import stepper
from dlmexp.training.variants import Collapsed, Fixed, Joint

Hyperparameters = dict[str, np.ndarray]
Splits = Callable[[Cell], Prepared]  # the normalised data of a cell
PARTS = ("validation", "test")
CHECK_EVERY = {"cpu": 20, "cuda": 50}  # iterations between looks at which cells have stopped
TRIAL_STEPS = 10_000  # that may be made in a trial, however few the batch would make
STEPS_AT_ONCE = {"cpu": 1, "cuda": 10}  # in a trial, between waits for the device


def settings(cell: Cell, target: Target) -> Settings:
    """How a cell is trained (docs/SPEC.md, section 6): the fields of `Settings` that a cell has too."""
    shared = {field.name: getattr(cell, field.name) for field in fields(Settings) if hasattr(cell, field.name)}
    return Settings(**shared | {"tolerance": cell.tolerance or 0.0, "check_every": CHECK_EVERY[target.device.type]})


def model(cell: Cell) -> Model:
    """What the cells of a batch share: the fields of `Model` that a cell has too, its names as what they stand for."""
    shared = {field.name: getattr(cell, field.name) for field in fields(Model) if field.name in FIELDS}
    return Model(
        **shared
        | {
            "kernel": kernel_named(cell.kernel),
            "likelihood": LIKELIHOODS[cell.likelihood],
            "objective": OBJECTIVES[cell.objective],
            "estimator": ESTIMATORS[cell.estimator](**cell.options),
            "learns_mean": cell.mean == "constant",
            "whitened": cell.parameterisation == "whitened",
            "afresh": cell.minibatch_rows == "afresh",
        }
    )


def needs_the_device(batch: Sequence[Cell]) -> bool:
    """Whether a batch trains with no other beside it on a GPU: steps that are no captured graph wait for the device
    again and again, for all others too, and their times are what claim 19 compares."""
    cell = batch[0]
    return cell.kind == "fit" and not _capturable(
        cell.kernel, cell.likelihood, cell.estimator, tuple(sorted(cell.options.items()))
    )


@cache
def _capturable(kernel: str, likelihood: str, name: str, options: tuple[tuple[str, Any], ...]) -> bool:
    made = ESTIMATORS[name](**dict(options))
    return kernel_named(kernel).capturable and made.capturable(LIKELIHOODS[likelihood])


def program(
    cells: tuple[Cell, ...], prepared: Splits, base: Callable[[Cell], Hyperparameters] | None, target: Target
) -> Program:
    """The program of a batch. `base` gives the hyperparameters that a fixed variant holds; None: their initial
    values."""
    firsts = {cell.seed: cell for cell in reversed(cells)}
    seeds = sorted(firsts)
    data = _stack((_arrays(prepared(firsts[seed])) for seed in seeds), len(seeds), target.device, target.dtype)
    split = Split(
        X=data["X"],
        y=data["y"],
        parts={name: (data[f"X {name}"], data[f"y {name}"]) for name in PARTS if data[f"y {name}"].shape[1]},
        seed_of=seeds,
        repetition_of=[seeds.index(cell.seed) for cell in cells],
    )
    betas = [1.0 if cell.beta is None else cell.beta for cell in cells]
    beta = torch.tensor(betas, dtype=PARAMETERS, device=target.device)
    shared = model(cells[0])
    if cells[0].variant != "fixed":
        return (Collapsed if cells[0].form == "collapsed" else Joint)(shared, split, beta)
    if base is None:
        every = replace(split, repetition_of=list(range(len(seeds))))
        start = Joint(shared, every, torch.ones(len(seeds), dtype=PARAMETERS, device=target.device))
        return Fixed(shared, split, beta, start.hyperparameters(start.initial_hyperparameters()))
    assert len({(cell.seed, cell.base) for cell in cells}) == len(seeds), "a batch has one base fit per seed"
    held = _stack((base(firsts[seed]) for seed in seeds), len(seeds), target.device, PARAMETERS)
    return Fixed(shared, split, beta, held)


def step_seconds(cells: tuple[Cell, ...], prepared: Splits, target: Target, seconds: float = TRIAL_SECONDS) -> float:
    """Mean seconds of a step of such a batch, with no other beside it (objective, gradient, Adam, stopping rule; a
    replayed graph on a GPU), and of its share of the evaluations on the way. Measured for so many `seconds`."""
    how = settings(cells[0], target)
    how = replace(how, iterations=max(how.iterations, TRIAL_STEPS))
    made = program(cells, prepared, None, target)
    state = State.fresh(made.initial(), how)
    advance, times = stepper(made, state, how), STEPS_AT_ONCE[target.device.type]

    def waited_for(call: Callable[[], object], times: int) -> None:
        for _ in range(times):
            call()
        if target.device.type == "cuda":
            torch.cuda.synchronize(target.device)

    total = mean_seconds(lambda: waited_for(advance, times), seconds) / times
    if how.evaluate_every:
        measure = partial(evaluate, made, made.posterior(state.values, state.jitter), "test")
        total += mean_seconds(lambda: waited_for(measure, 1), seconds) / how.evaluate_every
    return total


def _arrays(data: Prepared) -> dict[str, np.ndarray]:
    validation, test = PARTS
    return {
        "X": data.X_train, "y": data.y_train,
        f"X {validation}": data.X_val, f"y {validation}": data.y_val,
        f"X {test}": data.X_test, f"y {test}": data.y_test,
    }  # fmt: skip


def _stack(
    by_seed: Iterable[dict[str, np.ndarray]], count: int, device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Arrays of all seeds stacked along a new first dimension. Only one seed's arrays are in memory at a time."""
    out: dict[str, torch.Tensor] = {}
    for i, arrays in enumerate(by_seed):
        for name, array in arrays.items():
            if i == 0:
                out[name] = torch.empty(count, *array.shape, dtype=dtype, device=device)
            out[name][i].copy_(torch.from_numpy(np.array(array)))
    return out
