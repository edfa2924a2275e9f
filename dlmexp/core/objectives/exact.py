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
        row_noise=fitc_row_noise,  # with Z = X, r_i is 0 but for the jitter
    ),
)
