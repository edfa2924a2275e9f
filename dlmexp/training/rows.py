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
    seeds: Int[Tensor, "S"]
    index: Int[Tensor, "B"]

    def inputs_by_cell(self) -> Float[Tensor, "B N D"]:
        """Training inputs of every cell. On a GPU they lie feature by feature, as the kernel matrices read them."""
        if not self.X.is_cuda:
            return self.X[self.index]
        return self.X.mT[self.index].contiguous().mT

    def keep(self, cells: Int[Tensor, "K"]) -> "Split":
        """The same for some of the cells; repetitions that no cell needs any more are dropped."""
        used, index = torch.unique(self.index[cells], return_inverse=True)
        if len(used) == len(self.seeds):
            return Split(self.X, self.y, self.parts, self.seeds, index)
        parts = {name: (X[used], y[used]) for name, (X, y) in self.parts.items()}
        return Split(self.X[used], self.y[used], parts, self.seeds[used], index)


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
    _seeds: list[int] = field(init=False)
    _epoch: int = field(default=-1, init=False)
    _order: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._seeds = self.split.seeds.tolist()  # once: on a GPU it waits for all that is under way

    @property
    def per_epoch(self) -> int:
        return 1 if self.afresh else self.split.X.shape[1] // self.size

    def rows(self, iteration: int) -> Int[Tensor, "S b"]:
        """Row numbers of this iteration, one line per repetition."""
        epoch, step = divmod(iteration, self.per_epoch)
        if self._order is None or epoch != self._epoch:
            self._order = shuffled(self._seeds, epoch, self.split.X.shape[1], self.split.X.device)
            self._epoch = epoch
        return self._order[:, step * self.size : (step + 1) * self.size]
