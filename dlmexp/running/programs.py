"""The program that trains a batch of cells, and its settings."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.estimators import ESTIMATORS, Estimator
from dlmexp.gp.kernels import kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.gp.precision import PARAMETERS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.running.device import Target
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from dlmexp.training.program import Model, Program
from dlmexp.training.rows import Split
from dlmexp.training.settings import Settings

Hyperparameters = dict[str, np.ndarray]
PARTS = ("validation", "test")


def settings(cell: Cell, target: Target) -> Settings:
    """How a cell is trained (docs/SPEC.md, section 6)."""
    return Settings(
        lr=cell.lr,
        iterations=cell.iterations,
        window=cell.window,
        tolerance=cell.tolerance or 0.0,
        evaluate_every=cell.evaluate_every,
        check_every=20 if target.device.type == "cpu" else 50,
        criterion=cell.criterion,
        final_lr=cell.final_lr,
        decay=cell.decay,
        epsilon=cell.epsilon,
        resolution=cell.resolution,
    )


def estimator(cell: Cell) -> Estimator:
    """The estimator with the parameters that the cell names."""
    return ESTIMATORS[cell.estimator](**cell.options)


def model(cell: Cell) -> Model:
    """What the cells of a batch share: kernel, likelihood, form of q, objective and estimator."""
    return Model(
        kernel=kernel_named(cell.kernel),
        likelihood=LIKELIHOODS[cell.likelihood],
        learns_mean=cell.mean == "constant",
        ard=cell.ard,
        whitened=cell.parameterisation == "whitened",
        M=cell.M,
        objective=OBJECTIVES[cell.objective],
        estimator=estimator(cell),
        minibatch=cell.minibatch,
        initial=cell.initial,
        inducing=cell.inducing,
        afresh=cell.minibatch_rows == "afresh",
        noise_floor=cell.noise_floor,
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
    cells: tuple[Cell, ...],
    prepared: Callable[[Cell], Prepared],
    base: Callable[[Cell], Hyperparameters],
    target: Target,
) -> Program:
    """The program of a batch. `prepared` gives the data of a cell, `base` the hyperparameters of a fixed variant."""
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
    if cells[0].variant == "fixed":
        assert len({(cell.seed, cell.base) for cell in cells}) == len(seeds), "a batch has one ELBO fit per seed"
        held = _stack((base(firsts[seed]) for seed in seeds), len(seeds), target.device, PARAMETERS)
        return Fixed(shared, split, beta, held)
    return (Collapsed if cells[0].form == "collapsed" else Joint)(shared, split, beta)


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
