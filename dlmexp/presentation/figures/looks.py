"""Define colours, markers and dashes of lines and effects, and the sizes of printed figures.

A method looks the same wherever it appears, and no two methods share colour and marker. Most of
their colours are those of Okabe and Ito, which colour-blind readers can distinguish. An estimator
has one hue, whose lightness shows the number of samples S. In a print without colours, markers
distinguish the lines.
"""

from bisect import bisect_right
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlmexp.presentation.labels import estimator_label, method_label

# In inches: the widths of a column and of the text in papers of AISTATS, and the greatest height of
# a figure.
COLUMN_WIDTH = 3.25
TEXT_WIDTH = 6.75
PAGE_HEIGHT = 9.2
GREY = "#9a9a9a"
INK = "#333333"  # dark grey, of words and axes
Dashes = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Look:
    """How a line is drawn, with its label in the legend."""

    label: str
    colour: str
    marker: str
    dashes: Dashes = "-"


# Colour and marker of each method. Legends have the methods in this order.
METHOD_COLOURS = {
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
    for method, (colour, marker) in METHOD_COLOURS.items()
}


@dataclass(frozen=True)
class EstimatorStyle:
    """How lines of an estimator are drawn.

    Attributes:
        marker: The marker.
        dashes: The dashes.
        shades: The colours for few, medium and many samples (`SHADE_LIMITS`).
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
    """Return the look of an estimator with a number of samples, labelled such as `bMC-10`."""
    label = estimator_label(estimator, samples)
    style = ESTIMATOR_STYLES.get(estimator)
    if style is None:
        return Look(label, "#8C6239", "h")
    middle = 1
    shade_number = middle if samples is None else bisect_right(SHADE_LIMITS, samples)
    return Look(label, style.shades[shade_number], style.marker, style.dashes)


def paper_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has the project's style."""
    import matplotlib.style

    return matplotlib.style.context(["default", str(Path(__file__).with_name("dlmexp.mplstyle"))])
