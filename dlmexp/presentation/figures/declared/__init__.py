"""The declarations of all figures (docs/SPEC.md, section 8), a function for each.

The module `paper` has the figures of the paper in its order; `calibration` and `worth` have those
that we add. The lines and panels that figures share are in `parts`. The decorator `@declare`
registers the figure that a function returns.
"""

# The order of these imports is the order in which figures are listed and drawn.
from dlmexp.presentation.figures.declared import paper, calibration, worth  # noqa: F401, I001
