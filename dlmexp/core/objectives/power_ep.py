"""Power expectation propagation, and its end at power 1, FITC.

The power takes the place of the beta of other objectives: 1 is FITC, 0 the ELBO.
"""

from dlmexp.core.gp.collapsed import power_ep
from dlmexp.core.gp.row_noise import power_ep_row_noise
from dlmexp.core.objectives.objective import OBJECTIVES, Objective

FITC = OBJECTIVES.add(
    "fitc",
    Objective(
        "fitc",
        collapsed=power_ep,
        has_beta=False,
        needs_gaussian=True,
        row_noise=power_ep_row_noise,
    ),
)
POWER_EP = OBJECTIVES.add(
    "power_ep",
    Objective("power_ep", collapsed=power_ep, needs_gaussian=True, row_noise=power_ep_row_noise),
)
