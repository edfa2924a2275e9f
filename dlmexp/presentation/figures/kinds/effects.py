"""Measure and draw panels of effects, the parts of the difference between joint DLM and ELBO.

ELBO and joint DLM differ in two ways: in the objective (log loss in place of the ELBO's expected
log likelihood) and in beta (1 or selected). Two methods differ from the ELBO in only one of these
ways: beta-ELBO in beta, and PPGPR, which is the joint DLM with beta = 1, in the objective.

The change of the objective and the change of beta can be made in two orders. The effect of a change
is its mean over both orders. So the two effects add up to the whole difference in every repetition.

Further effects are the changes of the whole difference if q is trained unwhitened, or if the noise
has a lower bound. The difference between FITC and ELBO is shown for comparison.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import Tile
from dlmexp.presentation.figures.looks import EFFECT_LOOKS, GREY, INK, METHOD_LOOKS
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import half_width, statistics
from dlmexp.presentation.labels import metric_label

# The methods by their letters in `FORMULAS`.
METHOD_OF_LETTER = {"E": "elbo", "B": "beta_elbo", "F": "fitc", "P": "ppgpr", "D": "joint_log_dlm"}
# For each effect, the formula of its bar (`effect`), then those of its marks, each under the method
# whose marker it has (`MARKS`). A letter stands for the test metric of a method. The suffix u means
# that q was trained unwhitened, and f that the noise had a lower bound (a floor).
FORMULAS = {
    "whole": {"effect": "D - E"},
    "beta": {"effect": "(B - E + D - P) / 2", "elbo": "B - E", "joint_log_dlm": "D - P"},
    "objective": {"effect": "(P - E + D - B) / 2", "ppgpr": "P - E", "beta_elbo": "D - B"},
    "coordinates": {"effect": "Du - Eu - (D - E)", "elbo": "Eu - E", "joint_log_dlm": "Du - D"},
    "noise": {"effect": "Df - Ef - (D - E)", "elbo": "Ef - E", "joint_log_dlm": "Df - D"},
    "fitc": {"effect": "F - E"},
}
TERM = re.compile("[A-Z][uf]?")  # a letter of a method, with its suffix
# The meaning of each mark, by the method whose marker it has.
MARKS = {
    "elbo": "the change in ELBO alone",
    "joint_log_dlm": "the change in joint DLM alone",
    "ppgpr": "PPGPR − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}
ROWS = tuple(EFFECT_LOOKS)  # the effects from top to bottom
# The y-axis counts rows from 0 at the top. In its units:
END_OF_SUM = 2.5  # the line below the whole difference and the two effects that add up to it
BAR_HEIGHT = 0.34
BAR_SHIFT = 0.05  # from the middle of a row down to the middle of its bar
NUMBER_SHIFT = -0.33  # from the middle of a row up to the number of its bar
# The frame holds an end of an interval that is at most this many means away from the mean.
MAX_REACH_IN_FRAME = 3


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return the points of an effect: a row for the bar, then a row for each mark.

    A mark is left out if a method in its formula was not run. If a method in the formula of the bar
    was not run, there are no points at all.
    """
    points: list[pd.DataFrame] = []
    for part, formula in FORMULAS[line.effect].items():
        differences = _evaluate(formula, rows, panel.metric)
        if differences is None and part == "effect":
            return Series(line)
        if differences is None:
            continue
        point = statistics([len(points)], differences[:, None], attempted=len(differences))
        half = half_width(point)
        low = point["mean"] - half
        high = point["mean"] + half
        points.append(point.assign(low=low, high=high, effect=line.effect, part=part))
    return Series(line, pd.concat(points, ignore_index=True))


def _evaluate(formula: str, rows: pd.DataFrame, metric: str) -> np.ndarray | None:
    """Return the value of a formula in each repetition that has all of its terms.

    The result is None if one of the terms has no repetitions.
    """
    terms: dict[str, pd.Series] = {}
    for term in TERM.findall(formula):
        terms[term] = _metric_by_seed(rows, term, metric)
        if terms[term].empty:
            return None
    values = pd.concat(terms, axis="columns", join="inner")
    return np.asarray(values.eval(formula))


def _metric_by_seed(rows: pd.DataFrame, term: str, metric: str) -> pd.Series:
    """Return the test metric of a term by seed, at the selected beta; NaN if all candidates failed.

    Args:
        rows: Rows of all methods.
        term: The letter of a method, with the suffix u or f (`FORMULAS`).
        metric: The metric.
    """
    is_term = rows["method"] == METHOD_OF_LETTER[term[0]]
    is_term &= rows["noise_floor"].notna() == term.endswith("f")
    parameterisation = "unwhitened" if term.endswith("u") else "whitened"
    # A method with a closed form over q has no parameterisation, so it serves for both.
    is_term &= (rows["parameterisation"] == parameterisation) | (rows["form"] == "collapsed")
    by_seed = rows[is_term].drop_duplicates("seed").set_index("seed")
    return by_seed[f"test_{metric}"].astype(float).where(by_seed["status"] == "done")


def legend() -> list[Line2D]:
    """Return the entries of the legend: bars, intervals, numbers and marks."""
    bar = {"marker": "s", "color": GREY, "markersize": 5.5}
    number = {"marker": "$+.01$", "color": GREY, "markersize": 11, "markeredgewidth": 0.1}
    # The objects have no positions, as they only show how bars, lines and marks look.
    entries = [
        Line2D([], [], linestyle="none", label="effect (mean of both orders)", **bar),
        Line2D([], [], color=INK, linewidth=0.8, label="its 95 % interval"),
        Line2D([], [], linestyle="none", label="grey number: interval holds 0", **number),
    ]
    for method, meaning in MARKS.items():
        mark = Line2D([], [], linestyle="none", label=meaning, **_marker(method))
        entries.append(mark)
    return entries


def _marker(method: str) -> dict[str, Any]:
    """Return the style of a mark with the marker of a method, as arguments of matplotlib."""
    look = METHOD_LOOKS[method]
    return {
        "marker": look.marker,
        "markeredgecolor": look.colour,
        "markersize": 3.4,
        "markerfacecolor": "white",
        "markeredgewidth": 0.8,
    }


def draw(tiles: Sequence[Tile]) -> None:
    """Draw panels, each with a row for every effect. DLM gains where a bar points to the left."""
    for tile in tiles:
        framed = [0.0]
        for series in tile.lines:
            framed += _draw_line(tile.ax, series)
        _set_axes(tile, min(framed), max(framed))


def _draw_line(ax: Axes, series: Series) -> list[float]:
    """Draw the bar of an effect and its marks; return the values that the frame must hold."""
    effect = series.line.effect
    height = ROWS.index(effect) + BAR_SHIFT
    framed: list[float] = []
    points = series.points[np.isfinite(series.points["mean"])]
    for point in points[points["part"] == "effect"].itertuples():
        framed += _draw_bar(ax, height, EFFECT_LOOKS[effect].colour, point)
    marks = points[points["part"] != "effect"]
    # The first mark stands on the upper edge of the bar, the second one on the lower edge.
    edges = (height - 0.5 * BAR_HEIGHT, height + 0.5 * BAR_HEIGHT)
    for edge, (method, mean) in zip(edges, marks[["part", "mean"]].to_numpy(), strict=False):
        ax.plot([mean], [edge], linestyle="none", label=f"_{method}", zorder=4, **_marker(method))
    return framed + list(marks["mean"])


def _draw_bar(ax: Axes, height: float, colour: str, point: Any) -> list[float]:
    """Draw the bar of an effect with its interval, and its number above it.

    Returns:
        The values that the frame must hold.
    """
    ax.barh([height], [point.mean], height=BAR_HEIGHT, color=colour, alpha=0.85, zorder=2)
    ax.plot([point.low, point.high], [height] * 2, color=INK, linewidth=0.8, zorder=3)
    is_certain = point.low > 0 or point.high < 0
    ax.text(
        0.5,
        height - BAR_SHIFT + NUMBER_SHIFT,
        _number(point),
        ha="center",
        va="center",
        fontsize=5.5,
        color=INK if is_certain else GREY,
        transform=ax.get_yaxis_transform(),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )
    # An interval of two or three repetitions can be huge. The ends of such an interval may leave
    # the frame.
    largest_reach = MAX_REACH_IN_FRAME * abs(point.mean)
    ends = (point.low, point.high)
    near_ends = [end for end in ends if abs(end - point.mean) <= largest_reach]
    return [point.mean, *near_ends]


def _number(point: Any) -> str:
    """Return `−0.012`, or `−0.012 (4/5)` if one of 5 repetitions failed."""
    number = f"{point.mean:+.3f}".replace("-", "−")
    if not point.failed:
        return number
    return f"{number} ({point.repetitions}/{point.repetitions + point.failed})"


def _set_axes(tile: Tile, low: float, high: float) -> None:
    """Set axes with a labelled row for each effect, and x from low to high with a margin."""
    ax = tile.ax
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    margin = 0.12 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(ROWS) - 0.5, -0.5))
    ax.axhline(END_OF_SUM, color="#bbbbbb", linewidth=0.5)
    has_labels = tile.column == 0
    labels = [EFFECT_LOOKS[effect].label if has_labels else "" for effect in ROWS]
    ax.set_yticks(range(len(ROWS)), labels)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 3, 4, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {metric_label(tile.panel.metric)}")
