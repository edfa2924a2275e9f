"""Define colours, markers and dashes of lines and effects, and the sizes of printed figures.

A method looks the same wherever it appears, and no two methods share both colour and marker. Most
colours of methods are those of Okabe and Ito, which colour-blind readers can distinguish. An
estimator has one hue, whose lightness shows the number of samples S. In a print without colours,
markers distinguish the lines.
"""

from bisect import bisect_right
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlmexp.presentation.labels import estimator_label, method_label

# In inches:
COLUMN_WIDTH = 3.25  # of a column in papers of AISTATS
TEXT_WIDTH = 6.75  # of the text in papers of AISTATS
PAGE_HEIGHT = 9.2  # the largest height of a figure
GREY = "#9a9a9a"
INK = "#333333"  # dark grey, the colour of words and axes
Dashes = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Look:
    """How a line is drawn, with its label in the legend; marker and dashes as in matplotlib."""

    label: str
    colour: str
    marker: str
    dashes: Dashes = "-"


# Colour and marker of each method. Legends list the methods in this order.
METHOD_STYLES = {
    "elbo": ("#000000", "o"),
    "beta_elbo": ("#0072B2", "s"),
    "fitc": ("#CC79A7", "v"),
    "joint_log_dlm": ("#D55E00", "D"),
    "fixed_log_dlm": ("#E69F00", "^"),
    "joint_sq_dlm": ("#009E73", "P"),
    "fixed_sq_dlm": ("#56B4E9", "X"),
    "ppgpr": ("#8B1A1A", "*"),
    "power_ep": ("#6A51A3", "d"),
    "exact": ("#777777", "h"),
    "elbo_q": ("#56B4E9", "<"),
    "dlm_elbo_q": ("#009E73", ">"),
    "dlm_q": ("#CC79A7", "p"),
    "mixture_log_dlm": ("#A0522D", "8"),
    "tighter": ("#1B7837", "1"),
    "beta_tighter": ("#1B7837", "2"),
    "block_tighter": ("#1B7837", "3"),
    "t_pep": ("#9970AB", "4"),
    "loo": ("#B8860B", "x"),
    "crps": ("#2E8B9A", "+"),
    "robust": ("#7F7F00", "|"),
}
METHOD_LOOKS = {
    method: Look(method_label(method), colour, marker)
    for method, (colour, marker) in METHOD_STYLES.items()
}


@dataclass(frozen=True)
class EstimatorStyle:
    """How lines of an estimator are drawn.

    Attributes:
        marker: The marker.
        dashes: The dashes.
        shades: The colours for few, medium and many samples, divided at `SHADE_LIMITS`.
    """

    marker: str
    dashes: Dashes
    shades: tuple[str, str, str]


ESTIMATOR_STYLES = {
    "bmc": EstimatorStyle("<", "-", ("#BBA6E6", "#7F52D0", "#46199E")),
    "ups": EstimatorStyle(">", "-", ("#C2BD33", "#8E8A00", "#474500")),
    "smooth_bmc": EstimatorStyle("p", "--", ("#93D6D2", "#1FA19B", "#006A66")),
}
# The smallest numbers of samples that have the second and the third shade.
SHADE_LIMITS = (10, 100)
# The effects in panels of effects (module `kinds.effects`), in the order of their rows.
EFFECT_LOOKS = {
    "whole": Look("DLM − ELBO", "#6B6B6B", ""),
    "beta": Look("= choosing β", "#0072B2", ""),
    "objective": Look("+ objective (log loss)", "#D55E00", ""),
    "coordinates": Look("change if q is unwhitened", "#009E73", ""),
    "noise": Look("change if noise > 0.01", "#E69F00", ""),
    "fitc": Look("FITC − ELBO", "#CC79A7", ""),
}


def method_look(method: str) -> Look:
    """Return the look of a method; lines of a plugin's method are dark grey."""
    return METHOD_LOOKS.get(method, Look(method_label(method), "#555555", "H", "-."))


def estimator_look(estimator: str, samples: int | None) -> Look:
    """Return the look of an estimator with a number of samples, labelled such as `bMC-10`.

    Estimators of plugins are brown. An estimator without a number of samples has the middle shade.
    """
    label = estimator_label(estimator, samples)
    style = ESTIMATOR_STYLES.get(estimator)
    if style is None:
        return Look(label, "#8C6239", "h")
    middle_shade = 1
    shade_number = middle_shade if samples is None else bisect_right(SHADE_LIMITS, samples)
    return Look(label, style.shades[shade_number], style.marker, style.dashes)


def paper_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has the project's style."""
    # Imported here, as this module is loaded to complete command lines too, which must be quick.
    import matplotlib.style

    return matplotlib.style.context(["default", str(Path(__file__).with_name("dlmexp.mplstyle"))])
