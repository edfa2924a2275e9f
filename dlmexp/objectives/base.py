"""What an objective is: a loss per row and a regulariser of q, or a closed form over q, or both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators import Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.closed import Collapsed
from dlmexp.gp.likelihoods import Likelihood


class RowLoss(Protocol):
    """Loss per row [B, N], and per cell the share of accepted proposals where the loss draws by rejection."""

    def __call__(
        self, likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None]: ...


@dataclass(frozen=True)
class Objective:
    """Training minimises `sum_i row_loss_i + beta * regulariser(m, L)`, divided by the number of rows (SPEC section 2),
    or, where q has a closed form (Gaussian noise), the minimum of that over q."""

    name: str
    row_loss: RowLoss | None = None
    regulariser: Callable[[Tensor, Tensor], Float[Tensor, "B"]] | None = None
    collapsed: Collapsed | None = None
    predicts_variance: bool = True
