"""The declaration of a figure: its panels and their lines. What to draw and what is missing follow from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dlmexp.figures import style
from dlmexp.figures.style import Look

Kind = Literal["sizes", "betas", "curve", "histogram", "reliability", "effects"]


@dataclass(frozen=True)
class Line:
    """One line of a panel: a method, with an estimator, and at one beta where beta is not selected."""

    method: str
    estimator: str = "exact"
    samples: int | None = None
    beta: float | None = None
    names: Literal["method", "estimator", "beta", "both", "effect"] = (
        "method"  # what distinguishes the lines of the panel
    )
    effect: str = ""  # the effect that is shown, where the panel shows effects
    part: str = ""  # of the records; '': the one that panels of this kind are drawn from

    @property
    def look(self) -> Look:
        if self.names == "effect":
            return style.EFFECTS[self.effect]
        if self.names == "estimator":
            return style.of_estimator(self.estimator, self.samples)
        if self.names == "beta" and self.beta is not None:
            return style.at_beta(style.of_method_by_beta(self.method, self.beta), self.beta)
        look = style.of_method(self.method)
        if self.names == "both":
            estimator = style.of_estimator(self.estimator, self.samples)
            return replace(look, label=f"{look.label}, {estimator.label}", dashes=estimator.dashes)
        return look

    @property
    def entry(self) -> str:
        """Its name in the legend, where dashes and fill show beta."""
        return style.of_method_by_beta(self.method, self.beta).label if self.names == "beta" else self.look.label


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    sizes: metric against n, beta selected. betas: metric against beta at size `n`. curve: metric against `x`.
    histogram: a statistic of gradient draws, `metric` names the array. reliability: what was observed against what was
    predicted, beta selected, at size `n`: `coverage` of central intervals, or shares of class 1 in bins of probability
    (`reliability`). effects: what makes up a difference between methods, beta selected (`dlmexp.figures.effects`).
    """

    kind: Kind
    dataset: str
    metric: str
    lines: tuple[Line, ...]
    experiment: str  # name in conf/experiment of what computes this panel; '' on a user's own data
    n: str | None = None  # a share of the training pool such as '5%'; None: the size with the most records
    x: Literal["epochs", "iterations"] = "iterations"
    title: str = ""  # shown after the name of the dataset
    log: bool = False  # the metric on a log axis, whatever its range
    height: float | None = None  # of a curve's frame, in units of the metric; None: whatever the curves need
    both: bool = False  # the experiment runs whitened and unwhitened (binary and count data)
    command: str = ""  # what computes this panel, where no experiment of ours does: on a user's own data

    @property
    def has_differences(self) -> bool:
        """Whether axes below the panel show each line minus the ELBO: the NLL against n where there is an ELBO."""
        return self.kind == "sizes" and self.metric == "nll" and any(line.method == "elbo" for line in self.lines)

    def on(self, dataset: str) -> "Panel":
        """The same panel for another dataset."""
        return replace(self, dataset=dataset)


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, `columns` in a row."""

    id: str
    panels: tuple[Panel, ...]
    columns: int
    caption: str
    of_paper: str = ""  # where the paper shows it

    @property
    def both(self) -> bool:
        """Whether all panels can be drawn for either parameterisation of q."""
        return all(panel.both for panel in self.panels)


def methods(*names: str, estimator: str = "exact", samples: int | None = None) -> tuple[Line, ...]:
    """One line per method."""
    return tuple(Line(name, estimator, samples) for name in names)


def estimators(method: str, beta: float, *pairs: tuple[str, Iterable[int]]) -> tuple[Line, ...]:
    """One line per estimator and number of samples, for one method at one beta; no numbers of samples: one line."""
    return tuple(
        Line(method, name, samples, beta, names="estimator")
        for name, several in pairs
        for samples in several or (None,)
    )


def at_betas(betas: Iterable[float], *names: str) -> tuple[Line, ...]:
    """One line per method and beta."""
    return tuple(Line(name, beta=beta, names="beta") for name in names for beta in betas)
