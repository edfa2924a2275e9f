"""Hyperparameters of a batch of cells: how kernels and likelihoods declare theirs, and how functions receive them."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

Hyper = Mapping[str, Tensor]
"""Constrained values by name, B cells each: Z [B,M,D], mean [B], and what the kernel and the likelihood declare."""


@dataclass(frozen=True)
class Parameter:
    """A learned hyperparameter, one of shape [*shape] per cell. `initial` is a number or a tensor of that shape.

    A positive one is trained through softplus, and stays above `floor`."""

    initial: float | Tensor
    positive: bool = False
    shape: tuple[int, ...] = ()
    floor: float = 0.0

    def start(self, like: Tensor, B: int, initial: float | None = None) -> Tensor:
        """The initial value of B cells [B, *shape], or `initial` in its place; dtype and device as `like`."""
        value = self.initial if initial is None else initial
        if isinstance(value, Tensor):
            return value.to(like).expand(B, *self.shape).clone()
        return like.new_full((B, *self.shape), value)
