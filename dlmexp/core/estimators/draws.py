"""Random numbers that depend on (seed, iteration, stream, sample, row) and on nothing else.

A cell gets the same draws whichever cells share its batch, on a CPU and on a GPU, resumed or not.
There is no generator state, only a hash of integers in plain tensor operations, which a CUDA graph
can capture (the iteration is a tensor).
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
"""From uniforms [..., L, N] to arrays that begin with the same dimensions."""


def _signed(word: int) -> int:
    """Return a 64-bit word as the signed integer that torch knows."""
    if word >= 1 << 63:
        return word - (1 << 64)
    return word


# splitmix64's increment and multipliers; int64 products wrap.
INCREMENT = _signed(0x9E3779B97F4A7C15)
FIRST_MULTIPLIER = _signed(0xBF58476D1CE4E5B9)
SECOND_MULTIPLIER = _signed(0x94D049BB133111EB)


def _shifted(x: Int[Tensor, "..."], by: int) -> Int[Tensor, "..."]:
    """Return the logical right shift (torch's own keeps the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Return splitmix64's finaliser of x.

    It is a bijection of 64-bit words in which every input bit moves every output bit.
    """
    x = x * INCREMENT
    x = (x ^ _shifted(x, 30)) * FIRST_MULTIPLIER
    x = (x ^ _shifted(x, 27)) * SECOND_MULTIPLIER
    return x ^ _shifted(x, 31)


def _open_unit(word: Int[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return 64 random bits as (k + 1/2) 2^-bits: exact in the dtype, hence never 0 or 1."""
    bits = 52 if dtype == torch.float64 else 23
    return _shifted(word, 64 - bits).to(dtype).add_(0.5).mul_(2.0**-bits)


@dataclass(frozen=True)
class Draws:
    """Counter-based draws for a batch of cells in one iteration; cells of one seed share theirs.

    Numbers are [*B, L, N]: L samples, N rows. Draws from different streams are independent.

    Attributes:
        seeds: int64 [S], the distinct seeds.
        index: int64 [*B], the position of each cell's seed among them.
        iteration: int64, 0-dimensional.
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
    def _round(self) -> Int[Tensor, " S"]:
        # A seed of 0 would be mixed to 0, and be the first number of its own draws: hence + 1.
        return _mix(_mix(self.seeds + 1) + self.iteration)

    def _uniform(self, L: int, N: int, stream: int) -> Float[Tensor, "S L N"]:
        key = _mix(self._round + stream)
        device = self.seeds.device
        sample = torch.arange(L, device=device).unsqueeze(-1) << 32
        counter = sample + torch.arange(N, device=device)
        return _open_unit(_mix(counter + key[:, None, None]), self.dtype)

    def _by_cell(self, numbers: Float[Tensor, "S ..."]) -> Tensor:
        """Return the numbers [*B, ...] of each cell's seed."""
        by_cell = numbers.index_select(0, self.index.flatten())
        return by_cell.view(*self.index.shape, *numbers.shape[1:])

    def uniform(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Return uniforms in the open interval (0, 1)."""
        return self._by_cell(self._uniform(L, N, 2 * stream))

    def transformed(
        self, transform: Transform, L: int, N: int, stream: int = 0
    ) -> tuple[Tensor, ...]:
        """Return arrays made of the uniforms [S, L, N].

        What a sampler does to them is done once per seed, not per cell.
        """
        arrays = transform(self._uniform(L, N, 2 * stream))
        return tuple(self._by_cell(array) for array in arrays)

    def uniform_at(
        self, entries: Int[Tensor, " E"], L: int, N: int, stream: int = 0
    ) -> Float[Tensor, " E"]:
        """Return entries of the flattened `uniform(L, N, stream)` without computing the others."""
        sample = entries // N % L
        row = entries % N
        cell = entries // (L * N)
        counter = (sample << 32) + row
        key = _mix(self._round + 2 * stream)[self.index.flatten()[cell]]
        return _open_unit(_mix(counter + key), self.dtype)

    def normal(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Return standard normals.

        They are Box and Muller's over pairs of samples, so that the first l samples do not depend
        on L.
        """
        u = self._uniform(L + L % 2, N, 2 * stream + 1)
        radius = (-2 * u[:, 0::2].log()).sqrt()
        angle = 2 * math.pi * u[:, 1::2]
        pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=2)
        return self._by_cell(pairs.flatten(1, 2)[:, :L])
