"""Draw what several kinds of panels share: bands, frames, ticks and labels of axes.

A band is a line of means with their intervals. A frame is the part of the y-axis that is shown.
"""

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
from dlmexp.presentation.figures.numbers import MeasuredPanel, Series
from dlmexp.presentation.figures.panels import Panel
from dlmexp.presentation.figures.stats import half_width
from dlmexp.presentation.labels import metric_label

# The distance between ticks of linear axes is one of these numbers, times a power of ten.
TICK_STEPS = [1, 2, 2.5, 5, 10]
MARGIN = 0.06  # above and below the values in a frame, as a share of their range
UNITS = {"regression": "std(y)", "count": "counts"}  # of CRPS and widths, by task
GUIDE: dict[str, Any] = {"color": GREY, "linewidth": 0.6, "zorder": 0.5, "label": "_guide"}
POINTS_PER_INCH = 72
# Points that the frame does not hold stand in lanes beyond its edge. In typographic points:
LANE_HEIGHT = 10.0  # of a lane, which has room for a marker and its value
MARKER_DISTANCE = 2.0  # from the edge of a lane to the centres of its markers
Values = np.ndarray  # [P], a number for each point of a line


@dataclass
class Tile:
    """A panel with its numbers, its axes and its place in the grid of the figure.

    Attributes:
        measured: The numbers of the panel.
        row: The row of the grid, from 0.
        column: The column of the grid, from 0.
        ax: The axes of the panel.
        below: The axes of the differences to the ELBO; None where the panel has no differences.
    """

    measured: MeasuredPanel
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
        return self.measured.nonempty_series


@dataclass(frozen=True, eq=False)
class Band:
    """A line of means with their intervals.

    Attributes:
        x: The positions of the points.
        mean: The means.
        half: Half the widths of their intervals.
        look: How the line is drawn.
    """

    x: Values
    mean: Values
    half: Values
    look: Look

    def keep(self, is_kept: np.ndarray) -> "Band":
        """Return the band with only these points (a mask `[P]`), which a line joins."""
        return Band(self.x[is_kept], self.mean[is_kept], self.half[is_kept], self.look)

    def with_gaps(self, is_gap: np.ndarray) -> "Band":
        """Return the band with gaps in its line in place of these points (a mask `[P]`)."""
        mean = np.where(is_gap, np.nan, self.mean)
        return Band(self.x, mean, self.half, self.look)


def bands(lines: Sequence[Series], nominal: float = 0.0) -> list[Band]:
    """Return a band for each line: its means minus a nominal value, with 95 % intervals."""
    return [_band(series, nominal) for series in lines]


def _band(series: Series, nominal: float) -> Band:
    """Return the band of a line: its means minus a nominal value, with 95 % intervals."""
    points = series.points
    return Band(
        x=points["x"].to_numpy(dtype=float),
        mean=points["mean"].to_numpy() - nominal,
        half=half_width(points),
        look=series.line.look,
    )


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes in inches, as they are before the layout of the figure."""
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
    """Return the nominal share of a metric of coverage, 0.95 for coverage_95; 0 for others."""
    name, _, level = panel.metric.partition("_")
    return int(level) / 100 if name == "coverage" else 0.0


def metric_axis_label(panel: Panel, task: str) -> str:
    """Return the label of an axis with a metric and its unit, if the metric has one."""
    nominal = nominal_coverage(panel)
    if nominal:
        return f"coverage − {100 * nominal:.0f} %"
    if panel.metric in ("rmse", "mae"):
        return f"test {metric_label(panel.metric)}, in the target's units"
    has_unit = panel.metric == "crps" or panel.metric.startswith("width_")
    unit = UNITS.get(task, "") if has_unit else ""
    label = f"test {metric_label(panel.metric)}"
    return f"{label}, {unit}" if unit else label


def draw_band(ax: Axes, band: Band, **style: Any) -> None:
    """Draw means on a line, with their intervals as a band.

    The interval of a point without neighbours is drawn as a bar, as a band would have no width. A
    point whose x is NaN becomes a line across the panel.

    Args:
        ax: The axes.
        band: The means with their intervals.
        style: Further arguments of matplotlib.
    """
    look = band.look
    is_line_across = np.isnan(band.x)
    for mean, half in zip(band.mean[is_line_across], band.half[is_line_across], strict=True):
        _draw_across(ax, mean, np.nan_to_num(half), look)
    ax.plot(band.x, band.mean, **line_style(look), **style)
    is_known = np.isfinite(band.mean) & np.isfinite(band.x)
    half_or_zero = np.nan_to_num(band.half)
    ax.fill_between(
        band.x[is_known],
        (band.mean - half_or_zero)[is_known],
        (band.mean + half_or_zero)[is_known],
        color=look.colour,
        alpha=0.15,
        linewidth=0,
    )
    is_alone = _is_without_neighbours(is_known)
    if is_alone.any():
        ax.errorbar(
            band.x[is_alone],
            band.mean[is_alone],
            yerr=half_or_zero[is_alone],
            fmt="none",
            ecolor=look.colour,
            elinewidth=0.7,
        )


def _draw_across(ax: Axes, mean: float, half: float, look: Look) -> None:
    """Draw a horizontal line with its interval, and with its marker at the right edge."""
    ax.axhline(mean, color=look.colour, linestyle=look.dashes, label=look.label)
    ax.axhspan(mean - half, mean + half, color=look.colour, alpha=0.1, linewidth=0)
    # x as a share of the axis, y in data
    share_and_data = ax.get_yaxis_transform()
    ax.plot(
        [1.0],
        [mean],
        color=look.colour,
        marker=look.marker,
        linestyle="none",
        label="_end",
        clip_on=False,
        transform=share_and_data,
    )


@dataclass(frozen=True)
class OffScale:
    """A point off the scale: the frame does not hold it, so it is drawn in a lane beyond the edge.

    Attributes:
        x: Its position on the x-axis.
        value: Its value.
        look: How its line is drawn.
        is_above: Whether the point lies above the frame; otherwise it lies below.
        lane: The number of its lane, from 0 for the outermost lane inwards. Points at the same x
            beyond the same edge have different lanes.
    """

    x: float
    value: float
    look: Look
    is_above: bool
    lane: int


def draw_off_scale(ax: Axes, curves: Sequence[Band], masks: Sequence[np.ndarray]) -> None:
    """Draw points that the frame does not hold in lanes beyond its edge, each with its value.

    Args:
        ax: The axes, with their limits.
        curves: A band for each line.
        masks: For each line, which of its points are off the scale `[P]`.
    """
    points = _points_off_scale(ax, curves, masks)
    if not points:
        return
    for is_above in (True, False):
        lanes = [point.lane for point in points if point.is_above == is_above]
        if lanes:
            _add_lanes(ax, is_above, lane_count=1 + max(lanes))
    x = np.concatenate([band.x for band in curves])
    left = np.nanmin(x)
    right = np.nanmax(x)
    for point in points:
        _draw_in_lane(ax, point, is_leftmost=point.x == left, is_rightmost=point.x == right)


def _points_off_scale(
    ax: Axes, curves: Sequence[Band], masks: Sequence[np.ndarray]
) -> list[OffScale]:
    """Return the points off the scale; those at the same x beyond the same edge share no lane."""
    low, high = ax.get_ylim()
    points: list[OffScale] = []
    lanes_in_use: Counter[tuple[float, bool]] = Counter()  # by x and edge
    for band, is_off in zip(curves, masks, strict=True):
        for x, value in zip(band.x[is_off], band.mean[is_off], strict=True):
            is_above = bool(value > (low + high) / 2)
            lane = lanes_in_use[x, is_above]
            points.append(OffScale(x, value, band.look, is_above, lane))
            lanes_in_use[x, is_above] += 1
    return points


def _add_lanes(ax: Axes, is_above: bool, lane_count: int) -> None:
    """Extend the y-axis by the height of these lanes, and draw a dotted line at the old limit."""
    low, high = ax.get_ylim()
    _, axes_height = inches(ax)
    share_of_lanes = lane_count * LANE_HEIGHT / (POINTS_PER_INCH * axes_height)
    # The lanes take this share of the extended axis: room / (high - low + room) = share_of_lanes.
    room = (high - low) * share_of_lanes / (1 - share_of_lanes)
    if is_above:
        ax.axhline(high, linestyle=":", **GUIDE)
        ax.set_ylim(low, high + room)
    else:
        ax.axhline(low, linestyle=":", **GUIDE)
        ax.set_ylim(low - room, high)


def _draw_in_lane(ax: Axes, point: OffScale, is_leftmost: bool, is_rightmost: bool) -> None:
    """Draw the marker of a point in a lane, and its value with an arrow.

    Args:
        ax: The axes, with room for the lanes.
        point: The point.
        is_leftmost: Whether no point is further to the left. The value of such a point stands to
            the right of its marker, so that it does not cross the y-axis.
        is_rightmost: Whether no point is further to the right. The value of such a point stands to
            the left of its marker.
    """
    look = point.look
    edge = 1.0 if point.is_above else 0.0  # as a share of the y-axis
    inwards = -1 if point.is_above else 1
    height_of_marker = inwards * (point.lane * LANE_HEIGHT + MARKER_DISTANCE)  # from the edge
    # x in data, y as a share of the axis
    data_and_share = ax.get_xaxis_transform()
    assert ax.figure is not None
    shift = ScaledTranslation(0.0, height_of_marker / POINTS_PER_INCH, ax.figure.dpi_scale_trans)
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 2.6}
    ax.plot(
        [point.x], [edge], linestyle="none", label="_off", transform=data_and_share + shift, **style
    )
    alignment = "center"
    # At the ends of the axis, the text reaches 2 typographic points beyond its marker.
    text_shift = 0
    if is_rightmost:
        alignment = "right"
        text_shift += 2
    if is_leftmost:
        alignment = "left"
        text_shift -= 2
    arrow = "↑" if point.is_above else "↓"
    height_of_text = height_of_marker + inwards * MARKER_DISTANCE
    ax.annotate(
        f"{arrow}{point.value:.2g}".replace("-", "−"),
        (point.x, edge),
        (text_shift, height_of_text),
        xycoords=data_and_share,
        textcoords="offset points",
        ha=alignment,
        va="top" if point.is_above else "bottom",
        fontsize=5,
        color=INK,
    )


def _is_without_neighbours(is_known: np.ndarray) -> np.ndarray:
    """Return which known points have no known point just before or after them (masks `[P]`)."""
    padded = np.concatenate([[False], is_known, [False]])
    is_known_before = padded[:-2]
    is_known_after = padded[2:]
    return is_known & ~is_known_before & ~is_known_after


def draw_bands(ax: Axes, curves: Sequence[Band], zero_line: bool, **style: Any) -> None:
    """Draw bands in a frame that holds them; with `zero_line`, it also holds a guide line at 0."""
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
    """Set limits of the y-axis that hold all means, and their intervals unless these are wide.

    Intervals of two or three repetitions can be huge. The limits therefore lie no further beyond
    the means than the lowest and the highest mean are apart.

    Args:
        ax: The axes.
        mean: The means of all lines `[P]`.
        up: How far the intervals reach above the means.
        down: How far the intervals reach below the means.
    """
    is_known = np.isfinite(mean)
    if is_known.any():
        mean = mean[is_known]
        up = np.nan_to_num(up[is_known])
        down = np.nan_to_num(down[is_known])
        # Where all means are equal, the frame holds the intervals.
        span = float(np.ptp(mean)) or float(max(up.max(), down.max()))
        lowest = max((mean - down).min(), mean.min() - span)
        highest = min((mean + up).max(), mean.max() + span)
        set_limits(ax, lowest, highest)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=TICK_STEPS))


def set_limits(ax: Axes, low: float, high: float) -> None:
    """Set the limits of the y-axis with a margin; equal limits are ignored."""
    if low < high:
        margin = MARGIN * (high - low)
        ax.set_ylim(low - margin, high + margin)


def log_ticks(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label the ticks of a log axis with ordinary numbers instead of powers of ten.

    Args:
        axis: The axis.
        subs: The ticks in each decade, as multiples of its power of ten. An axis that covers at
            most a factor of 3 has ticks at equal distances instead.
    """
    low, high = axis.get_view_interval()
    is_short = high / low <= 3
    locator = MaxNLocator(4, steps=TICK_STEPS) if is_short else LogLocator(subs=subs)
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())
