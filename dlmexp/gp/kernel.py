"""What a kernel is, and the facts it states about itself."""

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.hyperparameters import Hyper, Parameter
from dlmexp.registry import Registry


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


KERNELS: Registry[Kernel] = Registry("kernel", "dlmexp.gp.kernels")
