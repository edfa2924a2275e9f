"""The program that trains a batch of cells, and its settings: the one place that builds them from
cells; and how many cells make a batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.program import BatchData, Model, Posterior, Program
from dlmexp.core.training.state import Settings
from dlmexp.core.training.variants import Collapsed, Fixed, Joint
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.plan.cell import FIELDS, Batch, Cell
from dlmexp.experiment.running.process import Target

Hyperparameters = dict[str, np.ndarray]
Splits = Callable[[Cell], Prepared]  # the normalised data of a cell
PARTS = {"validation": "val", "test": "test"}  # as `Prepared` names them
CHECK_EVERY = {"cpu": 20, "cuda": 50}  # iterations between looks at which cells have stopped
# A step holds at most 8 arrays of [B, M, n] (tested with the core; on a GPU one of them is a factor
# of the kernel with a column for every feature); predictions and draws need some more.
ARRAYS = 12
CPU_BYTES = 16e6  # of one such array: beyond the caches a larger batch gains nothing more ...
CPU_CELLS, CPU_MOST_BYTES = (
    4,
    100e6,
)  # ... but that several cores can train some cells each, if these are not too large
EVERY = 1_000_000
GPU_SHARE = 0.6  # of the memory that is free when the run starts


def settings(cell: Cell, target: Target) -> Settings:
    """How a cell is trained (docs/SPEC.md, section 6): the fields of `Settings` that a cell has
    too."""
    shared = {
        field.name: getattr(cell, field.name)
        for field in fields(Settings)
        if hasattr(cell, field.name)
    }
    return Settings(
        **shared
        | {"tolerance": cell.tolerance or 0.0, "check_every": CHECK_EVERY[target.device.type]}
    )


def model(cell: Cell) -> Model:
    """What the cells of a batch share: the fields of `Model` that a cell has too, its names as what
    they stand for."""
    shared = {
        field.name: getattr(cell, field.name) for field in fields(Model) if field.name in FIELDS
    }
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


@cache
def needs_the_device(cell: Cell) -> bool:
    """Whether a batch of such cells trains with no other beside it on a GPU: steps that are no
    captured graph wait for the device again and again, for all others too, and their times are what
    claim 19 compares."""
    estimator, likelihood = ESTIMATORS[cell.estimator](**cell.options), LIKELIHOODS[cell.likelihood]
    return cell.kind == "fit" and not (
        kernel_named(cell.kernel).capturable and estimator.capturable(likelihood)
    )


def program(
    cells: Batch,
    prepared: Splits,
    base: Callable[[Cell], Hyperparameters | None] | None,
    target: Target,
) -> Program:
    """The program of a batch. `base` gives the hyperparameters that a fixed variant holds; None:
    their initial values."""
    firsts = {cell.seed: cell for cell in reversed(cells)}
    seeds = sorted(firsts)
    names = [f"{kind}_{of}" for of in ("train", *PARTS.values()) for kind in "Xy"]
    arrays = (
        {name: getattr(each, name) for name in names}
        for each in (prepared(firsts[seed]) for seed in seeds)
    )
    data = _stack(arrays, len(seeds), target.device, target.dtype)
    split = BatchData(
        X=data["X_train"],
        y=data["y_train"],
        parts={
            name: (data[f"X_{of}"], data[f"y_{of}"])
            for name, of in PARTS.items()
            if data[f"y_{of}"].shape[1]
        },
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
    held = [values for seed in seeds if (values := base(firsts[seed])) is not None]
    assert len({(cell.seed, cell.base) for cell in cells}) == len(seeds) == len(held), (
        "one base fit per seed"
    )
    return Fixed(shared, split, beta, _stack(held, len(seeds), target.device, PARAMETERS))


def _stack(
    by_seed: Iterable[dict[str, np.ndarray]], count: int, device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Arrays of all seeds stacked along a new first dimension. Only one seed's arrays are in memory
    at a time."""
    out: dict[str, torch.Tensor] = {}
    for i, arrays in enumerate(by_seed):
        for name, array in arrays.items():
            if i == 0:
                out[name] = torch.empty(count, *array.shape, dtype=dtype, device=device)
            out[name][i].copy_(torch.from_numpy(np.array(array)))
    return out


def cells_at_once(cell: Cell, free: float | None) -> int:
    """The batch size for cells of this shape; `free` is the GPU's free memory in bytes, None on a
    CPU."""
    if cell.solved:
        return EVERY  # one eigendecomposition per seed serves all betas
    if free is None:
        each = _width(cell) * entries_of((cell,))
        return max(1, int(CPU_BYTES / each), min(CPU_CELLS, int(CPU_MOST_BYTES / each)))
    return max(1, int(GPU_SHARE * free / bytes_of((cell,))))


def entries_of(batch: Sequence[Cell]) -> int:
    """Entries of the largest arrays in a step of this batch: those of [B, M, rows], and of its
    samples."""
    cell = batch[0]
    return len(batch) * min(cell.n, cell.minibatch or cell.n) * (cell.M + (cell.samples or 0))


def bytes_of(batch: Sequence[Cell]) -> float:
    """Memory that a GPU needs to train this batch."""
    history = len(batch) * batch[0].iterations
    return _width(batch[0]) * ARRAYS * entries_of(batch) + 8 * history


def _width(cell: Cell) -> int:
    """Bytes of a number that belongs to a row; all others are float64."""
    return 8 if cell.dtype == "float64" else 4


def trained_model(cell: Cell, schema: Schema, split: Any, posterior: Posterior) -> TrainedCell:
    """What a finished cell leaves behind, as a model; `split` has the normalisation of its data."""
    hyper = {name: value[0].numpy() for name, value in posterior.hyper.items()}
    m, L, jitter = (value[0].numpy() for value in (posterior.m, posterior.L, posterior.jitter))
    return TrainedCell(
        cell, schema, split.features, split.y_mean, split.y_std, hyper, m, L, float(jitter)
    )
