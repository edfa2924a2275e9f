"""Colours, markers and dashes: the same for a method wherever it appears, and never those of another thing.

The methods' colours are Okabe and Ito's, distinguishable for colour-blind readers. An estimator has one hue; its
lightness shows the samples S. Markers tell lines apart in grey.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dlmexp.labels import estimator_label, method_label

COLUMN = 3.25  # inches, AISTATS
TEXT = 6.75
PAGE = 9.2  # the tallest figure
GREY = "#9a9a9a"
INK = "#333333"
STYLE_FILE = Path(__file__).with_name("dlmexp.mplstyle")
Dashes = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Look:
    """How a line is drawn, and its entry in the legend."""

    label: str
    colour: str
    marker: str
    dashes: Dashes = "-"


METHODS = {
    name: Look(method_label(name), colour, marker)
    for name, colour, marker in (
        ("elbo", "#000000", "o"),
        ("beta_elbo", "#0072B2", "s"),
        ("fitc", "#CC79A7", "v"),
        ("joint_log_dlm", "#D55E00", "D"),
        ("fixed_log_dlm", "#E69F00", "^"),
        ("joint_sq_dlm", "#009E73", "P"),
        ("fixed_sq_dlm", "#56B4E9", "X"),
        ("ppgpr", "#8B1A1A", "*"),
        ("power_ep", "#6A51A3", "d"),
        ("exact", "#777777", "h"),
        ("elbo_q", "#56B4E9", "<"),
        ("dlm_elbo_q", "#009E73", ">"),
        ("dlm_q", "#CC79A7", "p"),
    )
}
# Three shades per estimator: few, some, many samples.
ESTIMATORS: dict[str, tuple[str, Dashes, tuple[str, str, str]]] = {
    "bmc": ("<", "-", ("#BBA6E6", "#7F52D0", "#46199E")),
    "ups": (">", "-", ("#C2BD33", "#8E8A00", "#474500")),
    "smooth_bmc": ("p", "--", ("#93D6D2", "#1FA19B", "#006A66")),
}
EFFECTS = {  # of the figure `anatomy`
    "whole": Look("DLM − ELBO", "#6B6B6B", ""),
    "beta": Look("= choosing β", "#0072B2", ""),
    "objective": Look("+ objective (log loss)", "#D55E00", ""),
    "coordinates": Look("change if q is unwhitened", "#009E73", ""),
    "noise": Look("change if noise > 0.01", "#E69F00", ""),
    "fitc": Look("FITC − ELBO", "#CC79A7", ""),
}


def method_look(method: str) -> Look:
    """The look of a method; one that is not ours is dark grey, labelled with its name."""
    return METHODS.get(method, Look(method_label(method), "#555555", "H", "-."))


def estimator_look(estimator: str, samples: int | None) -> Look:
    """The look of an estimator at S samples: `exact`, `bMC-10`, `uPS-1`, `smooth-bMC-100`."""
    label = estimator_label(estimator, samples)
    if estimator not in ESTIMATORS:
        return Look(label, "#8C6239", "h")
    marker, dashes, shades = ESTIMATORS[estimator]
    return Look(label, shades[1 if samples is None else np.searchsorted((10, 100), samples, "right")], marker, dashes)


def use() -> AbstractContextManager[None]:
    """The project's matplotlib style for the time of a `with` block."""
    import matplotlib.style

    return matplotlib.style.context(["default", str(STYLE_FILE)])
