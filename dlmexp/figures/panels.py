"""The declaration of a figure: its panels and their lines. What to draw and what is missing follow from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dlmexp import labels
from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.style import Look

Kind = Literal["sizes", "betas", "curve", "histogram", "reliability", "effects"]
STATISTICS = {"condition_i": "(i) g·G/|G|²", "condition_ii": "(ii) |g|²/|G|²", "error": "|g − G|²/|G|²"}
LOSSES = ("nll", "mse", "error", "mre")
METRICS: dict[str, tuple[str, ...]] = {
    "sizes": tuple(labels.METRICS),
    "betas": LOSSES,
    "curve": LOSSES,
    "histogram": tuple(STATISTICS),
    "reliability": ("reliability",),
    "effects": LOSSES,
}


@dataclass(frozen=True)
class Line:
    """One line of a panel: a method, with an estimator, and at one beta where beta is not selected."""

    method: str
    estimator: str = "exact"
    samples: int | None = None
    beta: float | None = None
    names: Literal["method", "estimator", "beta", "both", "effect"] = "method"  # what tells the lines of a panel apart
    effect: str = ""  # the effect that is shown, in a panel of effects
    role: str = ""  # of the rows; '': the role that panels of this kind are drawn from

    @property
    def look(self) -> Look:
        if self.names == "effect":
            return style.EFFECTS[self.effect]
        if self.names == "estimator":
            return style.estimator_look(self.estimator, self.samples)
        # At beta = 1 the beta-ELBO is the ELBO.
        look = style.method_look("elbo" if self.method == "beta_elbo" and self.beta == 1.0 else self.method)
        if self.names == "both":
            estimator = style.estimator_look(self.estimator, self.samples)
            return replace(look, label=f"{look.label}, {estimator.label}", dashes=estimator.dashes)
        return look

    @property
    def end_label(self) -> str:
        """What is written at the end of a learning curve."""
        return f"β = {self.beta:g}" if self.names == "beta" else self.look.label

    @property
    def label(self) -> str:
        return f"{self.look.label}, β = {self.beta:g}" if self.names == "beta" else self.look.label


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    sizes: metric against n, beta selected. betas: metric against beta at size `n`. curve: metric against `x`.
    histogram: a statistic of gradient draws. reliability: observed minus predicted shares of class 1, beta selected, at
    one size. effects: what makes up a difference between methods, beta selected (`dlmexp.figures.effects`).
    """

    kind: Kind
    dataset: str
    metric: str
    lines: tuple[Line, ...]
    experiment: str  # name in conf/experiment of what computes this panel; '' on a user's own data
    n: str | None = None  # a size as it is asked for, such as '5%'; None: the size with the most rows
    x: Literal["epochs", "iterations"] = "iterations"
    title: str = ""  # shown after the name of the dataset
    log: bool = False  # the metric on a log axis
    median: bool = False  # median and quartiles in place of mean and interval
    column: int | None = None  # where in its row; None: the next place that is free

    @property
    def has_differences(self) -> bool:
        """Whether axes below the panel show each line minus the ELBO: a loss against n where there is an ELBO."""
        return self.kind == "sizes" and self.metric in LOSSES and any(line.method == "elbo" for line in self.lines)

    def on(self, dataset: str) -> "Panel":
        """The same panel for another dataset."""
        return replace(self, dataset=dataset)


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, `columns` in a row; `caption` in at most two sentences."""

    id: str
    panels: tuple[Panel, ...]
    columns: int
    caption: str
    title: str = ""
    of_paper: str = ""  # where the paper shows it
    legend: Literal["figure", "row"] = "figure"  # above all panels, or above each row


def check(figure: Figure) -> None:
    """UserError for a figure with a panel of an unknown kind or metric, or without lines."""
    if not figure.panels or figure.columns < 1:
        raise UserError(f"figure '{figure.id}': give it a panel, and a column at least")
    for panel in figure.panels:
        if panel.kind not in get_args(Kind):
            raise UserError(
                f"figure '{figure.id}': no panel is of kind '{panel.kind}': {nearest(panel.kind, [*get_args(Kind)])}"
            )
        if panel.metric not in METRICS[panel.kind]:
            valid = nearest(panel.metric, [*METRICS[panel.kind]])
            raise UserError(f"figure '{figure.id}': a panel '{panel.kind}' has no metric '{panel.metric}': {valid}")
        if not panel.lines:
            raise UserError(f"figure '{figure.id}': its panel of {panel.dataset} has no lines")


def check_methods(figure: Figure, known: Iterable[str]) -> None:
    """UserError for a figure with a method that neither `conf/` nor the results have."""
    valid = {*known}
    for name in dict.fromkeys(line.method for panel in figure.panels for line in panel.lines):
        if name not in valid:
            raise UserError(f"figure '{figure.id}': there is no method '{name}': {nearest(name, sorted(valid))}")


def methods(*names: str, estimator: str = "exact", samples: int | None = None) -> tuple[Line, ...]:
    """One line per method."""
    return tuple(Line(name, estimator, samples) for name in names)


def estimators(method: str, beta: float, *pairs: tuple[str, Iterable[int]]) -> tuple[Line, ...]:
    """One line per estimator and number of samples, for one method at one beta; no numbers of samples: one line."""
    return tuple(
        Line(method, name, samples, beta, names="estimator")
        for name, counts in pairs
        for samples in counts or (None,)
    )  # fmt: skip


def at_betas(betas: Iterable[float], *names: str) -> tuple[Line, ...]:
    """One line per method and beta."""
    return tuple(Line(name, beta=beta, names="beta") for name in names for beta in betas)
