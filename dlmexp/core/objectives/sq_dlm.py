"""Direct loss minimisation of the square loss of predictions.

The loss is `1/2 (mu_i - y_i)^2` per row and the penalty `beta/2 |m|^2`: the objective depends on
the mean of q alone, and its minimum is that of a ridge regression.
"""

from dlmexp.core.gp.collapsed import collapsed_square, square_path
from dlmexp.core.gp.row_noise import square_row_noise
from dlmexp.core.objectives.objective import OBJECTIVES, Notes, Objective

SQ_DLM = OBJECTIVES.add(
    "sq_dlm",
    Objective(
        "sq_dlm",
        collapsed=collapsed_square,
        path=square_path,
        needs_gaussian=True,
        predicts_variance=False,
        row_noise=square_row_noise,
        notes=Notes(
            joint="no minimiser exists: the penalty vanishes as the outputscale grows; "
            "this is where training stopped"
        ),
    ),
)
