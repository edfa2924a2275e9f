"""From cells of one batch to the program that trains them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.errors import UserError
from dlmexp.estimators import ESTIMATORS, Estimator
from dlmexp.gp.kernels import kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from dlmexp.training.program import Model, Program
from dlmexp.training.rows import Split
from dlmexp.training.settings import Settings

Hyperparameters = dict[str, np.ndarray]
PARTS = ("validation", "test")


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
    return ESTIMATORS[cell.estimator](**cell.options)


def model(cell: Cell) -> Model:
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
    data = _stack((_arrays(prepared(firsts[seed])) for seed in seeds), len(seeds), place)
    split = Split(
        X=data["X"],
        y=data["y"],
        parts={name: (data[f"X {name}"], data[f"y {name}"]) for name in PARTS if data[f"y {name}"].shape[1]},
        seeds=torch.tensor(seeds, device=place.device),
        index=torch.tensor([seeds.index(cell.seed) for cell in cells], device=place.device),
    )
    beta = place.tensor(np.array([1.0 if cell.beta is None else cell.beta for cell in cells]))
    shared = model(cells[0])
    if cells[0].variant == "fixed":
        assert len({(cell.seed, cell.base) for cell in cells}) == len(seeds), "one start per seed"
        return Fixed(shared, split, beta, _stack((base(firsts[seed]) for seed in seeds), len(seeds), place))
    return (Collapsed if cells[0].form == "collapsed" else Joint)(shared, split, beta)


def _arrays(data: Prepared) -> dict[str, np.ndarray]:
    validation, test = PARTS
    return {
        "X": data.X_train, "y": data.y_train,
        f"X {validation}": data.X_val, f"y {validation}": data.y_val,
        f"X {test}": data.X_test, f"y {test}": data.y_test,
    }  # fmt: skip


def _stack(by_seed: Iterable[dict[str, np.ndarray]], count: int, place: Place) -> dict[str, torch.Tensor]:
    """One line per seed under each name. A seed's arrays are let go before the next seed's are asked for."""
    out: dict[str, torch.Tensor] = {}
    for i, arrays in enumerate(by_seed):
        for name, array in arrays.items():
            if i == 0:
                out[name] = torch.empty(count, *array.shape, dtype=place.dtype, device=place.device)
            out[name][i].copy_(torch.from_numpy(np.array(array)))
    return out
