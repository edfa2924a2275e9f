"""When a fit has converged."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

CRITERIA = ("mean", "sum", "relative")


@dataclass(frozen=True)
class StoppingRule:
    """A fit has converged when its objective varies little over a window of iterations.

    Attributes:
        window: The number of iterations that are looked at.
        tolerance: The largest spread, maximum minus minimum, of a fit that has converged.
        criterion: "mean": the spread of the objective per row. "sum": that of the sum over all
            rows. "relative": the spread over the largest absolute objective, or over 1 if that is
            larger.
        rows: The number of rows that the objective is a mean of.
    """

    window: int
    tolerance: float
    criterion: str = "mean"
    rows: int = 1

    def converged(self, values: Float[Tensor, "B W"]) -> Bool[Tensor, "B"]:
        """Return which fits have converged, from their objectives per row in the window.

        Iterations that were not made yet are NaN; a comparison with NaN is false.
        """
        spread = values.amax(1) - values.amin(1)
        if self.criterion == "sum":
            spread = spread * self.rows
        elif self.criterion == "relative":
            spread = spread / values.abs().amax(1).clamp(min=1.0)
        return spread <= self.tolerance
