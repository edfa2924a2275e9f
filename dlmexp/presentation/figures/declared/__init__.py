"""The declarations of all figures that are made of panels, a function for each figure.

The module `paper` has the figures of the paper in its order; `calibration` and `worth` have further
figures (docs/SPEC.md, section 8). The lines and panels that figures share are in `parts`. The
decorator `@declare` registers the figure that a function returns.
"""

# The order of these imports is the order in which figures are listed and drawn.
from dlmexp.presentation.figures.declared import paper, calibration, worth  # noqa: F401, I001
