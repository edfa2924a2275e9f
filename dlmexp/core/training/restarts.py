"""Restarts of L-BFGS: further starts of a cell, from perturbed values (docs/SPEC.md, section 2).

The starts of all cells train side by side, as the cells of one larger batch. The result of a cell
is the end of its best start, the one with the lowest objective.
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
"""Standard deviation of the change of other parameters. For Z it is in units of the standard
deviation of the inducing inputs, feature by feature."""


@dataclass
class Starts:
    """The R starts that still run, of B cells with S starts each.

    Attributes:
        program: The program whose cells are the starts that still run.
        jitter: The jitter of each running start.
        search: The minimisation of each running start.
        cell: The position in the batch of the cell that each running start belongs to.
        number: The number of each running start among the starts of its cell; start 0 is not
            perturbed.
        ends: The objective of every start of every cell: the current one of a running start, the
            last one of a start that has stopped; infinite where it is not finite.
    """

    program: Program
    jitter: Float[Tensor, "R"]
    search: LBFGSState
    cell: Int[Tensor, "R"]
    number: Int[Tensor, "R"]
    ends: Float[Tensor, "B S"]

    def position_of_best(self) -> Int[Tensor, "B"]:
        """Return the position of every cell's best start so far among the running starts.

        It is -1 where the best start has left them because it has stopped. Of equally good starts
        the first is the best.
        """
        positions = torch.full_like(self.ends, -1, dtype=torch.int64)
        positions[self.cell, self.number] = torch.arange(len(self.cell), device=positions.device)
        best_number = self.ends.argmin(1)
        return positions.gather(1, best_number[:, None])[:, 0]

    def update_ends(self) -> None:
        """Write the current objective of every running start into `ends`."""
        value = self.search.value
        self.ends[self.cell, self.number] = torch.where(value.isfinite(), value, torch.inf)

    def keep(self, cells: Sequence[int]) -> "Starts":
        """Return the starts of these cells that still run; the cells are numbered anew."""
        new_cell_by_old = {cell: i for i, cell in enumerate(cells)}
        has_stopped = self.search.done.tolist()
        positions = []
        new_cells = []
        for position, cell in enumerate(self.cell.tolist()):
            if cell in new_cell_by_old and not has_stopped[position]:
                positions.append(position)
                new_cells.append(new_cell_by_old[cell])
        return replace(
            self,
            program=self.program.keep(positions),
            jitter=self.jitter[positions],
            search=self.search.keep(positions),
            cell=torch.tensor(new_cells, dtype=torch.int64, device=self.cell.device),
            number=self.number[positions],
            ends=self.ends[list(cells)],
        )


def perturbed_values(program: Program, values: Tensors, number: int) -> Tensors:
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
        draws = _normal_draws(name, value, seeds, number)
        moved[name] = _moved_parameter(name, value, draws, program.parameters)
    if program.loss.objective.all_rows_inducing:
        moved["Z"] = constrained["Z"]
    return unconstrain(moved, program.parameters)


def _moved_parameter(
    name: str, value: Tensor, draws: Tensor, parameters: Mapping[str, Parameter]
) -> Tensor:
    """Return a constrained parameter, changed by standard normal draws of the same shape."""
    if name == "Z":
        # feature by feature, in units of the standard deviation of the inducing inputs
        return value + SHIFT * value.std(1, correction=0, keepdim=True) * draws
    parameter = parameters[name]
    if not parameter.positive:
        return value + SHIFT * draws
    floor = parameter.floor or 0.0
    return floor + (value - floor) * torch.exp(LOG_SCALE * draws)


def _normal_draws(name: str, value: Tensor, seeds: Sequence[int], number: int) -> Tensor:
    """Return a standard normal number for every entry of a parameter [B, ...].

    Args:
        name: The name of the parameter, on which the numbers depend.
        value: The parameter, for its shape and type.
        seeds: The seed of every cell.
        number: The number of the start.
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
