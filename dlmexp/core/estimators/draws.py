"""Random numbers that depend on (seed, iteration, stream, sample, row) and on nothing else.

A cell has the same draws whichever cells share its batch, on a CPU and on a GPU, resumed or not.
There is no generator state: a number is a hash of these five integers, computed by tensor
operations that a CUDA graph can capture (the iteration is a tensor, so that a captured graph draws
new numbers at each replay).
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
"""transform(u) returns arrays, with a first dimension of S, made of uniform numbers u [S, L, N]."""


def _signed(word: int) -> int:
    """Return the signed integer with the bits of an unsigned 64-bit word, as torch needs it."""
    if word >= 1 << 63:
        return word - (1 << 64)
    return word


# The increment and the multipliers of splitmix64, which computes modulo 2^64, like torch's int64.
INCREMENT = _signed(0x9E3779B97F4A7C15)
FIRST_MULTIPLIER = _signed(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER = _signed(0x94D049BB133111EB)


def _shift_right(x: Int[Tensor, "..."], bits: int) -> Int[Tensor, "..."]:
    """Return x shifted to the right and filled with zeros (torch's >> fills with the sign bit)."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _hash(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Return the hash of x by splitmix64.

    It is a bijection of 64-bit words in which every input bit influences every output bit.
    """
    x = x * INCREMENT
    x = (x ^ _shift_right(x, 30)) * FIRST_MULTIPLIER
    x = (x ^ _shift_right(x, 27)) * SECOND_MULTIPLIER
    return x ^ _shift_right(x, 31)


def _open_unit(word: Int[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return 64 random bits as a number in the open interval (0, 1).

    It is (k + 1/2) 2^-bits, where k are the upper bits of the word: so few that the result is exact
    in the dtype, and neither 0 nor 1.
    """
    bits = 52 if dtype == torch.float64 else 23
    return _shift_right(word, 64 - bits).to(dtype).add_(0.5).mul_(2.0**-bits)


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

        Each cell of the batch has a seed from torch's global random state.
        """
        cell_count = math.prod(batch)
        seeds = torch.randint(1 << 62, (cell_count,), device=device)
        index = torch.arange(cell_count, device=device).view(tuple(batch))
        return cls(seeds, index, iteration=seeds.new_zeros(()), dtype=dtype)

    @cached_property
    def _key_of_iteration(self) -> Int[Tensor, " S"]:
        """Return a hash of each seed and the iteration."""
        # The hash of 0 is 0: without the + 1, seed 0 would have a trivial key.
        return _hash(_hash(self.seeds + 1) + self.iteration)

    def _uniform_by_seed(self, L: int, N: int, stream: int) -> Float[Tensor, "S L N"]:
        """Return uniform numbers in (0, 1) for each seed."""
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
        return self._by_cell(self._uniform_by_seed(L, N, 2 * stream))

    def transformed(
        self, transform: Transform, L: int, N: int, stream: int = 0
    ) -> tuple[Tensor, ...]:
        """Return the arrays that `transform` makes of `uniform(L, N, stream)`, for every cell.

        The transformation is computed once per seed, not per cell.
        """
        arrays = transform(self._uniform_by_seed(L, N, 2 * stream))
        return tuple(self._by_cell(array) for array in arrays)

    def uniform_at(
        self, entries: Int[Tensor, " E"], L: int, N: int, stream: int = 0
    ) -> Float[Tensor, " E"]:
        """Return the entries of the flattened `uniform(L, N, stream)` at the positions `entries`.

        The other entries are not computed.
        """
        sample = entries // N % L
        row = entries % N
        cell = entries // (L * N)
        counter = (sample << 32) + row
        key = _hash(self._key_of_iteration + 2 * stream)[self.index.flatten()[cell]]
        return _open_unit(_hash(counter + key), self.dtype)

    def normal(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Return standard normal numbers.

        Samples 2 i and 2 i + 1 are a pair of the Box-Muller transform, so that a sample does not
        depend on the number of samples L.
        """
        u = self._uniform_by_seed(L + L % 2, N, 2 * stream + 1)
        radius = (-2 * u[:, 0::2].log()).sqrt()
        angle = 2 * math.pi * u[:, 1::2]
        pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=2)
        return self._by_cell(pairs.flatten(1, 2)[:, :L])
