"""Define figures, which are made of panels with lines, and the registry of all figures.

To add a figure, declare a `Figure` of `Panel`s and register it. A plugin calls
`FIGURES.add(id, figure)`; our own figures are functions under `@declare` in the folder `declared`.
The declaration is enough to choose the rows, to find out what was not run, and to print the command
that computes it. A new kind of panel is a `PanelKind` in `PANEL_KINDS`.
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
    """How the line of a variant of a result differs from the usual line of its method.

    Attributes:
        words: What the legend adds to the name of the method.
        dashes: The dashes of the line.
        marker: The marker of the line; '' means that of the method.
    """

    words: str
    dashes: Dashes
    marker: str


VERSIONS = {
    "recalibrated": Version("recalibrated on validation", "--", "x"),
    "train": Version("trained on validation too", ":", "+"),
    "short": Version("β ≥ 0.01", "--", ""),
}
# The smallest beta of the paper's grids. The version `short` selects among those that are not less.
SHORT_GRID_MIN = 0.01
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":")
# Markers for the second, third ... of several lines that would look the same.
MORE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Ids of figures that are not made of panels, and so are not in `FIGURES`.
PREDICTIONS = "predictions"  # of one trained model on its test rows
IMPORTANCE = "importance"  # of each column of a user's own table to one trained model
MODEL_FIGURES = (PREDICTIONS, IMPORTANCE)
RANKS = "ranks"
GAINS = "gains"
COST = "cost"
LEADERBOARD_FIGURES = (RANKS, GAINS, COST)  # over all datasets (module `leaderboard`)
VERDICTS_FIGURE = "claims"  # over all datasets too (module `verdicts`)


@dataclass(frozen=True)
class Line:
    """One line of a panel: the results of a method with an estimator.

    Attributes:
        method: The method.
        estimator: The estimator of the objective's expectations.
        samples: The number of samples of the estimator; None if it takes none.
        beta: The beta of all points; None means the beta that was selected for each repetition.
        names: What the legend names: that in which the lines of a panel differ.
        effect: In a panel of effects, the effect that is shown; else ''.
        role: The role of the rows; '' means the role that panels of this kind are drawn from.
        version: A key of `VERSIONS`; '' means the usual result of the method.
        place: 0, or the number of earlier lines of the panel that would look the same. Lines with
            different places differ in dashes and marker.
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
        # The beta-ELBO at beta = 1 is the ELBO.
        is_elbo = self.method == "beta_elbo" and self.beta == 1.0
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
    """Return the look of a method's line in another version."""
    return replace(
        look,
        label=f"{look.label}, {version.words}",
        dashes=version.dashes,
        marker=version.marker or look.marker,
    )


def _look_in_place(look: Look, place: int) -> Look:
    """Return a look that differs from those of other places in dashes and marker.

    Dashes and markers are used in turn, from the dashes of the look on.
    """
    if place == 0:
        return look
    dashes = DASHES[(DASHES.index(look.dashes) + place) % len(DASHES)]
    marker = MORE_MARKERS[(place - 1) % len(MORE_MARKERS)]
    return replace(look, dashes=dashes, marker=marker)


def distinguishable(lines: Iterable["Line"]) -> tuple["Line", ...]:
    """Return the lines of a panel, changed so that no two of them look the same.

    Lines of one method with several estimators get the estimator into their name, and a place that
    distinguishes those that would still look the same.
    """
    lines = tuple(lines)
    distinct: list[Line] = []
    earlier_lines = Counter[tuple[str, ...]]()  # number of lines by colour, marker and dashes
    for line in lines:
        if _needs_estimator(line, lines):
            line = replace(line, names="both")
        if line.names == "both" and not line.version:
            look = replace(line, place=0).look
            key = (look.colour, look.marker, look.dashes)
            line = replace(line, place=earlier_lines[key])
            earlier_lines[key] += 1
        distinct.append(line)
    return tuple(distinct)


def _needs_estimator(line: Line, lines: Iterable[Line]) -> bool:
    """Return whether a line that names only its method looks like one of another estimator."""
    if line.names != "method" or line.effect:
        return False
    for other in lines:
        has_other_estimator = (other.estimator, other.samples) != (line.estimator, line.samples)
        if has_other_estimator and other.look == line.look:
            return True
    return False


@dataclass(frozen=True)
class Panel:
    """One pair of axes, on one dataset.

    Its kind says what it shows; beta is the selected one unless a line fixes it. Plugins may add
    kinds (`PANEL_KINDS`).

    - `sizes`: a metric against `x`.
    - `forest`: differences to the ELBO, a row for each method.
    - `betas`: a metric against beta, at one training size.
    - `curve`: a metric in the course of training.
    - `histogram`: a statistic of gradient draws.
    - `reliability`: observed minus predicted shares of class 1, at one training size.
    - `effects`: the parts of a difference between methods.

    Attributes:
        kind: The kind of panel, a name in `PANEL_KINDS`.
        dataset: The dataset.
        metric: The metric that is shown.
        lines: The lines.
        experiment: The experiment in conf/experiment that computes the panel; '' on a user's own
            data.
        n: The training size as it is written in a command, such as '5%'; None means the size with
            the most rows.
        x: What lies on the x-axis. In panels of sizes: n, M, samples, or another column, whose
            mean over repetitions is the position of the point for each M. In curves: iterations or
            epochs.
        title: Words that follow the dataset in the title.
        log: Whether the metric has a log axis.
        median: Whether median and quartiles are drawn instead of mean and interval.
        column: The column of the figure, from 0; None means the next free one.

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
            raise UserError(
                f"there is no panel '{self.kind}' of '{self.metric}' on {self.dataset}; "
                f"there are {_metrics_by_kind()}"
            )

    @property
    def panel_kind(self) -> PanelKind:
        """The properties that all panels of this kind share."""
        return PANEL_KINDS[self.kind]

    @property
    def against(self) -> str:
        """The name of what lies on the x-axis."""
        if self.kind == "curve":
            return "epochs" if self.x == "epochs" else "iterations"
        return self.panel_kind.x or self.x


def _metrics_by_kind() -> str:
    """Return `KIND: METRIC, METRIC; KIND: ...`, for a message."""
    texts: list[str] = []
    for name in PANEL_KINDS:
        metrics = ", ".join(PANEL_KINDS[name].metrics)
        texts.append(f"{name}: {metrics}")
    return "; ".join(texts)


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, with a caption of at most two sentences.

    Attributes:
        id: The name of the figure in commands and files.
        panels: The panels.
        columns: The number of panels in a row.
        caption: The caption.
        title: The title of the caption file; '' means the id.
        legend: Whether one legend stands above all panels, or one above each row.
        needs_all: Whether a user who names no figures gets this one only if each of its datasets
            has results.
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
    """Return a line for each method; `fields` are further fields that all these lines share."""
    return tuple(Line(name, **fields) for name in names)  # pyright: ignore[reportArgumentType]


def estimators(
    method: str, beta: float, *pairs: tuple[str, Iterable[int | None]]
) -> tuple[Line, ...]:
    """Return a line for each estimator and number of samples, for one method at one beta.

    Args:
        method: The method of all lines.
        beta: The beta of all lines.
        pairs: Estimators with their numbers of samples; the number is None for an estimator that
            takes no samples.
    """
    lines: list[Line] = []
    for estimator, counts in pairs:
        lines += [Line(method, estimator, count, beta, names="estimator") for count in counts]
    return tuple(lines)
