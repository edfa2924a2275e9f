"""Random numbers that depend on (seed, iteration, stream, sample, row) and on nothing else.

A cell has the same draws whichever cells share its batch, on a CPU and on a GPU, resumed or not.
There is no generator state: a number is a hash of these five integers, computed by tensor
operations that a CUDA graph can capture (the iteration is a tensor).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Transform = Callable[[Tensor], tuple[Tensor, ...]]
"""From uniform numbers [S, L, N] to arrays whose first dimension is S."""


def _signed(word: int) -> int:
    """Return an unsigned 64-bit word as the signed integer with the same bits, as torch has it."""
    if word >= 1 << 63:
        return word - (1 << 64)
    return word


# The increment and the multipliers of splitmix64. Products of int64 wrap around, as they should.
INCREMENT = _signed(0x9E3779B97F4A7C15)
FIRST_MULTIPLIER = _signed(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER = _signed(0x94D049BB133111EB)


def _shifted(x: Int[Tensor, "..."], by: int) -> Int[Tensor, "..."]:
    """Return x shifted to the right, filled with zeros (torch's >> fills with the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _hash(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Return the hash of x by splitmix64.

    It is a bijection of 64-bit words in which every input bit influences every output bit.
    """
    x = x * INCREMENT
    x = (x ^ _shifted(x, 30)) * FIRST_MULTIPLIER
    x = (x ^ _shifted(x, 27)) * SECOND_MULTIPLIER
    return x ^ _shifted(x, 31)


def _open_unit(word: Int[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return 64 random bits as a number in (0, 1), never 0 or 1.

    It is (k + 1/2) 2^-bits, where k has so few bits that this is exact in the dtype.
    """
    bits = 52 if dtype == torch.float64 else 23
    return _shifted(word, 64 - bits).to(dtype).add_(0.5).mul_(2.0**-bits)


@dataclass(frozen=True)
class Draws:
    """Random numbers for a batch of cells in one iteration; cells with the same seed share theirs.

    Numbers are [*B, L, N]: L samples, N rows. Numbers of different streams are independent.

    Attributes:
        seeds: The distinct seeds.
        index: The position of each cell's seed in `seeds`.
        iteration: The number of the iteration.
        dtype: The type of the numbers.
    """

    seeds: Int[Tensor, " S"]
    index: Int[Tensor, "*B"]
    iteration: Int[Tensor, ""]
    dtype: torch.dtype = torch.float64

    @classmethod
    def fresh(
        cls, batch: Sequence[int] = (), dtype: torch.dtype = torch.float64, device: Any = "cpu"
    ) -> "Draws":
        """Return draws for a batch of this shape.

        Each of its cells has a seed from torch's global random state.
        """
        cells = math.prod(batch)
        seeds = torch.randint(1 << 62, (cells,), device=device)
        index = torch.arange(cells, device=device).view(tuple(batch))
        return cls(seeds, index, seeds.new_zeros(()), dtype)

    @cached_property
    def _key_of_iteration(self) -> Int[Tensor, " S"]:
        """Return a hash of each seed and the iteration."""
        # The hash of 0 is 0, so that seed 0 needs the + 1.
        return _hash(_hash(self.seeds + 1) + self.iteration)

    def _uniform(self, L: int, N: int, stream: int) -> Float[Tensor, "S L N"]:
        """Return uniform numbers of each seed."""
        key = _hash(self._key_of_iteration + stream)
        device = self.seeds.device
        # The number of the sample in the upper 32 bits, that of the row in the lower ones
        sample = torch.arange(L, device=device).unsqueeze(-1) << 32
        counter = sample + torch.arange(N, device=device)
        return _open_unit(_hash(counter + key[:, None, None]), self.dtype)

    def _by_cell(self, numbers: Float[Tensor, "S ..."]) -> Tensor:
        """Return, for every cell, the numbers [*B, ...] of its seed."""
        by_cell = numbers.index_select(0, self.index.flatten())
        return by_cell.view(*self.index.shape, *numbers.shape[1:])

    def uniform(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Return uniform numbers in the open interval (0, 1)."""
        # Even streams are for uniform numbers, odd ones for normal numbers.
        return self._by_cell(self._uniform(L, N, 2 * stream))

    def transformed(
        self, transform: Transform, L: int, N: int, stream: int = 0
    ) -> tuple[Tensor, ...]:
        """Return the arrays that `transform` makes of uniform numbers [S, L, N], for every cell.

        The work is done once per seed, not per cell.
        """
        arrays = transform(self._uniform(L, N, 2 * stream))
        return tuple(self._by_cell(array) for array in arrays)

    def uniform_at(
        self, entries: Int[Tensor, " E"], L: int, N: int, stream: int = 0
    ) -> Float[Tensor, " E"]:
        """Return entries of the flattened `uniform(L, N, stream)` without computing the others.

        `entries` are their positions in the flattened array.
        """
        sample = entries // N % L
        row = entries % N
        cell = entries // (L * N)
        counter = (sample << 32) + row
        key = _hash(self._key_of_iteration + 2 * stream)[self.index.flatten()[cell]]
        return _open_unit(_hash(counter + key), self.dtype)

    def normal(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Return standard normal numbers.

        Samples 2 i and 2 i + 1 are a pair of the Box-Muller transform, so that the first l samples
        do not depend on L.
        """
        u = self._uniform(L + L % 2, N, 2 * stream + 1)
        radius = (-2 * u[:, 0::2].log()).sqrt()
        angle = 2 * math.pi * u[:, 1::2]
        pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=2)
        return self._by_cell(pairs.flatten(1, 2)[:, :L])
