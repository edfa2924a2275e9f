"""Measure and draw panels of learning curves: a test metric against epochs or iterations.

A curve is a line of such a panel. Where lines differ in method and beta, markers show the method
and dashes show beta.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from dlmexp.common.console import counted
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import (
    POINTS_PER_INCH,
    Tile,
    frame,
    inches,
    line_style,
    metric_axis_label,
)
from dlmexp.presentation.figures.looks import Dashes, Look
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import half_width, statistics

# A curve may leave the frame in its first part, in which it falls from an arbitrary start. These
# are the lengths of this part, as shares of the curve.
FIRST_PART = 0.1
FIRST_PART_OF_MEDIANS = 0.25
# A curve of medians is summarised by a mean in its tail, which begins after this share of the
# curve.
TAIL_START = 0.75
BLOCKS = 20  # a curve of medians, which has spikes, is averaged in this many blocks
MARKER_COUNT = 7  # on a curve whose markers show its method
DASHES_OF_BETAS: tuple[Dashes, ...] = (":", "-", "--", "-.")  # from the smallest beta up
LABEL_GAP = 7.5  # between labels at the ends of curves, in typographic points

CurveWithReach = np.ndarray
"""A curve `[3, P]`: its centre, and how far its interval reaches above and below the centre."""


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return statistics of the test metric at every time of evaluation.

    A repetition that stopped early counts with its last value from then on.
    """
    series = Series(line)
    curves = _curves_by_time(panel, rows, results)
    if curves:
        times = np.unique(np.concatenate([curve.index for curve in curves]))
        values = np.stack([curve.reindex(times, method="ffill") for curve in curves])
        series.points = statistics(times.astype(float), values, len(rows), panel.median)
        if panel.median:
            series.points = series.points.assign(**_tail(times, values))
    count_without_curve = len(rows) - len(curves)
    if count_without_curve:
        repetitions = counted(count_without_curve, "repetition")
        series.notes.append(f"{repetitions} without a learning curve")
    return series


def _tail(times: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the metric in the tail: its mean over time and repetitions, with a 95 % interval.

    Args:
        times: The times of evaluations `[P]`.
        values: The metric by repetition and time `[R, P]`.

    Returns:
        The columns tail, tail_low and tail_high `[P]`. Each has the same number at all times of
        the tail, and NaN before the tail.
    """
    is_tail = times >= TAIL_START * times.max()
    known_values = np.where(np.isfinite(values), values, np.nan)
    with np.errstate(invalid="ignore"):
        tail_means = known_values[:, is_tail].mean(axis=1)  # [R]
    tail = statistics([0], tail_means[:, None], attempted=len(tail_means))
    mean = float(tail["mean"].iloc[0])
    half = float(half_width(tail)[0])
    return {
        "tail": np.where(is_tail, mean, np.nan),
        "tail_low": np.where(is_tail, mean - half, np.nan),
        "tail_high": np.where(is_tail, mean + half, np.nan),
    }


def _curves_by_time(panel: Panel, rows: pd.DataFrame, results: ResultsFolder) -> list[pd.Series]:
    """Return a series of the test metric, indexed by time, for each repetition that has one."""
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
    """The last point of a curve, with the label that stands there and the colour of the label."""

    y: float
    x: float
    label: str
    colour: str


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel: means with intervals, or medians with quartiles, labelled at their ends."""
    for tile in tiles:
        _draw_panel(tile)


def _draw_panel(tile: Tile) -> None:
    """Draw the curves of a panel in a frame that holds them after their first part."""
    ax = tile.ax
    panel = tile.panel
    # The share of the x-axis from which on the frame holds a curve. A block of medians is drawn at
    # its last evaluation, so the first block after the first part ends a block later.
    framed_from = FIRST_PART_OF_MEDIANS + 1 / BLOCKS if panel.median else FIRST_PART
    ends: list[End] = []
    framed: list[CurveWithReach] = []
    for series in tile.lines:
        points = series.points[series.points["repetitions"] > 0]
        x, curve = _curve_to_draw(points, panel.median)
        look = curve_look(series.line, panel)
        _draw_curve(ax, x, curve, look, width=0.8 if panel.median else 1.1)
        framed.append(curve[:, x >= framed_from * x.max()])
        # Where lines differ in method and beta, the legend names the method.
        label = f"β = {series.line.beta:g}" if series.line.names == "beta" else look.label
        end = End(y=float(curve[0, -1]), x=float(x[-1]), label=label, colour=look.colour)
        ends.append(end)
    centre, up, down = np.hstack(framed)
    frame(ax, centre, up, down)
    ax.set_ylabel(metric_axis_label(panel, tile.measured.task))
    ax.set_xlabel("epoch" if panel.x == "epochs" else "iteration")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.02)
    ends.sort(key=lambda end: (end.y, end.x, end.label, end.colour))
    _label_ends(ax, ends)


def curve_look(line: Line, panel: Panel) -> Look:
    """Return how a curve is drawn.

    A line with beta in its name has the marker of its method and dashes that show beta. Other lines
    have no markers.
    """
    lines_with_beta = [other for other in panel.lines if other.names == "beta"]
    betas = sorted({other.beta for other in lines_with_beta if other.beta})
    if line.names != "beta" or line.beta not in betas:
        return replace(line.look, marker="")
    dashes_number = betas.index(line.beta) % len(DASHES_OF_BETAS)
    return replace(line.look, dashes=DASHES_OF_BETAS[dashes_number])


def _curve_to_draw(points: pd.DataFrame, median: bool) -> tuple[np.ndarray, CurveWithReach]:
    """Return the times `[P]` and the curve to draw: means, or medians in blocks before a tail."""
    times = points["x"].to_numpy()
    curve = _centre_and_reach(points, median)
    if not median:
        return times, curve
    times, curve = _means_of_blocks(times, curve)
    return times, _with_tail(times, curve, points)


def _centre_and_reach(points: pd.DataFrame, median: bool) -> CurveWithReach:
    """Return the mean with its interval, or the median with the quartiles."""
    if median:
        centre = points["median"].to_numpy()
        up = points["q75"].to_numpy() - centre
        down = centre - points["q25"].to_numpy()
    else:
        centre = points["mean"].to_numpy()
        up = down = np.nan_to_num(half_width(points))
    return np.stack([centre, up, down])


def _means_of_blocks(times: np.ndarray, curve: CurveWithReach) -> tuple[np.ndarray, CurveWithReach]:
    """Return the curve averaged over blocks of evaluations, at the last time of each block.

    A curve with few evaluations is returned unchanged.
    """
    if len(times) <= 2 * BLOCKS:
        return times, curve
    blocks = np.array_split(np.arange(len(times)), BLOCKS)
    ends = np.array([times[block[-1]] for block in blocks])
    means = [curve[:, block].mean(axis=1) for block in blocks]
    return ends, np.stack(means, axis=1)


def _with_tail(times: np.ndarray, curve: CurveWithReach, points: pd.DataFrame) -> CurveWithReach:
    """Return the curve with the mean of its tail, and the interval of this mean, in the tail.

    A gap separates the tail from the medians before it, as a mean does not continue a median.
    """
    has_tail_mean = points.get("tail", pd.Series(dtype=float)).notna()
    if not has_tail_mean.any():
        return curve
    first_point_of_tail = points[has_tail_mean].iloc[0]
    mean = float(first_point_of_tail["tail"])
    half = np.nan_to_num(float(first_point_of_tail["tail_high"] - first_point_of_tail["tail"]))
    is_tail = times >= first_point_of_tail["x"]
    with_mean = np.where(is_tail, [[mean], [half], [half]], curve)
    first_of_tail = np.argmax(is_tail)  # the position of the first True
    with_mean[:, first_of_tail] = np.nan
    return with_mean


def _draw_curve(ax: Axes, x: np.ndarray, curve: CurveWithReach, look: Look, width: float) -> None:
    """Draw a curve with its interval as a band."""
    centre, up, down = curve
    points_per_marker = max(len(x) // MARKER_COUNT, 1)
    style = line_style(look)
    ax.plot(x, centre, **style, linewidth=width, markersize=2.6, markevery=points_per_marker)
    ax.fill_between(x, centre - down, centre + up, color=look.colour, alpha=0.15, linewidth=0)


def _label_ends(ax: Axes, ends: list[End]) -> None:
    """Write labels to the right of the axes, each joined to the end of its curve by a line.

    Args:
        ax: The axes.
        ends: The ends of the curves, from bottom to top.
    """
    low, high = ax.get_ylim()
    # Heights and gap are shares of the height of the axes.
    heights = np.array([(end.y - low) / (high - low) for end in ends])
    _, axes_height = inches(ax)
    gap = LABEL_GAP / (axes_height * POINTS_PER_INCH)
    for end, label_height in zip(ends, _set_apart(heights, gap), strict=True):
        end_in_frame = (end.x, min(max(end.y, low), high))
        connection = {
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
            end_in_frame,
            (1.06, label_height),
            textcoords="axes fraction",
            va="center",
            fontsize=5.5,
            color=end.colour,
            annotation_clip=False,
            arrowprops=connection,
        )


def _set_apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return heights of labels that are at least a gap apart, near the heights of their curves.

    1. The height of label k is lowered by k gaps. If the lowered heights ascend, the labels are at
       least a gap apart.
    2. The lowered heights are made to ascend in two ways: a running maximum pushes labels up, and
       a running minimum from above pushes them down. The mean of the two results is taken.
    3. The means are limited so that labels lie from 0 to 1 after the gaps are added again.

    Args:
        heights: Ascending heights of the ends of curves, as shares of the axes.
        gap: The smallest distance between two labels.
    """
    offsets = gap * np.arange(len(heights))
    lowered = np.clip(heights, 0.0, 1.0) - offsets
    pushed_up = np.maximum.accumulate(lowered)
    pushed_down = np.minimum.accumulate(lowered[::-1])[::-1]
    highest = max(1.0 - offsets[-1], 0.0)
    return np.clip((pushed_up + pushed_down) / 2, 0.0, highest) + offsets
