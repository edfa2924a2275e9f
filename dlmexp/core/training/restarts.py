"""Restarts of L-BFGS: the same cell from perturbed initial values too (docs/SPEC.md, section 2).

The starts of all cells train side by side, as the cells of one larger batch. The result of a cell
is the end of its best start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.training.lbfgs import LBFGSState
from dlmexp.core.training.parameters import Tensors, constrain, unconstrain
from dlmexp.core.training.program import Program

LOG_SCALE = 0.5
"""Standard deviation of the change of the logarithm of a positive parameter."""
SHIFT = 0.3
"""Standard deviation of the change of other parameters; of Z relative to its spread."""


@dataclass
class Starts:
    """The R starts that still run, of B cells with S starts each.

    Attributes:
        program: The program whose cells are the starts that still run.
        jitter: The jitter of each of them.
        search: The minimisation of each of them.
        cell: The cell of the training that each of them belongs to.
        number: Its number among the starts of its cell; start 0 is not perturbed.
        ends: The objective of every start of every cell: the last one of a start that has stopped;
            infinite where it is not finite.
    """

    program: Program
    jitter: Float[Tensor, "R"]
    search: LBFGSState
    cell: Int[Tensor, "R"]
    number: Int[Tensor, "R"]
    ends: Float[Tensor, "B S"]

    @property
    def best(self) -> Int[Tensor, "B"]:
        """Return the number of the best start of every cell so far; of equal ones, the first."""
        return self.ends.argmin(1)

    def position_of_best(self) -> Int[Tensor, "B"]:
        """Return the position of every cell's best start among those that run.

        It is -1 where the best start has stopped.
        """
        positions = torch.full_like(self.ends, -1, dtype=torch.int64)
        positions[self.cell, self.number] = torch.arange(len(self.cell), device=positions.device)
        return positions.gather(1, self.best[:, None])[:, 0]

    def update_ends(self) -> None:
        """Write the objective of every start that runs into `ends`."""
        value = self.search.value
        self.ends[self.cell, self.number] = torch.where(value.isfinite(), value, torch.inf)

    def keep(self, cells: Sequence[int]) -> "Starts":
        """Return the starts of these cells that still run; the cells are numbered anew."""
        new_index = {cell: i for i, cell in enumerate(cells)}
        has_stopped = self.search.done.tolist()
        positions = []
        new_cells = []
        for position, cell in enumerate(self.cell.tolist()):
            if cell in new_index and not has_stopped[position]:
                positions.append(position)
                new_cells.append(new_index[cell])
        return replace(
            self,
            program=self.program.keep(positions),
            jitter=self.jitter[positions],
            search=self.search.keep(positions),
            cell=torch.tensor(new_cells, dtype=torch.int64, device=self.cell.device),
            number=self.number[positions],
            ends=self.ends[list(cells)],
        )


def perturbed(program: Program, values: Tensors, number: int) -> Tensors:
    """Return the initial values of start `number` of every cell, unconstrained.

    Independent normal numbers are added to the logarithms of positive parameters, to the mean and
    to the inducing inputs. They depend on the seed of the cell's split, the number of the start and
    the name of the parameter: cells that differ in beta alone have the same starts. Inducing inputs
    that are the training rows (`Objective.all_rows_inducing`) stay.
    """
    if number == 0:
        return values
    constrained = constrain(values, program.parameters)
    seeds = [program.data.seed_of[split] for split in program.data.split_of]
    moved = {}
    for name, value in constrained.items():
        normal = _normal(name, value, seeds, number)
        moved[name] = _moved(name, value, normal, program.parameters)
    if program.loss.objective.all_rows_inducing:
        moved["Z"] = constrained["Z"]
    return unconstrain(moved, program.parameters)


def _moved(name: str, value: Tensor, normal: Tensor, parameters: Mapping[str, Parameter]) -> Tensor:
    """Return a constrained parameter, changed by standard normal numbers of the same shape."""
    if name == "Z":
        # in units of the standard deviation of the inducing inputs, feature by feature
        return value + SHIFT * value.std(1, correction=0, keepdim=True) * normal
    parameter = parameters[name]
    if not parameter.positive:
        return value + SHIFT * normal
    floor = parameter.floor or 0.0
    return floor + (value - floor) * torch.exp(LOG_SCALE * normal)


def _normal(name: str, value: Tensor, seeds: Sequence[int], number: int) -> Tensor:
    """Return a standard normal number for every entry of a parameter [B, ...].

    `seeds` has the seed of every cell.
    """
    by_seed = {}
    size = value[0].numel()
    for seed in set(seeds):
        stream = np.random.SeedSequence([seed, number, *name.encode()])
        words = np.random.PCG64(stream).random_raw(size)
        # 53 bits of every word, as a number in (0, 1)
        uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
        by_seed[seed] = torch.special.ndtri(torch.from_numpy(uniform)).view(value[0].shape)
    return torch.stack([by_seed[seed] for seed in seeds]).to(value)
