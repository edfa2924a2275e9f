"""Measure and draw panels of observed minus predicted shares of class 1, with beta selected."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import Band, Tile, bands, draw_bands
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics

EDGE = 3e-4  # the smallest probability on the axis; errors of smaller ones would not be visible
TICKS = [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999]
TICK_LABELS = ["0.001", "", "0.1", "0.5", "0.9", "", "0.999"]


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return observed shares of class 1 against predicted shares, means over repetitions.

    The shares are those in bins of equal numbers of test rows.
    """
    predicted_by_repetition: list[np.ndarray] = []
    observed_by_repetition: list[np.ndarray] = []
    for key in rows["key"][rows["status"] == "done"]:
        arrays = results.arrays(key)
        if "reliability_p" in arrays:
            predicted_by_repetition.append(arrays["reliability_p"])
            observed_by_repetition.append(arrays["reliability_y"])
    if not predicted_by_repetition:
        return Series(line)
    predicted = np.array(predicted_by_repetition, dtype=float)  # [R, bins]
    observed = np.array(observed_by_repetition, dtype=float)  # [R, bins]
    bin_numbers = range(predicted.shape[1])
    mean_predicted = statistics(bin_numbers, predicted, attempted=len(predicted))["mean"]
    return Series(line, statistics(mean_predicted, observed, attempted=len(rows)))


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel on a logit axis, as most rows lie near 0 or 1."""
    for tile in tiles:
        _draw_panel(tile)


def _draw_panel(tile: Tile) -> None:
    """Draw the lines of a panel, with a logit x-axis from `EDGE` to just beyond the last point."""
    ax = tile.ax
    curves = [_minus_predicted(band) for band in bands(tile.lines)]
    ax.set_ylabel("observed − predicted")
    draw_bands(ax, curves, zero_line=True, markersize=2.6)
    ax.set_xscale("logit")
    ax.set_xticks(TICKS, TICK_LABELS)
    largest = max(0.5, *(band.x.max() for band in curves))
    ax.set_xlim(EDGE, min(largest + 0.1, 1 - EDGE))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("predicted probability")


def _minus_predicted(band: Band) -> Band:
    """Return observed minus predicted shares, without points at predicted shares of 0 and 1.

    A logit axis has no positions for 0 and 1.
    """
    has_position = (band.x > 0) & (band.x < 1)
    minus_predicted = Band(band.x, band.mean - band.x, band.half, band.look)
    return minus_predicted.keep(has_position)
