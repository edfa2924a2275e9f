"""The default job: the paper's ringnorm panel in small, on data drawn from ringnorm's definition."""

from dlmexp.figures.families.classification import LINES
from dlmexp.figures.panels import Figure, Panel

FAMILY = (
    Figure(
        "default",
        (Panel("sizes", "ringnorm_drawn", "nll", LINES, "default"),),
        columns=1,
        caption="The default job: DLM and ELBO side by side on ringnorm as drawn from its definition.",
    ),
)
