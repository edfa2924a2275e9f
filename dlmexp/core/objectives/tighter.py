"""Evidence bounds that scale the conditional of f given the inducing values.

`tighter` has one scale per row, `block_tighter` one matrix per block of rows. Both lie between the
ELBO and the exact evidence at equal hyperparameters, and predict with the q of the ELBO.
"""

from dlmexp.core.gp.structured import (
    blocks_of_neighbours,
    collapsed_block_tighter,
    collapsed_tighter,
)
from dlmexp.core.objectives.objective import OBJECTIVES, Objective, Option

TIGHTER = OBJECTIVES.add(
    "tighter", Objective("tighter", collapsed=collapsed_tighter, needs_gaussian=True)
)
BLOCK_TIGHTER = OBJECTIVES.add(
    "block_tighter",
    Objective(
        "block_tighter",
        collapsed=collapsed_block_tighter,
        needs_gaussian=True,
        options={"blocks": Option(10, low=1, high=1_000_000, whole=True)},
        row_order=blocks_of_neighbours,
    ),
)
