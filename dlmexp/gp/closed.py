"""What the objectives with a closed form over q have in common: `elbo` for regression, `fitc`, and square loss."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.hyperparameters import Hyper
from dlmexp.gp.kernels import Kernel


class Closed(NamedTuple):
    """The objective at its minimum over q (not divided by n), and the whitened q that attains it."""

    loss: Float[Tensor, "B"]
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    ok: Bool[Tensor, "B"]
    """which cells could be factorised"""


@runtime_checkable
class Collapsed(Protocol):
    """An objective as a function of the hyperparameters alone. `loss` is differentiable in `hyper`; with `rows_at_once`
    its memory, backward pass included, is that of so many rows."""

    def __call__(
        self,
        kernel: Kernel,
        hyper: Hyper,
        X: Float[Tensor, "B N D"],
        y: Float[Tensor, "B N"],
        beta: Float[Tensor, "B"],
        jitter: Float[Tensor, "B"],
        rows_at_once: int | None = None,
    ) -> Closed: ...
