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
from dlmexp.core.gp.precision import PARAMETER_DTYPE
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
PrepareSplit = Callable[[Cell], Prepared]
"""A function that returns the normalised data of a cell."""
CHECK_EVERY = {"cpu": 20, "cuda": 50}  # iterations between checks which cells have stopped
MAX_SOLVED_CELLS = 1_000_000  # in a batch of cells that are solved in closed form: no real limit

# The fields of a cell by the object of the core that they are turned into. A test checks that every
# field is in exactly one of these sets, so that no new field is forgotten.
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
IDENTITY_FIELDS = frozenset({"kind", "base"})  # what is computed, and the fit it starts from


def settings(cell: Cell, target: Target) -> Settings:
    """Return the training settings of a cell (docs/SPEC.md, section 6)."""
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
    """Return the iteration before which a mixture is split into its components.

    None if q is a single Gaussian.
    """
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
    """Return how the rows of a step are drawn; None if every step sees all rows."""
    if cell.minibatch is None:
        return None
    return Minibatches(cell.minibatch, resample_each_step=cell.minibatch_rows == "afresh")


@cache
def must_train_alone(cell: Cell) -> bool:
    """Return whether a batch of cells like this one must train alone on a GPU.

    It must if its steps can't be captured as a CUDA graph. Such steps wait for the device several
    times, and then also for the steps of other batches. Moreover, claim 19 compares their
    durations, which must not depend on other batches.
    """
    if cell.kind != "fit":
        return False
    estimator = ESTIMATORS[cell.estimator](**cell.options)
    capturable = estimator.capturable(LIKELIHOODS[cell.likelihood])
    return not (kernel_named(cell.kernel).capturable and capturable)


def program(
    cells: Batch,
    prepare_split: PrepareSplit,
    base_hyperparameters: Callable[[Cell], Hyperparameters | None] | None,
    target: Target,
    recalibration_factor: Callable[[Cell], float | None] = lambda _: None,
) -> Program:
    """Return the program of a batch.

    Args:
        cells: Cells that agree in everything but seed, fold, beta and base.
        prepare_split: Returns the data of a cell.
        base_hyperparameters: Returns the hyperparameters of the base fit of a cell, which a fixed
            variant keeps. None: a fixed variant keeps the initial ones.
        target: The device, and the type of the rows.
        recalibration_factor: Returns the factor that recalibrates the predictions of a cell; None
            if it is not known before training.
    """
    first = cells[0]
    data = batch_data(cells, prepare_split, target)
    data.is_fold = first.fold is not None
    data.leave_one_out = first.cv == LOO
    data.recalibration_factor = _recalibration_factors(cells, recalibration_factor, target)
    betas = [1.0 if cell.beta is None else cell.beta for cell in cells]
    beta = torch.tensor(betas, dtype=PARAMETER_DTYPE, device=target.device)
    if first.variant == "fixed":
        hyper = _fixed_hyperparameters(cells, data, base_hyperparameters, target)
        return Fixed(model(first), loss(first), data, beta, hyper, minibatches=minibatches(first))
    joint_program = _class_of_joint_program(first)
    return joint_program(model(first), loss(first), data, beta, minibatches=minibatches(first))


def _recalibration_factors(
    cells: Batch, recalibration_factor: Callable[[Cell], float | None], target: Target
) -> torch.Tensor | None:
    """Return the factors that recalibrate the cells [B], NaN where unknown.

    None if all factors are unknown.
    """
    factors = [recalibration_factor(cell) for cell in cells]
    if factors.count(None) == len(factors):
        return None
    values = [math.nan if factor is None else factor for factor in factors]
    return torch.tensor(values, dtype=PARAMETER_DTYPE, device=target.device)


def _class_of_joint_program(cell: Cell) -> type[Joint | Collapsed]:
    """Return the class of the program that trains q and hyperparameters together."""
    if cell.components > 1:
        return Mixture
    return Collapsed if cell.form == "collapsed" else Joint


def batch_data(cells: Batch, prepare_split: PrepareSplit, target: Target) -> BatchData:
    """Return the rows of all repetitions (seeds and folds) of a batch on the device."""
    first_of_repetition = _first_of_repetition(cells)
    repetitions = list(first_of_repetition)  # pairs of seed and fold

    def arrays(cell: Cell) -> dict[str, np.ndarray]:
        split = prepare_split(cell)
        return {
            "X": split.X_train,
            "y": split.y_train,
            "X_validation": split.X_val,
            "y_validation": split.y_val,
            "X_test": split.X_test,
            "y_test": split.y_test,
        }

    # `map` prepares a split only when `_stack` reaches it.
    splits = map(arrays, first_of_repetition.values())
    stacked, lengths = _stack(splits, len(repetitions), target.device, target.dtype)
    parts: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    # The number of rows of each repetition, for the parts in which some repetitions are padded.
    row_counts: dict[str, list[int]] = {}
    for part in ("validation", "test"):
        n_rows = lengths[f"y_{part}"]
        if max(n_rows) > 0:
            parts[part] = (stacked[f"X_{part}"], stacked[f"y_{part}"])
            if min(n_rows) < max(n_rows):
                row_counts[part] = n_rows
    return BatchData(
        X=stacked["X"],
        y=stacked["y"],
        parts=parts,
        seed_of=[seed for seed, _ in repetitions],
        split_of=[repetitions.index(cell.repetition) for cell in cells],
        row_counts=row_counts,
    )


def _first_of_repetition(cells: Batch) -> dict[tuple[int, int], Cell]:
    """Return the first cell of every pair of seed and fold, sorted by these pairs."""
    first: dict[tuple[int, int], Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.repetition):  # a stable sort
        first.setdefault(cell.repetition, cell)
    return first


def _fixed_hyperparameters(
    cells: Batch,
    data: BatchData,
    base_hyperparameters: Callable[[Cell], Hyperparameters | None] | None,
    target: Target,
) -> dict[str, torch.Tensor]:
    """Return the hyperparameters that a fixed variant keeps, stacked over seeds and folds."""
    first = _first_of_repetition(cells)
    if base_hyperparameters is None:
        # Take the initial values of a joint program with one cell per repetition.
        one_cell_per_split = replace(data, split_of=list(range(len(first))))
        beta = torch.ones(len(first), dtype=PARAMETER_DTYPE, device=target.device)
        joint = Joint(model(cells[0]), loss(cells[0]), one_cell_per_split, beta)
        return joint.hyperparameters(joint.initial_hyperparameters())
    repetitions_with_base = {(cell.repetition, cell.base) for cell in cells}
    assert len(repetitions_with_base) == len(first), "one base fit per seed and fold"
    values: list[Hyperparameters] = []
    for cell in first.values():
        hyperparameters = base_hyperparameters(cell)
        # `trainer` has recorded cells without a base fit as failed.
        assert hyperparameters is not None, "the base fit of a cell has no sound record"
        values.append(hyperparameters)
    stacked, _ = _stack(values, len(values), target.device, PARAMETER_DTYPE)
    return stacked


def _stack(
    arrays_of_repetitions: Iterable[dict[str, np.ndarray]],
    n_repetitions: int,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Stack the arrays of all repetitions along a new first dimension.

    Arrays with fewer rows than those of another repetition are padded by zeros. Besides the result,
    only the arrays of a single repetition are in memory at any time.

    Returns:
        The stacked arrays by name, and the number of rows of each repetition by name.
    """
    stacked: dict[str, torch.Tensor] = {}
    rows: dict[str, list[int]] = {}
    for i, arrays in enumerate(arrays_of_repetitions):
        for name, array in arrays.items():
            tensor = torch.from_numpy(np.array(array))
            if i == 0:
                stacked[name] = torch.zeros(n_repetitions, *array.shape, dtype=dtype, device=device)
            if array.ndim == 0:
                stacked[name][i] = tensor
                continue
            rows.setdefault(name, []).append(len(array))
            missing_rows = len(array) - stacked[name].shape[1]
            if missing_rows > 0:
                padding = stacked[name].new_zeros(n_repetitions, missing_rows, *array.shape[1:])
                stacked[name] = torch.cat([stacked[name], padding], dim=1)
            stacked[name][i, : len(array)].copy_(tensor)
    return stacked, rows


def cells_at_once(cell: Cell, free_bytes: float | None) -> int:
    """Return how many cells like this one make a batch.

    Args:
        cell: A cell.
        free_bytes: The free memory of a GPU; None on a CPU.
    """
    if cell.is_solved:
        return MAX_SOLVED_CELLS  # one eigendecomposition per seed serves all betas
    return step_size(cell).cells_at_once(free_bytes)


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
    """Return the bytes of memory that a GPU needs to train this batch."""
    return len(batch) * step_size(batch[0]).bytes


def trained_model(cell: Cell, schema: Schema, split: Any, posterior: Posterior) -> TrainedCell:
    """Return the model of a finished cell.

    Args:
        cell: The cell.
        schema: The schema of its dataset.
        split: An object with the normalisation of its data: `Prepared`, or `recording.SplitFacts`.
        posterior: The posterior of a batch with this cell only.
    """
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
