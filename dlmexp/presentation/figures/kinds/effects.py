"""Panels of effects: what makes up the difference "joint DLM - ELBO" at the selected beta.

ELBO and joint DLM differ in two ways: the objective (log loss in place of the ELBO's term) and the
choice of beta (1 or selected). Beta-ELBO and PPGPR, the joint DLM with beta = 1, change one of them
each. There are two orders in which to change both; an effect is the mean over them, so that both
effects add up to the whole, in every repetition. Further effects: by how much the whole changes if
q is trained in unwhitened coordinates, or with a floor under the noise.
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

# Letters of methods in the formulas below.
METHOD_OF_LETTER = {"E": "elbo", "B": "beta_elbo", "F": "fitc", "P": "ppgpr", "D": "joint_log_dlm"}
# Effect -> formula of its bar (`effect`), then of its marks, which show the change in one method
# alone. A suffix u stands for q unwhitened, f for a floor under the noise.
FORMULAS = {
    "whole": {"effect": "D - E"},
    "beta": {"effect": "(B - E + D - P) / 2", "elbo": "B - E", "joint_log_dlm": "D - P"},
    "objective": {"effect": "(P - E + D - B) / 2", "ppgpr": "P - E", "beta_elbo": "D - B"},
    "coordinates": {"effect": "Du - Eu - (D - E)", "elbo": "Eu - E", "joint_log_dlm": "Du - D"},
    "noise": {"effect": "Df - Ef - (D - E)", "elbo": "Ef - E", "joint_log_dlm": "Df - D"},
    "fitc": {"effect": "F - E"},
}
TERM = re.compile("[A-Z][uf]?")
# What marks stand for; their shapes are those of the methods.
MARKS = {
    "elbo": "the change in ELBO alone",
    "joint_log_dlm": "the change in joint DLM alone",
    "ppgpr": "PPGPR − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}
ROWS = tuple(EFFECT_LOOKS)
LAST_OF_SUM = 2.5  # below this row are changes of the whole, above it what adds up to it
BAR_HEIGHT = 0.34  # in rows, as the following ones
BAR_PLACE = 0.05  # of a bar, below the middle of its row
NUMBER_PLACE = -0.33  # of its number


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return the points of an effect: a row for the bar, then for each mark.

    Marks for which there are no rows are left out; without those of the bar there is no point.
    """
    parts: list[pd.DataFrame] = []
    for part, formula in FORMULAS[line.effect].items():
        differences = _evaluate(formula, rows, panel.metric)
        if differences is None:
            if part == "effect":
                return Series(line)
            continue
        point = statistics([len(parts)], differences[:, None], len(differences))
        half = half_width(point)
        low = point["mean"] - half
        high = point["mean"] + half
        parts.append(point.assign(low=low, high=high, effect=line.effect, part=part))
    return Series(line, pd.concat(parts, ignore_index=True))


def _evaluate(formula: str, rows: pd.DataFrame, metric: str) -> np.ndarray | None:
    """Return a formula's value in each repetition that has all terms, or None without a term."""
    terms: dict[str, pd.Series] = {}
    for term in TERM.findall(formula):
        terms[term] = _metric_by_seed(rows, term, metric)
        if terms[term].empty:
            return None
    values = pd.concat(terms, axis="columns", join="inner")
    return np.asarray(values.eval(formula))


def _metric_by_seed(rows: pd.DataFrame, term: str, metric: str) -> pd.Series:
    """Return the test metric by seed at the selected beta; NaN where all candidates failed."""
    is_term = rows["method"] == METHOD_OF_LETTER[term[0]]
    is_term &= rows["noise_floor"].notna() == term.endswith("f")
    parameterisation = "unwhitened" if term.endswith("u") else "whitened"
    # A closed form over q has no coordinates, so it serves for both.
    is_term &= (rows["parameterisation"] == parameterisation) | (rows["form"] == "collapsed")
    by_seed = rows[is_term].drop_duplicates("seed").set_index("seed")
    return by_seed[f"test_{metric}"].astype(float).where(by_seed["status"] == "done")


def legend() -> list[Line2D]:
    """Return what bars, lines, numbers and marks stand for; rows are named at the axis."""
    bar = {"marker": "s", "color": GREY, "markersize": 5.5}
    number = {"marker": "$+.01$", "color": GREY, "markersize": 11, "markeredgewidth": 0.1}
    return [
        Line2D([], [], linestyle="none", label="effect (mean of both orders)", **bar),
        Line2D([], [], color=INK, linewidth=0.8, label="its 95 % interval"),
        Line2D([], [], linestyle="none", label="grey number: interval holds 0", **number),
        *(
            Line2D([], [], linestyle="none", label=words, **_marker(part))
            for part, words in MARKS.items()
        ),
    ]


def _marker(part: str) -> dict[str, Any]:
    look = METHOD_LOOKS[part]
    return {
        "marker": look.marker,
        "markeredgecolor": look.colour,
        "markersize": 3.4,
        "markerfacecolor": "white",
        "markeredgewidth": 0.8,
    }


def draw(tiles: Sequence[Tile]) -> None:
    """Draw a row for each effect, the same in all panels; to the left, where DLM gains."""
    for tile in tiles:
        framed = [0.0]
        for series in tile.lines:
            framed += _draw_line(tile.ax, series)
        _set_axes(tile, min(framed), max(framed))


def _draw_line(ax: Axes, series: Series) -> list[float]:
    """Draw the bar of an effect and its marks; return what the frame must hold."""
    effect = series.line.effect
    height = ROWS.index(effect) + BAR_PLACE
    framed: list[float] = []
    points = series.points[np.isfinite(series.points["mean"])]
    for point in points[points["part"] == "effect"].itertuples():
        framed += _draw_bar(ax, height, EFFECT_LOOKS[effect].colour, point)
    marks = points[points["part"] != "effect"]
    # The first mark stands on the upper edge of the bar, the second on the lower one.
    for edge, (part, mean) in zip((-0.5, 0.5), marks[["part", "mean"]].to_numpy(), strict=False):
        place = height + edge * BAR_HEIGHT
        ax.plot([mean], [place], linestyle="none", label=f"_{part}", zorder=4, **_marker(part))
    return framed + list(marks["mean"])


def _draw_bar(ax: Axes, height: float, colour: str, point: Any) -> list[float]:
    """Draw an effect with its interval, its number above; return what the frame must hold."""
    ax.barh([height], [point.mean], height=BAR_HEIGHT, color=colour, alpha=0.85, zorder=2)
    ax.plot([point.low, point.high], [height] * 2, color=INK, linewidth=0.8, zorder=3)
    is_certain = point.low > 0 or point.high < 0
    ax.text(
        0.5,
        height - BAR_PLACE + NUMBER_PLACE,
        _number(point),
        ha="center",
        va="center",
        fontsize=5.5,
        color=INK if is_certain else GREY,
        transform=ax.get_yaxis_transform(),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )
    # An interval of two or three repetitions can be huge: it may leave the frame.
    reach = 3 * abs(point.mean)
    near = [end for end in (point.low, point.high) if abs(end - point.mean) <= reach]
    return [point.mean, *near]


def _number(point: Any) -> str:
    """Return `−0.012`, with `(4/5)` where some repetitions failed."""
    number = f"{point.mean:+.3f}".replace("-", "−")
    if not point.failed:
        return number
    return f"{number} ({point.repetitions}/{point.repetitions + point.failed})"


def _set_axes(tile: Tile, low: float, high: float) -> None:
    ax = tile.ax
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    margin = 0.12 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(ROWS) - 0.5, -0.5))
    ax.axhline(LAST_OF_SUM, color="#bbbbbb", linewidth=0.5)
    is_first = tile.column == 0
    ax.set_yticks(range(len(ROWS)), [EFFECT_LOOKS[row].label if is_first else "" for row in ROWS])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 3, 4, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {metric_label(tile.panel.metric)}")
