"""When a fit has converged."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

CRITERIA = ("mean", "sum", "relative")
"""The values of `StoppingRule.criterion`. `fused_update` refers to them by their positions."""


@dataclass(frozen=True)
class StoppingRule:
    """A fit has converged when its objective varies little over a window of iterations.

    Attributes:
        window: The number of last iterations whose objectives are compared.
        tolerance: The largest spread, maximum minus minimum, of a fit that has converged.
        criterion: The spread is that of the objective per row ("mean"), of its sum over all rows
            ("sum"), or of the objective per row divided by its largest absolute value in the
            window, at least 1 ("relative").
        rows: The number of training rows, which turns a mean over rows into a sum.
    """

    window: int
    tolerance: float
    criterion: str = "mean"
    rows: int = 1

    def converged(self, values: Float[Tensor, "B W"]) -> Bool[Tensor, "B"]:
        """Return which fits have converged, from their objectives per row in the window.

        `values` is NaN for iterations that were not made yet. Then the spread is NaN too, and the
        fit has not converged, as comparisons with NaN are false.
        """
        spread = values.amax(1) - values.amin(1)
        if self.criterion == "sum":
            spread = spread * self.rows
        elif self.criterion == "relative":
            spread = spread / values.abs().amax(1).clamp(min=1.0)
        return spread <= self.tolerance
