"""Define figures, which are made of panels with lines, and the registry of all figures.

To add a figure, declare a `Figure` of `Panel`s and register it. A plugin calls
`FIGURES.add(id, figure)`; the figures of this package are functions under `@declare` in the folder
`declared`. From the declaration, the program chooses the rows of the results table to draw, finds
out what was not run, and prints the commands that compute it. A new kind of panel is a `PanelKind`
in `PANEL_KINDS`.
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
    """How the line of another version of a method's results differs from the usual line.

    Attributes:
        words: The words that the legend adds to the name of the method.
        dashes: The dashes of the line.
        marker: The marker of the line; '' means the marker of the method.
    """

    words: str
    dashes: Dashes
    marker: str


# The versions by their name, which `Line.version` refers to.
VERSIONS = {
    "recalibrated": Version("recalibrated on validation", "--", "x"),
    "train": Version("trained on validation too", ":", "+"),
    "short": Version("β ≥ 0.01", "--", ""),
}
# The smallest beta of the paper's grids. Our grids go below it; the version `short` selects beta as
# if they did not.
SHORT_GRID_MIN = 0.01
# Of several lines that would look the same, the first keeps its dashes and its marker. Each further
# line gets the next of these dashes, and the next of these markers.
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":")
MORE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Ids of figures that are not made of panels, and so are not in `FIGURES`.
PREDICTIONS = "predictions"  # of one trained model on its test rows
IMPORTANCE = "importance"  # of each column of a user's own table, for one trained model
MODEL_FIGURES = (PREDICTIONS, IMPORTANCE)
RANKS = "ranks"
GAINS = "gains"
COST = "cost"
LEADERBOARD_FIGURES = (RANKS, GAINS, COST)  # over all datasets (module `leaderboard`)
VERDICTS_FIGURE = "claims"  # verdicts on the paper's claims, over all datasets (module `verdicts`)


@dataclass(frozen=True)
class Line:
    """One line of a panel: the results of a method with an estimator.

    Attributes:
        method: The method.
        estimator: The estimator of the objective's expectations.
        samples: The number of samples of the estimator; None if it takes none.
        beta: The beta of all points; None means the beta that was selected for each repetition.
        names: What distinguishes the line from the others in the legend: its `method`; its
            `estimator`; its method and `beta`; or `both` method and estimator.
        effect: In a panel of effects, the effect that is shown, a key of `EFFECT_LOOKS`; else ''.
        role: The role of the rows, a value of the column `role` of the results table; '' means the
            role of the kind of panel (`PanelKind.role`).
        version: A key of `VERSIONS`; '' means the usual result of the method.
        place: The number of earlier lines of the panel that would look the same. Lines with
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
        """The name of the line in the notes of a figure (module `notes`)."""
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
    """Return a look with the dashes and the marker of a place (`Line.place`).

    Place 0 leaves the look unchanged. Each further place takes the next of `DASHES` and of
    `MORE_MARKERS`.
    """
    if place == 0:
        return look
    # The numbers go round: after the last dashes or marker comes the first.
    dashes_number = (DASHES.index(look.dashes) + place) % len(DASHES)
    marker_number = (place - 1) % len(MORE_MARKERS)
    dashes = DASHES[dashes_number]
    marker = MORE_MARKERS[marker_number]
    return replace(look, dashes=dashes, marker=marker)


def distinguishable(lines: Iterable["Line"]) -> tuple["Line", ...]:
    """Return the lines of a panel, changed so that no two of them look the same.

    Where one method has lines with several estimators, their names get the estimator. Lines that
    would still look the same get different places. Lines of a version need no place: the version
    has dashes and a marker of its own.
    """
    lines = tuple(lines)
    distinct: list[Line] = []
    earlier_lines = Counter[tuple[str, ...]]()  # number of lines by colour, marker and dashes
    for line in lines:
        if _needs_estimator(line, lines):
            line = replace(line, names="both")
        if line.names == "both" and not line.version:
            look = replace(line, place=0).look
            appearance = (look.colour, look.marker, look.dashes)
            line = replace(line, place=earlier_lines[appearance])
            earlier_lines[appearance] += 1
        distinct.append(line)
    return tuple(distinct)


def _needs_estimator(line: Line, lines: Iterable[Line]) -> bool:
    """Return whether the name of a line needs the estimator.

    It does if the line names only its method, and looks like a line with another estimator.
    """
    if line.names != "method" or line.effect:
        return False
    for rival in lines:
        has_other_estimator = (rival.estimator, rival.samples) != (line.estimator, line.samples)
        if has_other_estimator and rival.look == line.look:
            return True
    return False


@dataclass(frozen=True)
class Panel:
    """One pair of axes, on one dataset.

    The kind says what a panel shows, at the selected beta unless a line fixes beta. Plugins may add
    kinds to these (`PANEL_KINDS`):

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
        x: What lies on the x-axis. In panels of kind `sizes`: n, M, samples, or any other column of
            the results table. With such a column there is a point for each M, at the mean of the
            column over repetitions. In curves: iterations or epochs.
        title: Words that follow the dataset in the title.
        log: Whether the metric has a log axis.
        median: Whether median and quartiles are drawn instead of mean and interval.
        column: The column of the figure, from 0; None means the next free one.

    Raises:
        UserError: There is no such kind of panel, or none of this metric.
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
        # The dataclass is frozen, which prevents a plain assignment.
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
    def x_name(self) -> str:
        """The name of what lies on the x-axis, also in kinds of panels that fix it."""
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
        legend: `figure` for one legend above all panels, `row` for a legend above each row.
        needs_all: Whether the figure needs results on all of its datasets. If some have none, it is
            drawn only for users who name it.
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
    """Return a line for each method; `fields` are further fields of `Line` that all lines share."""
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
