"""The figures of docs/SPEC.md, section 8: one file per family, each a declaration of panels and lines."""

from dlmexp.figures.families import (
    airline,
    anatomy,
    calibration,
    classification,
    counts,
    default,
    gradients,
    regression,
    selection,
)
from dlmexp.figures.registry import FIGURES

# In the order in which the paper shows them.
for family in (selection, regression, classification, counts, airline, gradients, calibration, anatomy, default):
    for figure in family.FAMILY:
        FIGURES.add(figure.id, figure)
