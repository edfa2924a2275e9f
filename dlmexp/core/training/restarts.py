"""Further starts of L-BFGS: the same cell from perturbed initial values (docs/SPEC.md, section 2).

The starts of a cell are members of a larger batch, side by side with those of all other cells. The
best end of a cell is the one that counts.
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
    """The starts of the cells of a training.

    Attributes:
        program: Their program; of the starts that still run.
        jitter: Their jitter.
        search: Where they are.
        cell: The cell of the training that each of them belongs to.
        number: The number of each among the starts of its cell; 0 is not perturbed.
        ends: The objective of every start of every cell, also of those that have stopped; infinite
            where it is not finite.
    """

    program: Program
    jitter: Float[Tensor, "R"]
    search: LBFGSState
    cell: Int[Tensor, "R"]
    number: Int[Tensor, "R"]
    ends: Float[Tensor, "B S"]

    @property
    def best(self) -> Int[Tensor, "B"]:
        """Return the number of the best start of every cell so far; of equal ones the first."""
        return self.ends.argmin(1)

    def place_of_best(self) -> Int[Tensor, "B"]:
        """Return where the best start of every cell is among those that run; -1: it has stopped."""
        places = torch.full_like(self.ends, -1, dtype=torch.int64)
        places[self.cell, self.number] = torch.arange(len(self.cell), device=places.device)
        return places.gather(1, self.best[:, None])[:, 0]

    def note_ends(self) -> None:
        """Write the objective of every start that runs into `ends`."""
        value = self.search.value
        self.ends[self.cell, self.number] = torch.where(value.isfinite(), value, torch.inf)

    def keep(self, cells: Sequence[int]) -> "Starts":
        """Return the starts of some cells that have not stopped; the cells are numbered anew."""
        new_number = {cell: i for i, cell in enumerate(cells)}
        of_cell = self.cell.tolist()
        has_stopped = self.search.done.tolist()
        remaining = []
        for place, cell in enumerate(of_cell):
            if cell in new_number and not has_stopped[place]:
                remaining.append(place)
        renumbered = [new_number[of_cell[place]] for place in remaining]
        return replace(
            self,
            program=self.program.keep(remaining),
            jitter=self.jitter[remaining],
            search=self.search.keep(remaining),
            cell=torch.tensor(renumbered, dtype=torch.int64, device=self.cell.device),
            number=self.number[remaining],
            ends=self.ends[list(cells)],
        )


def perturbed(program: Program, values: Tensors, number: int) -> Tensors:
    """Return the initial values of start `number` of every cell, unconstrained.

    The logarithms of positive parameters, the mean and the inducing inputs are changed by
    independent normal numbers. These depend on the seed of the cell's split, the start and the name
    of the parameter: cells that differ in beta alone have the same starts. Inducing inputs that are
    the training rows stay where they are.
    """
    if number == 0:
        return values
    constrained = constrain(values, program.parameters)
    seeds = [program.data.seed_of[split] for split in program.data.repetition_of]
    changed = {}
    for name, value in constrained.items():
        normal = _normal(name, value, seeds, number)
        changed[name] = _changed(name, value, normal, program.parameters)
    if program.loss.objective.all_rows_inducing:
        changed["Z"] = constrained["Z"]
    return unconstrain(changed, program.parameters)


def _changed(
    name: str, value: Tensor, normal: Tensor, parameters: Mapping[str, Parameter]
) -> Tensor:
    if name == "Z":
        return value + SHIFT * value.std(1, correction=0, keepdim=True) * normal
    parameter = parameters[name]
    if not parameter.positive:
        return value + SHIFT * normal
    floor = parameter.floor or 0.0
    return floor + (value - floor) * torch.exp(LOG_SCALE * normal)


def _normal(name: str, value: Tensor, seeds: Sequence[int], number: int) -> Tensor:
    """Return a normal number for every entry of a parameter of every cell."""
    by_seed = {}
    size = value[0].numel()
    for seed in set(seeds):
        stream = np.random.SeedSequence([seed, number, *name.encode()])
        words = np.random.PCG64(stream).random_raw(size)
        # 53 bits of every word, as a number in (0, 1)
        uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
        by_seed[seed] = torch.special.ndtri(torch.from_numpy(uniform)).view(value[0].shape)
    return torch.stack([by_seed[seed] for seed in seeds]).to(value)
