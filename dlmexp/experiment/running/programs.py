"""From cells to the programs that train them, and how many cells make a batch.

This is the one place that turns a `Cell` into arguments of the core.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.folds import LOO
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData, Minibatches
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.mixture import Mixture
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.program import Posterior, Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.sizes import StepSize
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.running.process import Target

Hyperparameters = dict[str, np.ndarray]
Splits = Callable[[Cell], Prepared]
"""Returns the normalised data of a cell."""
CHECK_EVERY = {"cpu": 20, "cuda": 50}  # iterations between looks at which cells have stopped
UNLIMITED = 1_000_000  # cells of a batch that is solved

# Every field of a cell is in exactly one of these sets; a test fails if a new one is forgotten.
MODEL_FIELDS = frozenset(
    {"kernel", "likelihood", "M", "mean", "ard", "parameterisation", "initial", "inducing"}
    | {"noise_floor", "components", "pilot"}
)
LOSS_FIELDS = frozenset({"objective", "objective_options", "estimator", "options"})
SETTINGS_FIELDS = frozenset(
    {"lr", "max_iterations", "epochs", "window", "tolerance", "evaluate", "criterion"}
    | {"final_lr", "decay", "epsilon", "resolution", "split_at", "optimizer", "restarts"}
)
PROGRAM_FIELDS = frozenset({"variant", "form", "minibatch", "minibatch_rows", "beta", "seed"})
DATA_FIELDS = frozenset({"dataset", "data", "split", "n", "task", "dtype", "cv", "fold"})
IDENTITY_FIELDS = frozenset({"kind", "base"})  # which job it is, and which fit it starts from


def settings(cell: Cell, target: Target) -> Settings:
    """Return how a cell is trained (docs/SPEC.md, section 6)."""
    return Settings(
        lr=cell.lr,
        iterations=cell.iterations,
        window=cell.window,
        tolerance=cell.tolerance or 0.0,
        evaluate_every=cell.evaluate_every,
        check_every=CHECK_EVERY[target.device.type],
        criterion=cell.criterion,
        final_lr=cell.final_lr,
        decay=cell.decay,
        epsilon=cell.epsilon,
        resolution=cell.resolution,
        split_at=_split_at(cell),
        optimizer=cell.optimizer,
        restarts=cell.restarts,
    )


def _split_at(cell: Cell) -> int | None:
    """Return the iteration before which a mixture is split; None if q is a single Gaussian."""
    if cell.components == 1:
        return None
    return cell.iterations // 2 if cell.split_at is None else cell.split_at


def model(cell: Cell) -> Model:
    """Return the model of a cell (docs/SPEC.md, sections 1 and 3)."""
    return Model(
        kernel=kernel_named(cell.kernel),
        likelihood=LIKELIHOODS[cell.likelihood],
        M=cell.M,
        learns_mean=cell.mean == "constant",
        ard=cell.ard,
        whitened=cell.parameterisation == "whitened",
        initial=cell.initial,
        inducing=cell.inducing,
        noise_floor=cell.noise_floor,
        components=cell.components,
        pilot=cell.pilot,
    )


def loss(cell: Cell) -> Loss:
    """Return the objective of a cell and the estimator in it (docs/SPEC.md, sections 2 and 4)."""
    return Loss(
        objective=OBJECTIVES[cell.objective].with_options(cell.objective_options),
        estimator=ESTIMATORS[cell.estimator](**cell.options),
    )


def minibatches(cell: Cell) -> Minibatches | None:
    """Return which rows a step of a cell sees; None: all."""
    if cell.minibatch is None:
        return None
    return Minibatches(cell.minibatch, resample_each_step=cell.minibatch_rows == "afresh")


@cache
def needs_the_device(cell: Cell) -> bool:
    """Return whether a batch of such cells trains with no other at the same time on a GPU.

    Steps that are no captured graph wait for the device again and again, for all others too, and
    their times are what claim 19 compares.
    """
    if cell.kind != "fit":
        return False
    estimator = ESTIMATORS[cell.estimator](**cell.options)
    capturable = estimator.capturable(LIKELIHOODS[cell.likelihood])
    return not (kernel_named(cell.kernel).capturable and capturable)


def program(
    cells: Batch,
    prepared: Splits,
    base: Callable[[Cell], Hyperparameters | None] | None,
    target: Target,
    temperature: Callable[[Cell], float | None] = lambda _: None,
) -> Program:
    """Return the program of a batch.

    Args:
        cells: They agree in everything but seed, beta and base.
        prepared: Returns the data of a cell.
        base: Returns the hyperparameters that a fixed variant holds; None: their initial values.
        target: Where it trains.
        temperature: Returns the factor that recalibrates the predictions of a cell, where it is
            known before training.
    """
    first = cells[0]
    data = batch_data(cells, prepared, target)
    data.leaves_profile = first.fold is not None
    data.leave_one_out = first.cv == LOO
    data.temperature = _temperatures(cells, temperature, target)
    betas = [1.0 if cell.beta is None else cell.beta for cell in cells]
    beta = torch.tensor(betas, dtype=PARAMETERS, device=target.device)
    if first.variant == "fixed":
        hyper = _held_hyperparameters(cells, data, base, target)
        return Fixed(model(first), loss(first), data, beta, hyper, minibatches=minibatches(first))
    kind = _kind_of_joint_program(first)
    return kind(model(first), loss(first), data, beta, minibatches=minibatches(first))


def _temperatures(
    cells: Batch, temperature: Callable[[Cell], float | None], target: Target
) -> torch.Tensor | None:
    """Return the factors that recalibrate the cells [B], NaN where unknown; None without any."""
    factors = [temperature(cell) for cell in cells]
    if all(factor is None for factor in factors):
        return None
    values = [math.nan if factor is None else factor for factor in factors]
    return torch.tensor(values, dtype=PARAMETERS, device=target.device)


def _kind_of_joint_program(cell: Cell) -> type[Joint | Collapsed]:
    if cell.components > 1:
        return Mixture
    return Collapsed if cell.form == "collapsed" else Joint


def batch_data(cells: Batch, prepared: Splits, target: Target) -> BatchData:
    """Return the rows of all seeds and folds of a batch on the device."""
    first_of_repetition = _first_of_repetition(cells)
    repetitions = list(first_of_repetition)

    def arrays(split: Prepared) -> dict[str, np.ndarray]:
        return {
            "X": split.X_train,
            "y": split.y_train,
            "X_validation": split.X_val,
            "y_validation": split.y_val,
            "X_test": split.X_test,
            "y_test": split.y_test,
        }

    splits = (arrays(prepared(cell)) for cell in first_of_repetition.values())
    stacked, lengths = _stack(splits, len(repetitions), target.device, target.dtype)
    parts = {}
    rows_of = {}
    for part in ("validation", "test"):
        if stacked[f"y_{part}"].shape[1]:
            parts[part] = (stacked[f"X_{part}"], stacked[f"y_{part}"])
            if len(set(lengths[f"y_{part}"])) > 1:
                rows_of[part] = lengths[f"y_{part}"]
    return BatchData(
        X=stacked["X"],
        y=stacked["y"],
        parts=parts,
        seed_of=[seed for seed, _ in repetitions],
        repetition_of=[repetitions.index(cell.repetition) for cell in cells],
        rows_of=rows_of,
    )


def _first_of_repetition(cells: Batch) -> dict[tuple[int, int], Cell]:
    """Return the first cell of every seed and fold, in their order."""
    first: dict[tuple[int, int], Cell] = {}
    for cell in cells:
        first.setdefault(cell.repetition, cell)
    return {repetition: first[repetition] for repetition in sorted(first)}


def _held_hyperparameters(
    cells: Batch,
    data: BatchData,
    base: Callable[[Cell], Hyperparameters | None] | None,
    target: Target,
) -> dict[str, torch.Tensor]:
    """Return the hyperparameters that a fixed variant holds, one line per seed and fold."""
    first = _first_of_repetition(cells)
    if base is None:
        every_split = replace(data, repetition_of=list(range(len(first))))
        ones = torch.ones(len(first), dtype=PARAMETERS, device=target.device)
        start = Joint(model(cells[0]), loss(cells[0]), every_split, ones)
        return start.hyperparameters(start.initial_hyperparameters())
    values = [base(cell) for cell in first.values()]
    held = [hyperparameters for hyperparameters in values if hyperparameters is not None]
    starts = {(cell.repetition, cell.base) for cell in cells}
    assert len(starts) == len(first) == len(held), "one base fit per seed and fold"
    stacked, _ = _stack(held, len(held), target.device, PARAMETERS)
    return stacked


def _stack(
    by_seed: Iterable[dict[str, np.ndarray]], count: int, device: torch.device, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Return the arrays of all seeds, stacked along a new first dimension, and their rows by seed.

    Arrays with fewer rows than others are padded by zeros. At any time only the arrays of a single
    seed are in memory as well.
    """
    stacked: dict[str, torch.Tensor] = {}
    rows: dict[str, list[int]] = {}
    for i, arrays in enumerate(by_seed):
        for name, array in arrays.items():
            tensor = torch.from_numpy(np.array(array))
            if i == 0:
                stacked[name] = torch.zeros(count, *array.shape, dtype=dtype, device=device)
            if array.ndim == 0:
                stacked[name][i] = tensor
                continue
            rows.setdefault(name, []).append(len(array))
            missing = len(array) - stacked[name].shape[1]
            if missing > 0:
                padding = stacked[name].new_zeros(count, missing, *array.shape[1:])
                stacked[name] = torch.cat([stacked[name], padding], 1)
            stacked[name][i, : len(array)].copy_(tensor)
    return stacked, rows


def cells_at_once(cell: Cell, free: float | None) -> int:
    """Return the batch size for cells of this shape.

    Args:
        cell: Any of them.
        free: The free memory of a GPU in bytes; None on a CPU.
    """
    if cell.solved:
        return UNLIMITED  # one eigendecomposition per seed serves all betas
    return step_size(cell).cells_at_once(free)


def step_size(cell: Cell) -> StepSize:
    """Return the size of a step of a cell."""
    return StepSize(
        rows=min(cell.training_rows, cell.minibatch or cell.n),
        M=cell.M,
        samples=cell.samples or 0,
        iterations=cell.iterations,
        row_bytes=8 if cell.dtype == "float64" else 4,
        components=cell.components,
        starts=1 + cell.restarts,
    )


def entries_of(batch: Sequence[Cell]) -> int:
    """Return the entries of the largest arrays in a step of this batch."""
    return len(batch) * step_size(batch[0]).entries


def bytes_of(batch: Sequence[Cell]) -> float:
    """Return the memory that a GPU needs to train this batch."""
    return len(batch) * step_size(batch[0]).bytes


def trained_model(cell: Cell, schema: Schema, split: Any, posterior: Posterior) -> TrainedCell:
    """Return what a finished cell leaves, as a model; `split` has the normalisation of its data."""
    return TrainedCell(
        cell,
        schema,
        split.features,
        split.y_mean,
        split.y_std,
        hyper={name: value[0].numpy() for name, value in posterior.hyper.items()},
        m=posterior.m[0].numpy(),
        L=posterior.L[0].numpy(),
        jitter=float(posterior.jitter[0]),
    )
