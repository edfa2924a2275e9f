"""What a figure is made of: panels and their lines; and all figures by id.

To add a figure, declare a `Figure` of `Panel`s and register it: `FIGURES.add(id, figure)` in a
plugin, a function under `@declare` in `declared`. What to draw, what is missing and the command
that computes it follow from the declaration. A new kind of panel is a `PanelKind` in `PANEL_KINDS`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.presentation.figures.kinds.kind import PANEL_KINDS, PanelKind
from dlmexp.presentation.figures.looks import (
    EFFECT_LOOKS,
    Dashes,
    Look,
    estimator_look,
    method_look,
)


@dataclass(frozen=True)
class Version:
    """How a line differs that shows something other than the usual result of its method."""

    words: str
    dashes: Dashes
    marker: str  # '': that of the method


VERSIONS = {
    "recalibrated": Version("recalibrated on validation", "--", "x"),
    "train": Version("trained on validation too", ":", "+"),
    "short": Version("β ≥ 0.01", "--", ""),
}
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":")
MORE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # of further lines that would look alike
SHORTEST = 0.01  # the smallest beta that the version `short` selects from, as the paper's grids do
# The figure of one trained model, which is not made of panels of the table.
PREDICTIONS = "predictions"
# How much each column of a user's own table matters to one trained model.
IMPORTANCE = "importance"
OF_MODELS = (PREDICTIONS, IMPORTANCE)
# Figures of leaderboards (`leaderboard`), which are over all datasets.
RANKS = "ranks"
GAINS = "gains"
COST = "cost"
OF_BOARDS = (RANKS, GAINS, COST)
VERDICTS = "claims"  # the figure of verdicts (`verdicts`), which is over all datasets as well


@dataclass(frozen=True)
class Line:
    """One line of a panel.

    It shows a method with an estimator, at one beta where beta is not selected.

    Attributes:
        names: What tells the lines of a panel apart, which is named in the legend.
        effect: The effect that is shown, in a panel of effects.
        role: The role of the rows; '': the one that panels of this kind are drawn from.
        version: A key of `VERSIONS`; '': the usual result of the method.
        place: The number of the line among those of a panel that would look alike.
    """

    method: str
    estimator: str = "exact"
    samples: int | None = None
    beta: float | None = None
    names: Literal["method", "estimator", "beta", "both"] = "method"
    effect: str = ""
    role: str = ""
    version: str = ""
    place: int = 0

    @property
    def look(self) -> Look:
        """How the line is drawn."""
        if self.effect:
            return EFFECT_LOOKS[self.effect]
        if self.names == "estimator":
            return estimator_look(self.estimator, self.samples)
        is_elbo = self.method == "beta_elbo" and self.beta == 1.0  # at beta = 1 they are equal
        look = method_look("elbo" if is_elbo else self.method)
        if self.version:
            return _look_of_version(look, VERSIONS[self.version])
        if self.names == "both":
            return self._look_with_estimator(look)
        return look

    def _look_with_estimator(self, look: Look) -> Look:
        """Return the look of a method with the dashes and the name of the estimator."""
        estimator = estimator_look(self.estimator, self.samples)
        label = f"{look.label}, {estimator.label}"
        combined = replace(look, label=label, dashes=estimator.dashes)
        return _look_in_place(combined, self.place)

    @property
    def label(self) -> str:
        """The name of the line in notes."""
        if self.names == "beta":
            return f"{self.look.label}, β = {self.beta:g}"
        return self.look.label


def _look_of_version(look: Look, version: Version) -> Look:
    return replace(
        look,
        label=f"{look.label}, {version.words}",
        dashes=version.dashes,
        marker=version.marker or look.marker,
    )


def _look_in_place(look: Look, place: int) -> Look:
    """Return a look that differs from those of other places in dashes and marker."""
    if place == 0:
        return look
    number = DASHES.index(look.dashes) + place
    dashes = DASHES[number % len(DASHES)]
    marker = MORE_MARKERS[(place - 1) % len(MORE_MARKERS)]
    return replace(look, dashes=dashes, marker=marker)


def distinguishable(lines: Iterable["Line"]) -> tuple["Line", ...]:
    """Return lines of which those of one method name their estimator and look different."""
    lines = tuple(lines)
    distinct: list[Line] = []
    lines_with_look = Counter[tuple[str, ...]]()
    for line in lines:
        if _needs_estimator(line, lines):
            line = replace(line, names="both")
        if line.names == "both" and not line.version:
            look = replace(line, place=0).look
            key = (look.colour, look.marker, look.dashes)
            line = replace(line, place=lines_with_look[key])
            lines_with_look[key] += 1
        distinct.append(line)
    return tuple(distinct)


def _needs_estimator(line: Line, lines: Iterable[Line]) -> bool:
    """Return whether a line that names its method looks like one of another estimator."""
    if line.names != "method" or line.effect:
        return False
    alike = [other for other in lines if other.look == line.look]
    estimators = {(other.estimator, other.samples) for other in alike}
    return len(estimators) > 1


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Kinds: `sizes`: metric against `x`, beta selected. `betas`: metric against beta at size `n`.
    `curve`: metric in training. `histogram`: a statistic of gradient draws. `reliability`: observed
    minus predicted shares of class 1, beta selected, at one size. `effects`: what makes up a
    difference between methods, beta selected. Plugins may add kinds (`PANEL_KINDS`).

    Attributes:
        experiment: Name in conf/experiment of what computes the panel; '' on a user's own data.
        n: A size as it is written in a command, such as '5%'; None: the size with the most rows.
        x: For sizes: n, M, samples, or a column of which the mean is a point for each M. For
            curves: iterations or epochs.
        title: Shown after the name of the dataset.
        log: Whether the metric has a log axis.
        median: Median and quartiles in place of mean and interval.
        column: The place in its row; None: the next free one.

    Raises:
        UserError: There is no such kind, or it has no panels of this metric.
    """

    kind: str
    dataset: str
    metric: str
    lines: tuple[Line, ...]
    experiment: str
    n: str | None = None
    x: str = "n"
    title: str = ""
    log: bool = False
    median: bool = False
    column: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", distinguishable(self.lines))
        if self.kind not in PANEL_KINDS or self.metric not in PANEL_KINDS[self.kind].metrics:
            known = [f"{kind}: {', '.join(PANEL_KINDS[kind].metrics)}" for kind in PANEL_KINDS]
            raise UserError(
                f"there is no panel '{self.kind}' of '{self.metric}' on {self.dataset}; "
                f"there are {'; '.join(known)}"
            )

    @property
    def facts(self) -> PanelKind:
        """The facts that panels of this kind share."""
        return PANEL_KINDS[self.kind]

    @property
    def against(self) -> str:
        """The name of what lies on the x-axis."""
        if self.kind == "curve":
            return "epochs" if self.x == "epochs" else "iterations"
        return self.facts.x or self.x


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, with a caption of at most two sentences.

    Attributes:
        columns: Number of panels in a row.
        legend: Where legends stand: above all panels, or above each row.
        needs_all: Whether the figure is drawn only where each of its datasets has results, unless
            it is named.
    """

    id: str
    panels: tuple[Panel, ...]
    columns: int
    caption: str
    title: str = ""
    legend: Literal["figure", "row"] = "figure"
    needs_all: bool = False


FIGURES: Registry[Figure] = Registry("figure", "dlmexp.presentation.figures.declared")


def declare(make_figure: Callable[[], Figure]) -> Callable[[], Figure]:
    """Register the figure that a function returns, under its id."""
    figure = make_figure()
    FIGURES.add(figure.id, figure)
    return make_figure


def methods(*names: str, **fields: str | int) -> tuple[Line, ...]:
    """Return a line for each method; `fields` are other fields, which all lines have."""
    return tuple(Line(name, **fields) for name in names)  # pyright: ignore[reportArgumentType]


def estimators(
    method: str, beta: float, *pairs: tuple[str, Iterable[int | None]]
) -> tuple[Line, ...]:
    """Return a line for each estimator and number of samples, for one method at one beta.

    Args:
        method: The method of all lines.
        beta: Its beta.
        pairs: Estimators with their numbers of samples; None where one takes none.
    """
    lines: list[Line] = []
    for estimator, counts in pairs:
        lines += [Line(method, estimator, count, beta, names="estimator") for count in counts]
    return tuple(lines)
