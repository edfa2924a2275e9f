"""Measure and draw panels of a metric against beta at one training size.

On each line, a circle marks the beta with the lowest mean validation metric.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from dlmexp.common.console import counted
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import (
    GUIDE,
    TICK_STEPS,
    Band,
    Tile,
    bands,
    draw_band,
    log_ticks,
    metric_axis_label,
    set_limits,
)
from dlmexp.presentation.figures.numbers import Series, by_seed, metric_values
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics

IN_FRAME = 0.7  # the frame holds at least this share of all means


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return statistics of the test metric at each beta, with the mean validation metric.

    A method without beta has one point, whose x is NaN.
    """
    all_betas = rows["beta"].to_numpy(dtype=float)
    betas, beta_numbers = np.unique(all_betas, return_inverse=True)
    rows_by_beta = np.bincount(beta_numbers)
    _, test_values = by_seed(rows, beta_numbers, metric_values(rows, panel))
    _, validation_values = by_seed(rows, beta_numbers, metric_values(rows, panel, "validation"))
    points = statistics(betas, test_values, rows_by_beta)
    # The number of attempted repetitions is not used.
    points["validation"] = statistics(betas, validation_values, attempted=0)["mean"]
    failed = int(points["failed"].sum())
    notes = [f"{counted(failed, 'result')} failed, not averaged"] if failed else []
    return Series(line, points, notes=notes)


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel."""
    for tile in tiles:
        _draw_panel(tile)


def _draw_panel(tile: Tile) -> None:
    """Draw the lines of a panel in a frame that holds their best betas and most of their means."""
    ax = tile.ax
    framed: list[float] = []  # values that the frame must hold
    for series, band in zip(tile.lines, bands(tile.lines), strict=True):
        _draw_line(ax, band)
        is_best = _has_lowest_validation(series, band)
        _draw_circles(ax, band.keep(is_best))
        framed += _values_to_frame(band, is_best)
    _set_x_axis(ax, np.concatenate([series.points["x"].dropna() for series in tile.lines]))
    ax.set_ylabel(metric_axis_label(tile.panel, tile.measured.task))
    means = np.concatenate([series.points["mean"] for series in tile.lines])
    if tile.panel.log and np.nanmin(means) > 0:
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        # Far from the best beta, lines may leave the frame at the top.
        lowest = np.nanmin(framed)
        highest = max(np.nanmax(framed), np.nanquantile(means, IN_FRAME))
        set_limits(ax, lowest, highest)
        ax.yaxis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))


def _draw_line(ax: Axes, band: Band) -> None:
    """Draw means against beta.

    A method without beta is a line across. The point at beta = 0 is not joined with the others, as
    a log scale has no position for 0.
    """
    has_no_beta = np.isnan(band.x)
    for is_drawn in (has_no_beta, band.x == 0, band.x > 0):
        draw_band(ax, band.keep(is_drawn))


def _has_lowest_validation(series: Series, band: Band) -> np.ndarray:
    """Return which points have the lowest mean validation metric of their line (a mask `[P]`)."""
    unknown = np.isnan(band.x) | np.isnan(band.mean)
    validation = np.where(unknown, np.nan, series.points["validation"])
    lowest = np.fmin.reduce(validation)  # ignores NaN unless all values are NaN
    return validation == lowest


def _draw_circles(ax: Axes, points: Band) -> None:
    """Draw a circle around each of these points of a line."""
    ax.plot(
        points.x,
        points.mean,
        "o",
        ms=8,
        mfc="none",
        mec=points.look.colour,
        mew=0.7,
        label="_lowest validation",
    )


def _values_to_frame(band: Band, is_best: np.ndarray) -> list[float]:
    """Return the values of a line that the frame must hold.

    These are the mean at the best beta and the lower end of its interval, the lowest mean of the
    line, and the mean of a method without beta.
    """
    without_beta = band.mean[np.isnan(band.x)]
    best = band.keep(is_best)
    lower_ends = best.mean - best.half
    return [*without_beta, *best.mean, *lower_ends, np.fmin.reduce(band.mean)]


def _set_x_axis(ax: Axes, betas: np.ndarray) -> None:
    """Set a log axis; a beta of 0 gets a position left of the smallest positive beta."""
    smallest = betas[betas > 0].min(initial=np.inf)
    has_positive = np.isfinite(smallest)
    if (betas == 0).any() and has_positive:
        ax.set_xscale("symlog", linthresh=smallest, linscale=0.5)
    else:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("β")
    ax.axvline(1.0, **GUIDE)
