"""From cells of one batch to the program that trains them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.errors import UserError
from dlmexp.estimators import ESTIMATORS, Estimator
from dlmexp.objectives import OBJECTIVES
from dlmexp.sweep.cell import Cell
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from dlmexp.training.program import Model, Program
from dlmexp.training.rows import Split
from dlmexp.training.settings import Settings

Hyperparameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Place:
    """Where tensors live."""

    device: torch.device
    dtype: torch.dtype

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.tensor(array, dtype=self.dtype, device=self.device)


def place(device: str, dtype: str) -> Place:
    """`auto` takes a GPU where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device={device}: there is no CUDA device here; use device=cpu or leave it out")
    return Place(torch.device(device), getattr(torch, dtype))


def settings(cell: Cell, place: Place) -> Settings:
    """SPEC section 6, as the cell says it."""
    return Settings(
        lr=cell.lr,
        iterations=cell.iterations,
        window=cell.window,
        tolerance=cell.tolerance or 0.0,
        evaluate_every=cell.evaluate_every,
        check_every=20 if place.device.type == "cpu" else 50,
    )


def estimator(cell: Cell) -> Estimator:
    """The estimator with the parameters that the cell names."""
    named = {"samples": cell.samples, "nu": cell.nu, "nodes": cell.nodes, "sampler": cell.sampler}
    return ESTIMATORS[cell.estimator](**{name: value for name, value in named.items() if value is not None})


def model(cell: Cell) -> Model:
    return Model(
        kernel_name=cell.kernel,
        likelihood_name=cell.likelihood,
        learns_mean=cell.mean == "constant",
        ard=cell.ard,
        whitened=cell.parameterisation == "whitened",
        M=cell.M,
        objective=OBJECTIVES[cell.objective],
        estimator=estimator(cell),
        minibatch=cell.minibatch,
    )


def program(
    cells: tuple[Cell, ...],
    prepared: Callable[[Cell], Prepared],
    base: Callable[[Cell], Hyperparameters],
    place: Place,
) -> Program:
    """The batch's program; `prepared` gives a cell's data, `base` the hyperparameters a fixed variant starts from."""
    firsts = {cell.seed: cell for cell in reversed(cells)}
    seeds = sorted(firsts)
    by_seed = [prepared(firsts[seed]) for seed in seeds]
    split = Split(
        X=_stack([p.X_train for p in by_seed], place),
        y=_stack([p.y_train for p in by_seed], place),
        parts={
            name: (_stack([x for x, _ in pairs], place), _stack([y for _, y in pairs], place))
            for name, pairs in (
                ("validation", [(p.X_val, p.y_val) for p in by_seed]),
                ("test", [(p.X_test, p.y_test) for p in by_seed]),
            )
            if len(pairs[0][1])
        },
        seeds=torch.tensor(seeds, device=place.device),
        index=torch.tensor([seeds.index(cell.seed) for cell in cells], device=place.device),
    )
    beta = place.tensor(np.array([1.0 if cell.beta is None else cell.beta for cell in cells]))
    shared = model(cells[0])
    if cells[0].variant == "fixed":
        assert len({(cell.seed, cell.base) for cell in cells}) == len(seeds), "one start per seed"
        bases = [base(firsts[seed]) for seed in seeds]
        hyper = {name: _stack([b[name] for b in bases], place) for name in bases[0]}
        return Fixed(shared, split, beta, hyper)
    return (Collapsed if cells[0].form == "collapsed" else Joint)(shared, split, beta)


def _stack(arrays: list[np.ndarray], place: Place) -> torch.Tensor:
    out = torch.empty(len(arrays), *arrays[0].shape, dtype=place.dtype, device=place.device)
    for line, array in zip(out, arrays, strict=True):
        line.copy_(torch.from_numpy(np.array(array)))
    return out
