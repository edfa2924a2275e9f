"""Panels of learning curves: a test metric against epochs or iterations.

Markers show the method and dashes beta, where the lines of a panel differ in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from dlmexp.common.console import counted
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import Tile, frame, inches, line_style, metric_axis_label
from dlmexp.presentation.figures.looks import Dashes, Look
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import half_width, statistics

# Shares of a learning curve in which it falls from anywhere, and may leave the frame.
START = 0.1
START_OF_MEDIANS = 0.25
TAIL = 0.75  # share of a curve of medians after which it is summarised by its mean
BLOCKS = 20  # of evaluations: medians of few repetitions have spikes
MARKERS = 7  # on a curve whose method they show
DASHES_OF_BETAS: tuple[Dashes, ...] = (":", "-", "--", "-.")  # from the smallest beta up
LABEL_GAP = 7.5  # points between labels at the ends of curves


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return statistics of the test metric at every time of evaluation.

    A repetition that has stopped keeps its last value.
    """
    series = Series(line)
    curves = _curves(panel, rows, results)
    if curves:
        times = np.unique(np.concatenate([curve.index for curve in curves]))
        values = np.stack([curve.reindex(times, method="ffill") for curve in curves])
        series.points = statistics(times.astype(float), values, len(rows), panel.median)
        if panel.median:
            series.points = series.points.assign(**_tail(times, values))
    missing = len(rows) - len(curves)
    if missing:
        series.notes.append(f"{counted(missing, 'repetition')} without a learning curve")
    return series


def _tail(times: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean and 95 % interval of what each repetition has on average in its tail.

    Args:
        times: Of evaluations, `[P]`.
        values: By repetition and time, `[R, P]`.

    Returns:
        Columns that have the same numbers at all times of the tail, and NaN before.
    """
    is_tail = times >= TAIL * times.max()
    with np.errstate(invalid="ignore"):
        means = np.where(np.isfinite(values), values, np.nan)[:, is_tail].mean(axis=1)
    tail = statistics([0], means[:, None], len(means))
    mean = float(tail["mean"].iloc[0])
    half = float(half_width(tail)[0])
    numbers = {"tail": mean, "tail_low": mean - half, "tail_high": mean + half}
    return {name: np.where(is_tail, number, np.nan) for name, number in numbers.items()}


def _curves(panel: Panel, rows: pd.DataFrame, results: ResultsFolder) -> list[pd.Series]:
    """Return the test metric by time of each repetition that has a learning curve."""
    time_name = "epochs" if panel.x == "epochs" else "evaluated_at"
    curves: list[pd.Series] = []
    for key in rows["key"].dropna():
        arrays = results.arrays(key)
        times = arrays.get(time_name)
        values = arrays.get(f"test_{panel.metric}")
        if times is not None and values is not None and len(times) == len(values) > 0:
            curves.append(pd.Series(values, times, dtype=float))
    return curves


@dataclass(frozen=True)
class End:
    """The last point of a curve, and its label."""

    y: float
    x: float
    label: str
    colour: str


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel: means with a band, or medians with quartiles, labelled where they end."""
    for tile in tiles:
        _draw_panel(tile)


def _draw_panel(tile: Tile) -> None:
    ax = tile.ax
    panel = tile.panel
    ends: list[End] = []
    framed: list[np.ndarray] = []  # centre, up, down [3, P]
    for series in tile.lines:
        points = series.points[series.points["repetitions"] > 0]
        x = points["x"].to_numpy()
        interval = _centre_and_reach(points, panel.median)
        if panel.median:
            x, interval = _means_of_blocks(x, interval)
            interval = _with_tail(x, interval, points)
        look = curve_look(series.line, panel)
        _draw_curve(ax, x, interval, look, width=0.8 if panel.median else 1.1)
        # A block may begin before the place at which it is drawn.
        start = START_OF_MEDIANS + 1 / BLOCKS if panel.median else START
        framed.append(interval[:, x >= start * x.max()])
        label = f"β = {series.line.beta:g}" if series.line.names == "beta" else look.label
        ends.append(End(float(interval[0, -1]), float(x[-1]), label, look.colour))
    frame(ax, *np.hstack(framed))
    ax.set_ylabel(metric_axis_label(panel, tile.measured.task))
    ax.set_xlabel("epoch" if panel.x == "epochs" else "iteration")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.02)
    ends.sort(key=lambda end: (end.y, end.x, end.label, end.colour))
    _label_ends(ax, ends)


def curve_look(line: Line, panel: Panel) -> Look:
    """Return how a line is drawn: where several have beta in their names, dashes show it."""
    betas = sorted({other.beta for other in panel.lines if other.names == "beta" and other.beta})
    if line.names != "beta" or line.beta not in betas:
        return replace(line.look, marker="")
    return replace(line.look, dashes=DASHES_OF_BETAS[betas.index(line.beta) % 4])


def _centre_and_reach(points: pd.DataFrame, median: bool) -> np.ndarray:
    """Return mean or median, and how far interval or quartiles reach above and below, `[3, P]`."""
    if median:
        centre = points["median"].to_numpy()
        up = points["q75"].to_numpy() - centre
        down = centre - points["q25"].to_numpy()
    else:
        centre = points["mean"].to_numpy()
        up = down = np.nan_to_num(half_width(points))
    return np.stack([centre, up, down])


def _means_of_blocks(x: np.ndarray, interval: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means over blocks of evaluations in place of the spikes of single ones."""
    if len(x) <= 2 * BLOCKS:
        return x, interval
    parts = np.array_split(np.arange(len(x)), BLOCKS)
    ends = np.array([x[part[-1]] for part in parts])
    return ends, np.stack([interval[:, part].mean(axis=1) for part in parts], axis=1)


def _with_tail(x: np.ndarray, interval: np.ndarray, points: pd.DataFrame) -> np.ndarray:
    """Return centre, up and down with the mean of the tail and its interval in their last part.

    A gap precedes it: a mean does not continue a median.
    """
    in_tail = points.get("tail", pd.Series(dtype=float)).notna()
    if not in_tail.any():
        return interval
    tail = points[in_tail].iloc[0]
    half = np.nan_to_num(float(tail["tail_high"] - tail["tail"]))
    is_tail = x >= tail["x"]
    numbers = np.array([[float(tail["tail"])], [half], [half]])
    summarised = np.where(is_tail, numbers, interval)
    summarised[:, np.argmax(is_tail)] = np.nan
    return summarised


def _draw_curve(ax: Axes, x: np.ndarray, interval: np.ndarray, look: Look, width: float) -> None:
    centre, up, down = interval
    markers = max(len(x) // MARKERS, 1)
    ax.plot(x, centre, **line_style(look), linewidth=width, markersize=2.6, markevery=markers)
    ax.fill_between(x, centre - down, centre + up, color=look.colour, alpha=0.15, linewidth=0)


def _label_ends(ax: Axes, ends: list[End]) -> None:
    """Write labels right of the axes from bottom to top, each joined to the end of its curve."""
    low, high = ax.get_ylim()
    heights = np.array([(end.y - low) / (high - low) for end in ends])
    gap = LABEL_GAP / (inches(ax)[1] * 72)
    for end, place in zip(ends, _set_apart(heights, gap), strict=True):
        arrow = {
            "arrowstyle": "-",
            "color": end.colour,
            "lw": 0.5,
            "shrinkA": 1,
            "shrinkB": 0,
            "relpos": (0, 0.5),
            "patchA": None,
        }
        ax.annotate(
            end.label,
            (end.x, min(max(end.y, low), high)),
            (1.06, place),
            textcoords="axes fraction",
            va="center",
            fontsize=5.5,
            color=end.colour,
            annotation_clip=False,
            arrowprops=arrow,
        )


def _set_apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return places for labels near ascending heights, at least a gap apart, from 0 up.

    Where heights lie close together, places are halfway between pushing all labels up and pushing
    all of them down.
    """
    steps = gap * np.arange(len(heights))
    slack = np.clip(heights, 0.0, 1.0) - steps
    pushed_up = np.maximum.accumulate(slack)
    pushed_down = np.minimum.accumulate(slack[::-1])[::-1]
    return np.clip((pushed_up + pushed_down) / 2, 0.0, max(1.0 - steps[-1], 0.0)) + steps
