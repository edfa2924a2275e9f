"""Panels of a metric against n, M, samples or a time, beta selected for every repetition.

Below are the differences to the ELBO of the same repetitions. Where all points are at one size, a
panel has bars.
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

# A line this many times as far from the ELBO as the median line may leave the frame of differences.
FAR = 10.0
STRAY = 3.0  # likewise, for a point that cannot be told from the ELBO
OUTLYING = 0.5  # of the range of all other points: so far beyond it, a point may leave the frame
X_LABELS = {
    "n": "training rows n",
    "M": "inducing inputs M",
    "samples": "samples S of bMC",
    "predict_seconds": "prediction time (s)",
}
BAR_HEIGHT = 0.62  # of the distance between two bars


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return statistics of the test metric at each size."""
    values = metric_values(rows, panel)
    if not np.isfinite(values).any() and (rows["status"] == "done").any():
        return Series(line, notes=[f"its records have no {metric_label(panel.metric)}"])
    sizes, columns = np.unique(rows[_size_column(panel)].fillna(0), return_inverse=True)
    x = _positions(panel, line, rows, sizes)
    if x is None:
        return Series(line, notes=[f"its records have no {panel.x}"])
    seeds, table = by_seed(rows, columns, values)
    points = statistics(x, table, np.bincount(columns))
    points["betas"] = _selected_betas(rows, columns, np.isfinite(values))
    by_size = pd.DataFrame(table, seeds, sizes)
    return Series(line, points, by_size, notes=_failures(points, rows))


def _size_column(panel: Panel) -> str:
    """Return the column of which each value is a point; those of other columns are means."""
    return panel.x if panel.x in ("n", "samples") else "M"


def _positions(
    panel: Panel, line: Line, rows: pd.DataFrame, sizes: np.ndarray
) -> np.ndarray | None:
    """Return the place of each size on the x-axis; None where the records do not have it.

    NaN stands for a line across.
    """
    size_column = _size_column(panel)
    if panel.x == "M" and line.method == "exact":
        return np.full(len(sizes), np.nan)  # M = n is no choice
    if panel.x == size_column:
        return np.where(sizes == 0, np.nan, sizes)  # without samples the objective is exact
    means = rows.groupby(size_column)[panel.x].mean().to_numpy()
    return None if np.isnan(means).all() else means


def _selected_betas(rows: pd.DataFrame, columns: np.ndarray, finite: np.ndarray) -> list[str]:
    """Return, for each size, the betas that the repetitions selected, separated by spaces."""
    is_selected = (rows["candidates"] > 1).to_numpy() & finite
    betas = rows["beta"].to_numpy(dtype=float)
    texts: list[str] = []
    for column in range(columns.max() + 1):
        at_size = betas[is_selected & (columns == column)]
        texts.append(" ".join(f"{beta:.4g}" for beta in at_size))
    return texts


def _failures(points: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Return notes on repetitions and on candidates that failed."""
    notes: list[str] = []
    most_failed = int(points["failed"].max())
    if most_failed:
        notes.append(f"up to {counted(most_failed, 'repetition')} of a point failed, not averaged")
    has_candidates = rows["candidates"] > 1
    failed_candidates = int(rows["failed"][has_candidates].sum())
    if failed_candidates:
        candidates = counted(failed_candidates, "candidate")
        notes.append(f"{candidates} failed; β is selected among the others")
    return notes


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel, and the differences to the ELBO below it."""
    for tile in tiles:
        if tile.measured.has_single_size:
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
        outliers = _outliers(tile, curves)
        framed = [band.without(off) for band, off in zip(curves, outliers, strict=True)]
        _draw_in_frame(ax, curves, framed, zero_line)
    if panel.log:
        _set_log_y_axis(ax, curves)
    x = np.unique(np.concatenate([band.x for band in curves]))
    _set_x_axis(ax, panel, x[np.isfinite(x)].tolist())
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


def _set_x_axis(ax: Axes, panel: Panel, places: list[float]) -> None:
    """Set a log axis with as many ticks as its length allows; against M at the places alone."""
    if not places:  # only lines across
        ax.set_xlim(1, 100)
    ax.set_xscale("log")
    log_ticks(ax.xaxis, _ticks_in_decade(ax))
    if panel.x == "M" and places:
        ax.xaxis.set_major_locator(FixedLocator(places))
    if panel.x != "predict_seconds":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(X_LABELS.get(panel.x, panel.x))


def _ticks_in_decade(ax: Axes) -> tuple[float, ...]:
    """Return as many ticks as a decade of the x-axis has room for."""
    low, high = ax.get_xlim()
    width, _ = inches(ax)
    inches_of_decade = width / np.log10(high / low)
    if inches_of_decade > 1.0:
        return (1.0, 2.0, 5.0)
    if inches_of_decade > 0.47:
        return (1.0, 3.0)
    return (1.0,)


def _differences(lines: Sequence[Series]) -> list[Band]:
    """Return the mean differences of lines to the ELBO, with their intervals."""
    differences: list[Band] = []
    for series in lines:
        points = series.points
        if "minus_elbo" in points and points["minus_elbo"].notna().any():
            mean = points["minus_elbo"].to_numpy(dtype=float)
            half = points["high"].to_numpy(dtype=float) - mean
            x = points["x"].to_numpy(dtype=float)
            differences.append(Band(x, mean, half, series.line.look))
    return differences


def _draw_differences(ax: Axes, tile: Tile) -> None:
    """Draw each line minus the ELBO; points off the scale stand at the edge with their value."""
    style: dict[str, Any] = {"markersize": 2.6}
    ax.axhline(0.0, color=METHOD_LOOKS["elbo"].colour, linewidth=0.8, zorder=1.5)
    differences = _differences(tile.lines)
    far = _far_points(differences)
    framed = [band.without(off) for band, off in zip(differences, far, strict=True)]
    _draw_in_frame(ax, differences, framed, zero_line=True, **style)
    ax.set_ylabel(f"Δ {metric_label(tile.panel.metric)}\nvs ELBO")


def _draw_in_frame(
    ax: Axes, curves: Sequence[Band], framed: Sequence[Band], zero_line: bool, **style: Any
) -> None:
    """Draw lines in a frame that holds some of their points, the others at its edge.

    Args:
        ax: The axes.
        curves: All lines.
        framed: The same lines without the points that the frame need not hold.
        zero_line: Whether there is to be a line at 0.
        style: Further arguments of matplotlib.
    """
    draw_bands(ax, framed, zero_line, **style)
    low, high = ax.get_ylim()
    are_off: list[np.ndarray] = []
    for band, part in zip(curves, framed, strict=True):
        is_left_out = np.isnan(part.mean) & np.isfinite(band.mean)
        is_inside = is_left_out & (low < band.mean) & (band.mean < high)
        are_off.append(is_left_out & ~is_inside)
        if is_inside.any():
            draw_band(ax, band.without(~is_inside & np.isnan(part.mean)), **style)
    draw_off_scale(ax, curves, are_off)


def _far_points(differences: Sequence[Band]) -> list[np.ndarray]:
    """Return which points of each line the frame of differences need not hold.

    Those are all points of a line that is far from all others, and points far from 0 that cannot be
    told from it: a single repetition makes them.
    """
    largest = [np.nanmax(abs(band.mean)) for band in differences]
    usual = float(np.median(largest)) if largest else 0.0
    far: list[np.ndarray] = []
    for band, most in zip(differences, largest, strict=True):
        is_far_line = most > FAR * usual
        is_stray = (abs(band.mean) > STRAY * usual) & (abs(band.mean) <= band.half)
        far.append(is_stray | is_far_line)
    return far


def _outliers(tile: Tile, curves: Sequence[Band]) -> list[np.ndarray]:
    """Return which points the frame of a panel need not hold.

    Those are far in the frame of differences, and further from all other points than these are
    apart.
    """
    nothing = [np.zeros(len(band.mean), dtype=bool) for band in curves]
    with_difference = [series for series in tile.lines if _differences([series])]
    far = dict(
        zip(map(id, with_difference), _far_points(_differences(with_difference)), strict=True)
    )
    are_far = [far.get(id(series), off) for series, off in zip(tile.lines, nothing, strict=True)]
    near = np.concatenate([band.mean[~off] for band, off in zip(curves, are_far, strict=True)])
    near = near[np.isfinite(near)]
    if not len(near):
        return nothing
    reach = OUTLYING * np.ptp(near)
    outliers: list[np.ndarray] = []
    for band, off in zip(curves, are_far, strict=True):
        is_outside = (band.mean > near.max() + reach) | (band.mean < near.min() - reach)
        outliers.append(off & is_outside)
    return outliers
