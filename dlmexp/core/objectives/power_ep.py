"""Power expectation propagation, and FITC, which is its special case of power 1.

The power is what other objectives call beta. Power 1 is FITC, and the limit of power 0 is the ELBO.
FITC has no beta of its own, so its beta is 1.
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
