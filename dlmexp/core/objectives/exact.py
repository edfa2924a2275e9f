"""The evidence of the exact Gaussian process."""

from dlmexp.core.gp.collapsed import exact_evidence
from dlmexp.core.gp.row_noise import fitc_row_noise
from dlmexp.core.objectives.objective import OBJECTIVES, Objective

EXACT = OBJECTIVES.add(
    "exact",
    Objective(
        "exact",
        collapsed=exact_evidence,
        has_beta=False,
        needs_gaussian=True,
        all_rows_inducing=True,
        # The noise plus the residual variance r_i, which with Z = X is 0 up to the jitter.
        row_noise=fitc_row_noise,
    ),
)
