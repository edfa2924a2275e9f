"""What kinds of panels share when they draw: bands, frames, ticks and words at the axes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from dlmexp.presentation.figures.looks import GREY, INK, Look
from dlmexp.presentation.figures.numbers import Measured, Series
from dlmexp.presentation.figures.panels import Panel
from dlmexp.presentation.figures.stats import half_width
from dlmexp.presentation.labels import metric_label

STEPS = [1, 2, 2.5, 5, 10]  # between ticks of linear axes, times a power of ten
MARGIN = 0.06  # of the height of a frame, above and below what it holds
UNITS = {"regression": "std(y)", "count": "counts"}
GUIDE: dict[str, Any] = {"color": GREY, "linewidth": 0.6, "zorder": 0.5, "label": "_guide"}
LANE = 10.0  # height in points of a lane with points off the scale: marker and value
LANE_MARK = 2.0  # points from the edge of a lane to the middle of its markers
Values = np.ndarray  # [P]


@dataclass
class Tile:
    """The axes of a panel with its numbers, and their place in the grid of the figure.

    Attributes:
        below: Axes of the differences to the ELBO, where the panel has them.
    """

    measured: Measured
    row: int
    column: int
    ax: Axes
    below: Axes | None = None

    @property
    def panel(self) -> Panel:
        """The panel that is drawn."""
        return self.measured.panel

    @property
    def lines(self) -> list[Series]:
        """The lines that have points."""
        return self.measured.filled


@dataclass(frozen=True, eq=False)
class Band:
    """Means at x, and half of the widths of their intervals, all `[P]`; drawn with a look."""

    x: Values
    mean: Values
    half: Values
    look: Look

    def at(self, places: np.ndarray) -> "Band":
        """Return the band at some of its places."""
        return Band(self.x[places], self.mean[places], self.half[places], self.look)

    def without(self, places: np.ndarray) -> "Band":
        """Return the band with gaps at some of its places."""
        mean = np.where(places, np.nan, self.mean)
        return Band(self.x, mean, self.half, self.look)


def bands(lines: Sequence[Series], nominal: float = 0.0) -> list[Band]:
    """Return the means of lines minus a nominal value, with their 95 % intervals."""
    return [
        Band(
            series.points["x"].to_numpy(dtype=float),
            series.points["mean"].to_numpy() - nominal,
            half_width(series.points),
            series.line.look,
        )
        for series in lines
    ]


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes before the layout."""
    assert ax.figure is not None
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def line_style(look: Look) -> dict[str, Any]:
    """Return a look as arguments of matplotlib."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.dashes,
        "label": look.label,
    }


def nominal_coverage(panel: Panel) -> float:
    """Return the share that intervals promise to cover; 0 for other metrics."""
    name, _, level = panel.metric.partition("_")
    return int(level) / 100 if name == "coverage" else 0.0


def metric_axis_label(panel: Panel, task: str) -> str:
    """Return the words at the axis of a metric, with its unit."""
    if nominal := nominal_coverage(panel):
        return f"coverage − {100 * nominal:.0f} %"
    if panel.metric in ("rmse", "mae"):
        return f"test {metric_label(panel.metric)}, in the target's units"
    has_unit = panel.metric == "crps" or panel.metric.startswith("width_")
    unit = UNITS.get(task, "") if has_unit else ""
    label = f"test {metric_label(panel.metric)}"
    return f"{label}, {unit}" if unit else label


def draw_band(ax: Axes, band: Band, **style: Any) -> None:
    """Draw means on a line, with their intervals as a band.

    A point without a neighbour has a bar for its interval; one whose x is NaN has no place on the
    axis and is a line across.
    """
    look = band.look
    has_no_place = np.isnan(band.x)
    for mean, half in zip(band.mean[has_no_place], band.half[has_no_place], strict=True):
        _draw_across(ax, mean, np.nan_to_num(half), look)
    ax.plot(band.x, band.mean, **line_style(look), **style)
    known = np.isfinite(band.mean) & np.isfinite(band.x)
    half = np.nan_to_num(band.half)
    ax.fill_between(
        band.x[known],
        (band.mean - half)[known],
        (band.mean + half)[known],
        color=look.colour,
        alpha=0.15,
        linewidth=0,
    )
    alone = _without_neighbours(known)
    if alone.any():
        ax.errorbar(
            band.x[alone],
            band.mean[alone],
            yerr=half[alone],
            fmt="none",
            ecolor=look.colour,
            elinewidth=0.7,
        )


def _draw_across(ax: Axes, mean: float, half: float, look: Look) -> None:
    """Draw a line across with its interval, and its marker at the right to tell lines apart."""
    ax.axhline(mean, color=look.colour, linestyle=look.dashes, label=look.label)
    ax.axhspan(mean - half, mean + half, color=look.colour, alpha=0.1, linewidth=0)
    ax.plot(
        [1.0],
        [mean],
        color=look.colour,
        marker=look.marker,
        linestyle="none",
        label="_end",
        clip_on=False,
        transform=ax.get_yaxis_transform(),
    )


@dataclass(frozen=True)
class OffScale:
    """A point that the frame does not hold: it stands in a lane at the edge."""

    x: float
    value: float
    look: Look
    is_above: bool
    level: int  # number of points that stand between it and the edge


def draw_off_scale(ax: Axes, curves: Sequence[Band], are_off: Sequence[np.ndarray]) -> None:
    """Draw points that the frame does not hold in a lane at its edge, each with its value.

    Args:
        ax: The axes, with their limits.
        curves: All lines.
        are_off: Which points of each line to draw so.
    """
    points = _points_off_scale(ax, curves, are_off)
    for is_above in (True, False):
        levels = [point.level for point in points if point.is_above == is_above]
        if levels:
            _add_lane(ax, is_above, height=(1 + max(levels)) * LANE)
    x = np.concatenate([band.x for band in curves]) if points else np.zeros(1)
    for point in points:
        _draw_in_lane(ax, point, first=point.x == np.nanmin(x), last=point.x == np.nanmax(x))


def _points_off_scale(
    ax: Axes, curves: Sequence[Band], are_off: Sequence[np.ndarray]
) -> list[OffScale]:
    """Return the points that the frame does not hold; those at one place in levels."""
    low, high = ax.get_ylim()
    points: list[OffScale] = []
    counts: Counter[tuple[float, bool]] = Counter()  # at a place of one edge
    for band, off in zip(curves, are_off, strict=True):
        for x, value in zip(band.x[off], band.mean[off], strict=True):
            is_above = bool(value > (low + high) / 2)
            points.append(OffScale(x, value, band.look, is_above, counts[x, is_above]))
            counts[x, is_above] += 1
    return points


def _add_lane(ax: Axes, is_above: bool, height: float) -> None:
    """Make room of a height in points beyond the frame, behind a dotted line."""
    low, high = ax.get_ylim()
    share = height / (72 * inches(ax)[1])
    room = (high - low) * share / (1 - share)
    ax.axhline(high if is_above else low, linestyle=":", **GUIDE)
    ax.set_ylim(low if is_above else low - room, high + room if is_above else high)


def _draw_in_lane(ax: Axes, point: OffScale, first: bool, last: bool) -> None:
    """Draw the marker of a point at the edge, and its value with an arrow.

    Args:
        ax: The axes.
        point: The point.
        first: Whether no point is further to the left: its value may not cross the y-axis.
        last: Whether no point is further to the right.
    """
    look = point.look
    edge = 1.0 if point.is_above else 0.0
    inwards = -1 if point.is_above else 1
    distance = inwards * (point.level * LANE + LANE_MARK)
    frame_edge = ax.get_xaxis_transform()
    assert ax.figure is not None
    place = frame_edge + ScaledTranslation(0.0, distance / 72, ax.figure.dpi_scale_trans)
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 2.6}
    ax.plot([point.x], [edge], linestyle="none", label="_off", transform=place, **style)
    arrow = "↑" if point.is_above else "↓"
    ax.annotate(
        f"{arrow}{point.value:.2g}".replace("-", "−"),
        (point.x, edge),
        (2 * last - 2 * first, distance + inwards * LANE_MARK),
        xycoords=frame_edge,
        textcoords="offset points",
        ha="left" if first else "right" if last else "center",
        va="top" if point.is_above else "bottom",
        fontsize=5,
        color=INK,
    )


def _without_neighbours(known: np.ndarray) -> np.ndarray:
    """Return which known points have no known point before and after them."""
    padded = np.concatenate([[False], known, [False]])
    return known & ~padded[:-2] & ~padded[2:]


def draw_bands(ax: Axes, curves: Sequence[Band], zero_line: bool, **style: Any) -> None:
    """Draw bands in a frame that holds them, with a line at 0 where there is to be one."""
    for band in curves:
        draw_band(ax, band, **style)
    means = [band.mean for band in curves]
    halves = [band.half for band in curves]
    if zero_line:
        ax.axhline(0.0, **GUIDE)
        means.append(np.zeros(1))
        halves.append(np.zeros(1))
    frame(ax, np.concatenate(means), np.concatenate(halves), np.concatenate(halves))


def frame(ax: Axes, mean: Values, up: Values, down: Values) -> None:
    """Set limits that hold all means, and their intervals unless those are too wide.

    Intervals of two or three repetitions can be huge: they are held as far as they reach no further
    than the means are apart.

    Args:
        ax: The axes.
        mean: Means of all lines, `[P]`.
        up: How far the intervals reach above them.
        down: How far the intervals reach below them.
    """
    known = np.isfinite(mean)
    if known.any():
        mean = mean[known]
        up = np.nan_to_num(up[known])
        down = np.nan_to_num(down[known])
        span = float(np.ptp(mean)) or float(max(up.max(), down.max()))
        lowest = max((mean - down).min(), mean.min() - span)
        highest = min((mean + up).max(), mean.max() + span)
        set_limits(ax, lowest, highest)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))


def set_limits(ax: Axes, low: float, high: float) -> None:
    """Set the limits of the y-axis with a margin; nothing where they are equal."""
    if low < high:
        margin = MARGIN * (high - low)
        ax.set_ylim(low - margin, high + margin)


def log_ticks(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Set ordinary numbers at the ticks of a log axis."""
    low, high = axis.get_view_interval()
    is_short = high / low <= 3
    axis.set_major_locator(MaxNLocator(4, steps=STEPS) if is_short else LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())
