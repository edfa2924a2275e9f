"""Hyperparameters and how they are declared; what a kernel is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
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


class Kernel(ABC):
    """k(x, x') over batches of cells, with the facts that the rest asks for.

    A new one is a class with these three methods, and a line that registers it: `KERNELS.add("rbf", RBF("rbf"))`."""

    stationary: ClassVar[bool] = False  # the diagonal is the same at every input
    capturable: ClassVar[bool] = True  # does the same operations whatever the values, as a CUDA graph needs

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Its hyperparameters on D features, by name; `ard`: one lengthscale per feature."""

    @abstractmethod
    def __call__(self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B M N"]:
        """The kernel matrix."""

    @abstractmethod
    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """k(x, x) of every row."""

    def trace(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B"]:
        """The sum of k(x, x) over the rows."""
        if self.stationary:
            return X.shape[-2] * self.diagonal(X[..., :1, :], hyper).squeeze(-1)
        return self.diagonal(X, hyper).sum(-1)
