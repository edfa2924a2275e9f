"""Measure and draw panels of a metric against n, M, samples or a time, with beta selected.

A size is a value of n, M or the number of samples. Below a panel are the differences to the ELBO of
the same repetitions. A panel whose points are all at one size is drawn as bars.
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

# Lines and points far away from 0 may leave the frame of differences, so that the others can be
# told apart. Their distances to 0 are multiples of the usual distance, which is the median over
# lines of the largest distance of a line.
FAR_LINE = 10.0  # a line is far if its largest distance is greater than this
FAR_POINT = 3.0  # a point is far if its distance is greater than this and its interval holds 0
# In the frame of the metric, a far point may leave the frame only if it lies beyond all points that
# are not far, by more than this share of their range.
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
    # 0 stands for the missing number of samples of an exact objective.
    size_of_row = rows[_size_column(panel)].fillna(0)
    sizes, size_numbers = np.unique(size_of_row, return_inverse=True)
    x = _positions(panel, line, rows, sizes)
    if x is None:
        return Series(line, notes=[f"its records have no {panel.x}"])
    seeds, values_by_seed = by_seed(rows, size_numbers, values)
    rows_by_size = np.bincount(size_numbers)
    points = statistics(x, values_by_seed, rows_by_size)
    points["betas"] = _selected_betas(rows, size_numbers, np.isfinite(values))
    return Series(
        line,
        points,
        values=pd.DataFrame(values_by_seed, index=seeds, columns=sizes),
        notes=_failures(points, rows),
    )


def _size_column(panel: Panel) -> str:
    """Return the column whose values are the sizes; a line has a point for each of them.

    This is the column of the x-axis if it is n or the number of samples. Otherwise the sizes are
    values of M.
    """
    return panel.x if panel.x in ("n", "samples") else "M"


def _positions(
    panel: Panel, line: Line, rows: pd.DataFrame, sizes: np.ndarray
) -> np.ndarray | None:
    """Return the position of each size on the x-axis; None if no record has a position.

    Positions are NaN for a line that is drawn across the panel.
    """
    size_column = _size_column(panel)
    if panel.x == "M" and line.method == "exact":
        return np.full(len(sizes), np.nan)  # an exact GP has no inducing inputs
    if panel.x == size_column:
        # 0 stands for the missing number of samples of an exact objective.
        return np.where(sizes == 0, np.nan, sizes)
    # The x-axis has another column, such as a time, of which the mean is taken at each M. All
    # records have M, so `groupby` returns a mean for each of the sizes, in their order.
    means = rows.groupby(size_column)[panel.x].mean().to_numpy()
    return None if np.isnan(means).all() else means


def _selected_betas(
    rows: pd.DataFrame, size_numbers: np.ndarray, is_finite: np.ndarray
) -> list[str]:
    """Return a text for each size: the betas that its repetitions selected, separated by spaces.

    Args:
        rows: Rows of one line.
        size_numbers: For each row, the number of its size, from 0.
        is_finite: Whether the metric of each row is finite.
    """
    is_selected = (rows["candidates"] > 1).to_numpy() & is_finite
    betas = rows["beta"].to_numpy(dtype=float)
    texts: list[str] = []
    for size_number in range(size_numbers.max() + 1):
        betas_at_size = betas[is_selected & (size_numbers == size_number)]
        texts.append(" ".join(f"{beta:.4g}" for beta in betas_at_size))
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
    """Draw a panel whose lines have a single point each, all at the same size, as bars."""
    panel = tile.panel
    size = tile.lines[0].points["x"].iloc[0]
    label = metric_axis_label(panel, tile.measured.task)
    curves = bands(tile.lines, nominal_coverage(panel))
    _draw_bars(tile.ax, curves, f"{label}, {panel.x} = {size:g}")
    if tile.below is not None:
        _draw_bars(tile.below, _differences(tile.lines), f"Δ {metric_label(panel.metric)} vs ELBO")


def _draw_bars(ax: Axes, curves: Sequence[Band], label: str) -> None:
    """Draw a bar with its interval and number for each curve, which has a single point."""
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
    """Draw the single point of a curve as a bar with its interval and number."""
    value = band.mean[0]
    half_or_zero = np.nan_to_num(band.half[0])
    ax.barh([row], [value], BAR_HEIGHT, color=band.look.colour, alpha=0.75)
    ax.errorbar([value], [row], xerr=[half_or_zero], fmt="none", ecolor=INK, elinewidth=0.8)
    ax.annotate(
        f"{value:.3g}".replace("-", "−"),
        (max(value + half_or_zero, 0.0), row),
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
        # Which points are outliers follows from the differences below.
        _draw_in_frame(ax, curves, _outliers(tile, curves), zero_line)
    if panel.log:
        _set_log_y_axis(ax, curves)
    x = np.unique(np.concatenate([band.x for band in curves]))
    _set_x_axis(ax, panel, positions=x[np.isfinite(x)].tolist())
    if tile.below is not None:
        _draw_differences(tile.below, tile)
        # Panel and strip share an x-axis, whose label and numbers stand below the strip.
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
    if not positions:
        ax.set_xlim(1, 100)  # any limits: all lines are drawn across the panel
    ax.set_xscale("log")
    log_ticks(ax.xaxis, _ticks_in_decade(ax))
    if panel.x == "M" and positions:
        ax.xaxis.set_major_locator(FixedLocator(positions))
    if panel.x != "predict_seconds":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(X_LABELS.get(panel.x, panel.x))


def _ticks_in_decade(ax: Axes) -> tuple[float, ...]:
    """Return as many ticks of a decade of the x-axis as it has room for.

    Ticks are multiples of the power of ten at which the decade begins.
    """
    low, high = ax.get_xlim()
    width, _ = inches(ax)
    inches_per_decade = width / np.log10(high / low)
    if inches_per_decade > 1.0:
        return (1.0, 2.0, 5.0)
    if inches_per_decade > 0.47:
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
    upper_end = points["high"].to_numpy(dtype=float)
    half = upper_end - mean  # the interval is symmetric around the mean
    return Band(points["x"].to_numpy(dtype=float), mean, half, series.line.look)


def _draw_differences(ax: Axes, tile: Tile) -> None:
    """Draw each line minus the ELBO; points that the frame does not hold stand at its edge."""
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
        curves: A band for each line.
        may_leave: For each line, which of its points may leave the frame.
        zero_line: Whether there is to be a line at 0.
        style: Further arguments of matplotlib.
    """
    with_gaps = [band.with_gaps(mask) for band, mask in zip(curves, may_leave, strict=True)]
    draw_bands(ax, with_gaps, zero_line, **style)
    low, high = ax.get_ylim()
    masks_off_scale: list[np.ndarray] = []
    for band, mask in zip(curves, may_leave, strict=True):
        is_candidate = mask & np.isfinite(band.mean)
        is_inside = is_candidate & (low < band.mean) & (band.mean < high)
        is_outside = is_candidate & ~is_inside
        masks_off_scale.append(is_outside)
        # The frame is known only now. Draw the line again, with its points inside of the frame in
        # place of gaps.
        if is_inside.any():
            draw_band(ax, band.with_gaps(is_outside), **style)
    draw_off_scale(ax, curves, masks_off_scale)


def _far_points(differences: Sequence[Band]) -> list[np.ndarray]:
    """Return, for each line, which points the frame of differences need not hold (`FAR_LINE`).

    These are all points of a far line, and single far points. A far point counts only if its
    interval holds 0, as a single outlying repetition may have moved it.
    """
    largest_distances = [np.nanmax(abs(band.mean)) for band in differences]
    usual_distance = float(np.median(largest_distances)) if largest_distances else 0.0
    masks: list[np.ndarray] = []
    for band, largest_distance in zip(differences, largest_distances, strict=True):
        is_far_line = largest_distance > FAR_LINE * usual_distance
        holds_zero = abs(band.mean) <= band.half
        is_far_point = (abs(band.mean) > FAR_POINT * usual_distance) & holds_zero
        masks.append(is_far_point | is_far_line)
    return masks


def _outliers(tile: Tile, curves: Sequence[Band]) -> list[np.ndarray]:
    """Return, for each line, which points the frame of the metric need not hold (`OUTLYING`).

    These points are far in the frame of differences, and lie well beyond all points that are not.
    """
    far_masks = _far_masks(tile.lines)
    near_parts = [band.mean[~is_far] for band, is_far in zip(curves, far_masks, strict=True)]
    near = np.concatenate(near_parts)
    near = near[np.isfinite(near)]
    if not len(near):
        return [np.zeros(len(band.mean), dtype=bool) for band in curves]
    reach = OUTLYING * np.ptp(near)
    lowest = near.min() - reach
    highest = near.max() + reach
    outliers: list[np.ndarray] = []
    for band, is_far in zip(curves, far_masks, strict=True):
        is_beyond = (band.mean > highest) | (band.mean < lowest)
        outliers.append(is_far & is_beyond)
    return outliers


def _far_masks(lines: Sequence[Series]) -> list[np.ndarray]:
    """Return, for each line, which points are far in the frame of differences.

    No points are far on a line without differences to the ELBO.
    """
    masks_of_differences = iter(_far_points(_differences(lines)))
    masks: list[np.ndarray] = []
    for series in lines:
        has_difference = _difference(series) is not None
        no_points = np.zeros(len(series.points), dtype=bool)
        masks.append(next(masks_of_differences) if has_difference else no_points)
    return masks
