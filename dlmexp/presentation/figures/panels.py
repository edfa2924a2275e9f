"""What a figure is made of: its panels, their lines and the looks of these; and all figures by id.

To add one: a `Figure` of `Panel`s in `declared.py`, or `FIGURES.add(id, figure)` in a plugin. What
to draw, what is missing and what computes it follow from the declaration.

A method looks the same wherever it appears, and like no other thing. The methods' colours are Okabe
and Ito's, distinguishable for colour-blind readers. An estimator has one hue; its lightness shows
the samples S. Markers tell lines apart in grey."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.presentation import labels
from dlmexp.presentation.labels import estimator_label, method_label

COLUMN, TEXT, PAGE = 3.25, 6.75, 9.2  # inches: the widths of AISTATS, and the tallest figure
GREY, INK = "#9a9a9a", "#333333"
Dashes = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Look:
    """How a line is drawn, and its entry in the legend."""

    label: str
    colour: str
    marker: str
    dashes: Dashes = "-"


METHOD_LOOKS = {
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
ESTIMATOR_LOOKS: dict[str, tuple[str, Dashes, tuple[str, str, str]]] = {
    "bmc": ("<", "-", ("#BBA6E6", "#7F52D0", "#46199E")),
    "ups": (">", "-", ("#C2BD33", "#8E8A00", "#474500")),
    "smooth_bmc": ("p", "--", ("#93D6D2", "#1FA19B", "#006A66")),
}
EFFECT_LOOKS = {  # of the figure `anatomy`
    "whole": Look("DLM − ELBO", "#6B6B6B", ""),
    "beta": Look("= choosing β", "#0072B2", ""),
    "objective": Look("+ objective (log loss)", "#D55E00", ""),
    "coordinates": Look("change if q is unwhitened", "#009E73", ""),
    "noise": Look("change if noise > 0.01", "#E69F00", ""),
    "fitc": Look("FITC − ELBO", "#CC79A7", ""),
}


def method_look(method: str) -> Look:
    """The look of a method; one that is not ours is dark grey, labelled with its name."""
    return METHOD_LOOKS.get(method, Look(method_label(method), "#555555", "H", "-."))


def estimator_look(estimator: str, samples: int | None) -> Look:
    """The look of an estimator at S samples: `exact`, `bMC-10`, `uPS-1`, `smooth-bMC-100`."""
    label = estimator_label(estimator, samples)
    if estimator not in ESTIMATOR_LOOKS:
        return Look(label, "#8C6239", "h")
    marker, dashes, shades = ESTIMATOR_LOOKS[estimator]
    return Look(
        label,
        shades[1 if samples is None else np.searchsorted((10, 100), samples, "right")],
        marker,
        dashes,
    )


def paper_style() -> AbstractContextManager[None]:
    """The project's matplotlib style for the time of a `with` block."""
    import matplotlib.style

    return matplotlib.style.context(["default", str(Path(__file__).with_name("dlmexp.mplstyle"))])


Kind = Literal["sizes", "betas", "curve", "histogram", "reliability", "effects"]
STATISTICS = {
    "condition_i": "(i) g·G/|G|²",
    "condition_ii": "(ii) |g|²/|G|²",
    "error": "|g − G|²/|G|²",
}
LOSSES = ("nll", "mse", "error", "mre")
METRICS: dict[str, tuple[str, ...]] = {
    "sizes": tuple(labels.METRICS),
    "betas": (*LOSSES, "excess_nll"),
    "curve": LOSSES,
    "histogram": tuple(STATISTICS),
    "reliability": ("reliability",),
    "effects": LOSSES,
}
# What a line shows of a method other than its usual result: words, dashes and marker.
VERSIONS: dict[str, tuple[str, Dashes, str]] = {
    "recalibrated": ("recalibrated on validation", "--", "x"),
    "train": ("trained on validation too", ":", "+"),
    "short": ("β ≥ 0.01", "--", ""),
}
SHORTEST = 0.01  # the smallest beta that the version `short` selects from, as the paper's grids do
PREDICTIONS = (
    "predictions"  # the figure of one trained model, which is not made of panels of the table
)


@dataclass(frozen=True)
class Line:
    """One line of a panel: a method, with an estimator, and at one beta where beta is not
    selected."""

    method: str
    estimator: str = "exact"
    samples: int | None = None
    beta: float | None = None
    names: Literal["method", "estimator", "beta", "both"] = (
        "method"  # what tells the lines of a panel apart
    )
    effect: str = ""  # the effect that is shown, in a panel of effects
    role: str = ""  # of the rows; '': the role that panels of this kind are drawn from
    version: str = ""  # a key of VERSIONS; '': the method as it is

    @property
    def look(self) -> Look:
        if self.effect:
            return EFFECT_LOOKS[self.effect]
        if self.names == "estimator":
            return estimator_look(self.estimator, self.samples)
        # At beta = 1 the beta-ELBO is the ELBO.
        look = method_look(
            "elbo" if self.method == "beta_elbo" and self.beta == 1.0 else self.method
        )
        if self.version:
            words, dashes, marker = VERSIONS[self.version]
            return replace(
                look, label=f"{look.label}, {words}", dashes=dashes, marker=marker or look.marker
            )
        if self.names == "both":
            estimator = estimator_look(self.estimator, self.samples)
            return replace(look, label=f"{look.label}, {estimator.label}", dashes=estimator.dashes)
        return look

    @property
    def label(self) -> str:
        return f"{self.look.label}, β = {self.beta:g}" if self.names == "beta" else self.look.label


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    sizes: metric against `x`, beta selected. betas: metric against beta at size `n`. curve: metric
    in training. histogram: a statistic of gradient draws. reliability: observed minus predicted
    shares of class 1, beta selected, at one size. effects: what makes up a difference between
    methods, beta selected (`dlmexp.presentation.figures.stats`)."""

    kind: Kind
    dataset: str
    metric: str
    lines: tuple[Line, ...]
    experiment: str  # name in conf/experiment of what computes this panel; '' on a user's own data
    n: str | None = (
        None  # a size as it is asked for, such as '5%'; None: the size with the most rows
    )
    # sizes: n, M, samples, or a column whose mean is a point for each M; curves: iterations or
    # epochs
    x: str = "n"
    title: str = ""  # shown after the name of the dataset
    log: bool = False  # the metric on a log axis
    median: bool = False  # median and quartiles in place of mean and interval
    column: int | None = None  # where in its row; None: the next place that is free

    def __post_init__(self) -> None:
        if self.metric not in METRICS.get(self.kind, ()):
            known = "; ".join(f"{kind}: {', '.join(metrics)}" for kind, metrics in METRICS.items())
            raise UserError(
                f"there is no panel '{self.kind}' of '{self.metric}' on {self.dataset}; there are {known}"
            )

    @property
    def against(self) -> str:
        """The name of what lies on the x-axis."""
        usual = {
            "betas": "beta",
            "histogram": "samples",
            "reliability": "predicted",
            "effects": "effect",
        }
        return usual.get(
            self.kind, "iterations" if self.kind == "curve" and self.x != "epochs" else self.x
        )


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, `columns` in a row; `caption` in at most two sentences."""

    id: str
    panels: tuple[Panel, ...]
    columns: int
    caption: str
    title: str = ""
    legend: Literal["figure", "row"] = "figure"  # above all panels, or above each row
    needs_all: bool = False  # drawn unasked only where each of its datasets has results


FIGURES: Registry[Figure] = Registry("figure", "dlmexp.presentation.figures.declared")


def methods(*names: str, **how: str | int) -> tuple[Line, ...]:
    """One line per method; `how`: other fields that all of them have."""
    return tuple(Line(name, **how) for name in names)  # pyright: ignore[reportArgumentType]


def estimators(
    method: str, beta: float, *pairs: tuple[str, Iterable[int | None]]
) -> tuple[Line, ...]:
    """One line per estimator and number of samples (None where it takes none), for one method at
    one beta."""
    several = ((name, samples) for name, counts in pairs for samples in counts)
    return tuple(Line(method, name, samples, beta, names="estimator") for name, samples in several)
