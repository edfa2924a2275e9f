"""Which rows a step sees: all of them, or a minibatch that depends on (seed, iteration) alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass
class Split:
    """Training, validation and test rows of the S repetitions in a batch, and which repetition each cell belongs to."""

    X: Float[Tensor, "S N D"]
    y: Float[Tensor, "S N"]
    parts: dict[str, tuple[Float[Tensor, "S T D"], Float[Tensor, "S T"]]]  # "validation" and "test"
    seed_of: list[int]  # each repetition
    repetition_of: list[int]  # each cell
    seeds: Int[Tensor, "S"] = field(init=False)  # the two on the device
    index: Int[Tensor, "B"] = field(init=False)

    def __post_init__(self) -> None:
        self.seeds, self.index = (
            torch.tensor(numbers, dtype=torch.int64, device=self.X.device)
            for numbers in (self.seed_of, self.repetition_of)
        )

    def inputs_by_cell(self) -> Float[Tensor, "B N D"]:
        """Training inputs of every cell. On a GPU they lie feature by feature, as the kernel matrices read them."""
        if not self.X.is_cuda:
            return self.X[self.index]
        return self.X.mT[self.index].contiguous().mT

    def used_by(self, cells: Sequence[int]) -> list[int]:
        """The repetitions that these cells belong to."""
        return sorted({self.repetition_of[cell] for cell in cells})

    def keep(self, cells: Sequence[int]) -> "Split":
        """The same for some of the cells; repetitions that no cell needs any more are dropped."""
        used = self.used_by(cells)
        of_cells = [used.index(self.repetition_of[cell]) for cell in cells]
        if len(used) == len(self.seed_of):
            return Split(self.X, self.y, self.parts, self.seed_of, of_cells)
        parts = {name: (X[used], y[used]) for name, (X, y) in self.parts.items()}
        return Split(self.X[used], self.y[used], parts, [self.seed_of[i] for i in used], of_cells)


def shuffled(seeds: Sequence[int], epoch: int, n: int, device: torch.device | str = "cpu") -> Int[Tensor, "S n"]:
    """The order of n rows in an epoch, one line per seed: that of the raw words of a bit generator which numpy promises
    for good. They are sorted on the device: on a CPU the sorting took longer than a GPU's steps."""
    words = np.stack([np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(n) for seed in seeds])
    signed = (words ^ np.uint64(1 << 63)).view(np.int64)  # in the same order
    return torch.from_numpy(signed).to(device).argsort(dim=-1, stable=True)


@dataclass
class Minibatches:
    """Rows of each step: `size` consecutive ones of the epoch's order; what is left over at its end is not used.

    With `afresh` every step has an order of its own and takes its first `size` rows: a draw without replacement."""

    split: Split
    size: int
    afresh: bool = False
    _epoch: int = field(default=-1, init=False)
    _order: Tensor | None = field(default=None, init=False)

    @property
    def per_epoch(self) -> int:
        return 1 if self.afresh else self.split.X.shape[1] // self.size

    def rows(self, iteration: int) -> Int[Tensor, "S b"]:
        """Row numbers of this iteration, one line per repetition."""
        epoch, step = divmod(iteration, self.per_epoch)
        if self._order is None or epoch != self._epoch:
            self._order = shuffled(self.split.seed_of, epoch, self.split.X.shape[1], self.split.X.device)
            self._epoch = epoch
        return self._order[:, step * self.size : (step + 1) * self.size]
