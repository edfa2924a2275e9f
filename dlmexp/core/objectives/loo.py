"""The leave-one-out log predictive density of FITC's model, in closed form and without a beta."""

from dlmexp.core.gp.leave_one_out import leave_one_out
from dlmexp.core.gp.row_noise import fitc_row_noise
from dlmexp.core.objectives.objective import OBJECTIVES, Objective

LOO = OBJECTIVES.add(
    "loo",
    Objective(
        "loo",
        collapsed=leave_one_out,
        has_beta=False,
        needs_gaussian=True,
        row_noise=fitc_row_noise,
    ),
)
