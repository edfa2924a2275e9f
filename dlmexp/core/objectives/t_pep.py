"""Power EP that scales the conditional of f given the inducing values, by one scale for all rows.

The scale is learned. For power alpha -> 0 the energy becomes the evidence bound with one such
scale.
"""

from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.row_noise import scaled_power_ep_row_noise
from dlmexp.core.gp.structured import scaled_power_ep
from dlmexp.core.objectives.objective import OBJECTIVES, Objective, Option
from dlmexp.core.objectives.tighter import SCALE

T_PEP = OBJECTIVES.add(
    "t_pep",
    Objective(
        "t_pep",
        collapsed=scaled_power_ep,
        has_beta=False,
        needs_gaussian=True,
        collapsed_parameters={SCALE: Parameter(1.0, positive=True)},
        row_noise=scaled_power_ep_row_noise,
        options={"alpha": Option(0.5, low=0, high=1)},
    ),
)
