"""Measure and draw panels of a metric against n, M, samples or a time, with beta selected.

Below a panel are the differences to the ELBO of the same repetitions. A panel whose points are all
at one size has bars.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator

from dlmexp.common.console import counted
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import (
    Band,
    Tile,
    bands,
    draw_band,
    draw_bands,
    draw_off_scale,
    inches,
    log_ticks,
    metric_axis_label,
    nominal_coverage,
)
from dlmexp.presentation.figures.looks import INK, METHOD_LOOKS
from dlmexp.presentation.figures.numbers import Series, by_seed, metric_values
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics
from dlmexp.presentation.labels import metric_label

# In the frame of differences, the usual distance to 0 is the median over lines of the largest
# difference. A line that is further than this many usual distances away may leave the frame.
FAR_LINE = 10.0
# So may a point that is further away than this, if its interval holds 0.
FAR_POINT = 3.0
# In the frame of the metric, points of such lines and such points may leave the frame if they lie
# further beyond all other points than this share of the range of the other points.
OUTLYING = 0.5
X_LABELS = {
    "n": "training rows n",
    "M": "inducing inputs M",
    "samples": "samples S of bMC",
    "predict_seconds": "prediction time (s)",
}
BAR_HEIGHT = 0.62  # as a share of the distance between two bars


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return statistics of the test metric at each size."""
    values = metric_values(rows, panel)
    if not np.isfinite(values).any() and (rows["status"] == "done").any():
        return Series(line, notes=[f"its records have no {metric_label(panel.metric)}"])
    # An exact objective has no number of samples: 0 stands for it.
    size_of_rows = rows[_size_column(panel)].fillna(0)
    sizes, size_numbers = np.unique(size_of_rows, return_inverse=True)
    x = _positions(panel, line, rows, sizes)
    if x is None:
        return Series(line, notes=[f"its records have no {panel.x}"])
    seeds, table = by_seed(rows, size_numbers, values)
    rows_by_size = np.bincount(size_numbers)
    points = statistics(x, table, rows_by_size)
    points["betas"] = _selected_betas(rows, size_numbers, np.isfinite(values))
    values_by_seed = pd.DataFrame(table, seeds, sizes)
    return Series(line, points, values_by_seed, notes=_failures(points, rows))


def _size_column(panel: Panel) -> str:
    """Return the column of which each value is a size, and so a point of a line.

    It is the column of the x-axis where that is n or the number of samples. Otherwise points are
    for each M, and their position is a mean over repetitions.
    """
    return panel.x if panel.x in ("n", "samples") else "M"


def _positions(
    panel: Panel, line: Line, rows: pd.DataFrame, sizes: np.ndarray
) -> np.ndarray | None:
    """Return the position of each size on the x-axis; None if no record has it.

    NaN means that the line has no position, and is drawn across the panel.
    """
    size_column = _size_column(panel)
    if panel.x == "M" and line.method == "exact":
        return np.full(len(sizes), np.nan)  # an exact GP has no inducing inputs
    if panel.x == size_column:
        # 0 stands for the missing number of samples of an exact objective.
        return np.where(sizes == 0, np.nan, sizes)
    # Sizes are values of M, which no record lacks, so there is a group for each of them.
    means = rows.groupby(size_column)[panel.x].mean().to_numpy()
    return None if np.isnan(means).all() else means


def _selected_betas(
    rows: pd.DataFrame, size_numbers: np.ndarray, is_finite: np.ndarray
) -> list[str]:
    """Return, for each size, the betas that the repetitions selected, separated by spaces.

    Args:
        rows: Rows of one line.
        size_numbers: The number of the size of each row.
        is_finite: Whether the metric of each row is finite.
    """
    is_selected = (rows["candidates"] > 1).to_numpy() & is_finite
    betas = rows["beta"].to_numpy(dtype=float)
    texts: list[str] = []
    for number in range(size_numbers.max() + 1):
        at_size = betas[is_selected & (size_numbers == number)]
        texts.append(" ".join(f"{beta:.4g}" for beta in at_size))
    return texts


def _failures(points: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Return notes on repetitions and on candidates that failed."""
    notes: list[str] = []
    failed_repetitions = int(points["failed"].max())
    if failed_repetitions:
        repetitions = counted(failed_repetitions, "repetition")
        notes.append(f"up to {repetitions} of a point failed, not averaged")
    has_candidates = rows["candidates"] > 1
    failed_candidates = int(rows["failed"][has_candidates].sum())
    if failed_candidates:
        candidates = counted(failed_candidates, "candidate")
        notes.append(f"{candidates} failed; β is selected among the others")
    return notes


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel, and the differences to the ELBO below it."""
    for tile in tiles:
        if tile.measured.has_bars:
            _draw_as_bars(tile)
        else:
            _draw_as_lines(tile)


def _draw_as_bars(tile: Tile) -> None:
    """Draw a panel of which all lines have a single point, at the same size."""
    panel = tile.panel
    size = tile.lines[0].points["x"].iloc[0]
    label = metric_axis_label(panel, tile.measured.task)
    curves = bands(tile.lines, nominal_coverage(panel))
    _draw_bars(tile.ax, curves, f"{label}, {panel.x} = {size:g}")
    if tile.below is not None:
        _draw_bars(tile.below, _differences(tile.lines), f"Δ {metric_label(panel.metric)} vs ELBO")


def _draw_bars(ax: Axes, curves: Sequence[Band], label: str) -> None:
    """Draw a bar with its interval and number for each curve of one point."""
    for row, band in enumerate(curves):
        _draw_bar(ax, row, band)
    ax.set_yticks(range(len(curves)), [band.look.label for band in curves])
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.axvline(0.0, color=INK, linewidth=0.6)
    ax.margins(x=0.18)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel=label, ylabel="")


def _draw_bar(ax: Axes, row: int, band: Band) -> None:
    """Draw the point of a curve as a bar with its interval and number."""
    value = band.mean[0]
    half = np.nan_to_num(band.half[0])
    ax.barh([row], [value], BAR_HEIGHT, color=band.look.colour, alpha=0.75)
    ax.errorbar([value], [row], xerr=[half], fmt="none", ecolor=INK, elinewidth=0.8)
    ax.annotate(
        f"{value:.3g}".replace("-", "−"),
        (max(value + half, 0.0), row),
        (3, 0),
        textcoords="offset points",
        va="center",
        fontsize=5.5,
    )


def _draw_as_lines(tile: Tile) -> None:
    """Draw a panel with lines along the sizes, and its differences to the ELBO below."""
    ax = tile.ax
    panel = tile.panel
    nominal = nominal_coverage(panel)
    curves = bands(tile.lines, nominal)
    ax.set_ylabel(metric_axis_label(panel, tile.measured.task))
    zero_line = nominal > 0 or panel.metric == "excess_nll"
    if tile.below is None or panel.log:
        draw_bands(ax, curves, zero_line)
    else:
        _draw_in_frame(ax, curves, _outliers(tile, curves), zero_line)
    if panel.log:
        _set_log_y_axis(ax, curves)
    x = np.unique(np.concatenate([band.x for band in curves]))
    _set_x_axis(ax, panel, positions=x[np.isfinite(x)].tolist())
    if tile.below is not None:
        _draw_differences(tile.below, tile)
        tile.below.set_xlabel(ax.get_xlabel())
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)


def _set_log_y_axis(ax: Axes, curves: Sequence[Band]) -> None:
    """Set a log y-axis where all means are positive."""
    lowest = min(np.nanmin(band.mean) for band in curves)
    if lowest > 0:
        ax.autoscale(axis="y")
        ax.set_yscale("log")
        log_ticks(ax.yaxis)


def _set_x_axis(ax: Axes, panel: Panel, positions: list[float]) -> None:
    """Set a log axis with as many ticks as its length allows.

    An axis of M has ticks at the positions of the points alone.
    """
    if not positions:  # all lines are drawn across the panel
        ax.set_xlim(1, 100)
    ax.set_xscale("log")
    log_ticks(ax.xaxis, _ticks_in_decade(ax))
    if panel.x == "M" and positions:
        ax.xaxis.set_major_locator(FixedLocator(positions))
    if panel.x != "predict_seconds":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(X_LABELS.get(panel.x, panel.x))


def _ticks_in_decade(ax: Axes) -> tuple[float, ...]:
    """Return the ticks of a decade of the x-axis, as multiples of its power of ten.

    There are as many as the decade has room for.
    """
    low, high = ax.get_xlim()
    width, _ = inches(ax)
    inches_of_decade = width / np.log10(high / low)
    if inches_of_decade > 1.0:
        return (1.0, 2.0, 5.0)
    if inches_of_decade > 0.47:
        return (1.0, 3.0)
    return (1.0,)


def _differences(lines: Sequence[Series]) -> list[Band]:
    """Return the mean differences to the ELBO of the lines that have any, with their intervals."""
    differences: list[Band] = []
    for series in lines:
        difference = _difference(series)
        if difference is not None:
            differences.append(difference)
    return differences


def _difference(series: Series) -> Band | None:
    """Return the mean differences of a line to the ELBO; None if it has none."""
    points = series.points
    if "minus_elbo" not in points or points["minus_elbo"].isna().all():
        return None
    mean = points["minus_elbo"].to_numpy(dtype=float)
    upper_end = points["high"].to_numpy(dtype=float)  # of the interval around the mean
    half = upper_end - mean
    return Band(points["x"].to_numpy(dtype=float), mean, half, series.line.look)


def _draw_differences(ax: Axes, tile: Tile) -> None:
    """Draw each line minus the ELBO; points off the scale stand at the edge with their value."""
    ax.axhline(0.0, color=METHOD_LOOKS["elbo"].colour, linewidth=0.8, zorder=1.5)
    differences = _differences(tile.lines)
    _draw_in_frame(ax, differences, _far_points(differences), zero_line=True, markersize=2.6)
    ax.set_ylabel(f"Δ {metric_label(tile.panel.metric)}\nvs ELBO")


def _draw_in_frame(
    ax: Axes,
    curves: Sequence[Band],
    may_leave: Sequence[np.ndarray],
    zero_line: bool,
    **style: Any,
) -> None:
    """Draw lines in a frame that need not hold all of their points.

    Points that may leave the frame do not determine its limits. Those that lie within the limits
    are drawn there nevertheless; the others are drawn at the edge.

    Args:
        ax: The axes.
        curves: All lines.
        may_leave: For each line, which of its points may leave the frame.
        zero_line: Whether there is to be a line at 0.
        style: Further arguments of matplotlib.
    """
    framed = [band.without(mask) for band, mask in zip(curves, may_leave, strict=True)]
    draw_bands(ax, framed, zero_line, **style)
    low, high = ax.get_ylim()
    are_off: list[np.ndarray] = []
    for band, mask in zip(curves, may_leave, strict=True):
        is_candidate = mask & np.isfinite(band.mean)
        is_inside = is_candidate & (low < band.mean) & (band.mean < high)
        is_outside = is_candidate & ~is_inside
        are_off.append(is_outside)
        # The frame is known only now: draw the line again, through the points that left gaps in it.
        if is_inside.any():
            draw_band(ax, band.without(is_outside), **style)
    draw_off_scale(ax, curves, are_off)


def _far_points(differences: Sequence[Band]) -> list[np.ndarray]:
    """Return, for each line, which points the frame of differences need not hold.

    These are all points of a line that is far from the others. Single points belong to them if they
    are far from 0 but their interval holds 0, as one outlying repetition is enough for this.
    """
    largest = [np.nanmax(abs(band.mean)) for band in differences]
    usual = float(np.median(largest)) if largest else 0.0
    far: list[np.ndarray] = []
    for band, largest_of_line in zip(differences, largest, strict=True):
        is_far_line = largest_of_line > FAR_LINE * usual
        holds_zero = abs(band.mean) <= band.half
        is_far_point = (abs(band.mean) > FAR_POINT * usual) & holds_zero
        far.append(is_far_point | is_far_line)
    return far


def _outliers(tile: Tile, curves: Sequence[Band]) -> list[np.ndarray]:
    """Return, for each line, which points the frame of the metric need not hold.

    These are far in the frame of differences (`_far_points`), and lie well beyond all other points.
    """
    # Only lines with differences are in `far_points`; no points of the others are far.
    far_points = iter(_far_points(_differences(tile.lines)))
    are_far: list[np.ndarray] = []
    for series, band in zip(tile.lines, curves, strict=True):
        has_difference = _difference(series) is not None
        none_far = np.zeros(len(band.mean), dtype=bool)
        are_far.append(next(far_points) if has_difference else none_far)
    near = np.concatenate([band.mean[~far] for band, far in zip(curves, are_far, strict=True)])
    near = near[np.isfinite(near)]
    if not len(near):
        return [np.zeros(len(band.mean), dtype=bool) for band in curves]
    reach = OUTLYING * np.ptp(near)
    outliers: list[np.ndarray] = []
    for band, is_far in zip(curves, are_far, strict=True):
        is_beyond = (band.mean > near.max() + reach) | (band.mean < near.min() - reach)
        outliers.append(is_far & is_beyond)
    return outliers
