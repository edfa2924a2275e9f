"""All figures (docs/SPEC.md, section 8), a function for each under `@declare`.

`paper` has those of the paper in its order, `calibration` and `worth` those that we add; `parts`
has lines and panels that they share. A figure is its panels and a caption of at most two sentences.
"""

# The order in which figures are listed and drawn.
from dlmexp.presentation.figures.declared import paper, calibration, worth  # noqa: F401, I001
