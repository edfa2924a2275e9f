"""Random numbers that depend on (seed, iteration, stream, sample, row) and on nothing else.

A cell gets the same draws whichever cells share its batch, on a CPU and on a GPU, resumed or not:
there is no generator state, only a hash of integers in plain tensor operations, which a CUDA graph
can capture (the iteration is a tensor)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Transform = Callable[
    [Tensor], tuple[Tensor, ...]
]  # of [..., L, N] to arrays that begin with the same dimensions


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


# splitmix64's increment and multipliers, as the signed words torch knows; int64 products wrap.
GOLDEN = _signed(0x9E3779B97F4A7C15)
FIRST, SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _shifted(x: Int[Tensor, "..."], by: int) -> Int[Tensor, "..."]:
    """Logical right shift (torch's own keeps the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """splitmix64's finaliser: a bijection of 64-bit words in which every input bit moves every
    output bit."""
    x = x * GOLDEN
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def _open_unit(word: Int[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """64 random bits to (k + 1/2) 2^-bits: exact in the dtype, hence never rounded to 0 or 1."""
    bits = 52 if dtype == torch.float64 else 23
    return _shifted(word, 64 - bits).to(dtype).add_(0.5).mul_(2.0**-bits)


@dataclass(frozen=True)
class Draws:
    """Counter-based draws for a batch of cells in one iteration; cells of one seed share theirs.

    seeds: int64 [S], the distinct seeds; index: int64, the position of each cell's seed among them,
    in the shape of the batch; iteration: int64 0-dim. Numbers are [*B, L, N]: L samples, N rows.
    """

    seeds: Int[Tensor, " S"]
    index: Int[Tensor, "*B"]
    iteration: Int[Tensor, ""]
    dtype: torch.dtype = torch.float64

    @classmethod
    def fresh(
        cls, batch: Sequence[int] = (), dtype: torch.dtype = torch.float64, device: Any = "cpu"
    ) -> "Draws":
        """Draws for a batch of this shape, each of its cells with a seed from torch's global random
        state."""
        cells = math.prod(batch)
        seeds = torch.randint(1 << 62, (cells,), device=device)
        return cls(
            seeds, torch.arange(cells, device=device).view(tuple(batch)), seeds.new_zeros(()), dtype
        )

    @cached_property
    def _round(self) -> Int[Tensor, " S"]:
        return _mix(
            _mix(self.seeds + 1) + self.iteration
        )  # 0 would stay 0, and be the first number of seed 0

    def _uniform(self, L: int, N: int, stream: int) -> Float[Tensor, "S L N"]:
        key, device = _mix(self._round + stream), self.seeds.device
        sample = torch.arange(L, device=device).unsqueeze(-1) << 32
        counter = sample + torch.arange(N, device=device)
        return _open_unit(_mix(counter + key[:, None, None]), self.dtype)

    def _by_cell(self, numbers: Tensor) -> Tensor:
        return numbers.index_select(0, self.index.flatten()).view(
            *self.index.shape, *numbers.shape[1:]
        )

    def uniform(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Uniforms in the open interval (0, 1)."""
        return self._by_cell(self._uniform(L, N, 2 * stream))

    def transformed(
        self, transform: Transform, L: int, N: int, stream: int = 0
    ) -> tuple[Tensor, ...]:
        """Arrays made of the uniforms [S, L, N]: what a sampler does to them is done once per seed,
        not per cell."""
        return tuple(map(self._by_cell, transform(self._uniform(L, N, 2 * stream))))

    def uniform_at(
        self, entries: Int[Tensor, " E"], L: int, N: int, stream: int = 0
    ) -> Float[Tensor, " E"]:
        """The chosen entries of the flattened `uniform(L, N, stream)`, computed without the
        others."""
        counter = (entries // N % L << 32) + entries % N
        key = _mix(self._round + 2 * stream)[self.index.flatten()[entries // (L * N)]]
        return _open_unit(_mix(counter + key), self.dtype)

    def normal(self, L: int, N: int, stream: int = 0) -> Float[Tensor, "*B L N"]:
        """Standard normals (Box-Muller over pairs of samples, so that the first l samples do not
        depend on L)."""
        u = self._uniform(L + L % 2, N, 2 * stream + 1)
        radius, angle = (-2 * u[:, 0::2].log()).sqrt(), 2 * math.pi * u[:, 1::2]
        pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=2)
        return self._by_cell(pairs.flatten(1, 2)[:, :L])
