"""Panels of gradient draws: the distribution of a statistic, a line for each number of samples."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import GUIDE, STEPS, Tile, log_ticks
from dlmexp.presentation.figures.kinds.kind import STATISTICS
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics

BINS = 60


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return the draws of the first repetition that has any, in units of |G|^2.

    x is the number of samples. Repetitions have gradients of different size, so draws of more than
    one would show their differences.
    """
    draws_by_row = [
        np.asarray(results.arrays(key).get(panel.metric, []), dtype=float) for key in rows["key"]
    ]
    known = [number for number, draws in enumerate(draws_by_row) if np.isfinite(draws).any()]
    if not known:
        return Series(line, notes=["no gradient draws in its records"])
    row = rows.iloc[known[0]]
    draws = draws_by_row[known[0]]
    squared_norm = row["norm2_G"]
    # (i) is relative to |G|^2 already.
    unit = 1.0 if panel.metric == "condition_i" else squared_norm
    draws = draws[np.isfinite(draws)] / unit
    points = statistics([line.samples or 0], draws[:, None], len(draws)).assign(
        repetitions=len(known),
        failed=len(draws_by_row) - len(known),
        draws=len(draws),
        seed=row["seed"],
        bias=row["bias"] / squared_norm,
        error_of_G=_error_of_reference(row, results) / squared_norm,
    )
    return Series(line, points, draws=draws)


def _error_of_reference(row: pd.Series, results: ResultsFolder) -> float:
    """Return |G - exact gradient|^2: how far G, from 10 000 bMC samples, is off itself.

    The mean of many uPS draws is the exact gradient but for 1 % of that distance. The error of G is
    by how much this mean is further from G than from the gradient by quadrature.
    """
    rows = results.candidates
    belongs = (rows["role"] == "gradient") & (rows["estimator"] == "ups")
    for name in ("dataset", "base", "parameterisation", "beta"):
        belongs &= rows[name] == row[name]
    by_samples = rows.loc[belongs, ["samples", "bias", "bias_quadrature"]].sort_values("samples")
    if by_samples.empty:
        return np.nan
    most_samples = by_samples.iloc[-1]
    return float(most_samples["bias"] - most_samples["bias_quadrature"])


def draw(tiles: Sequence[Tile]) -> None:
    """Draw shares of the draws of one statistic, in the same bins in all of its panels."""
    metric = tiles[0].panel.metric
    bins = _common_bins(tiles)
    for tile in tiles:
        ax = tile.ax
        ax.set(xscale="log", xlabel=STATISTICS[metric], ylabel="share of draws")
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        for series in tile.lines:
            _draw_shares(ax, series, bins)
        ax.set(xlim=(bins[0] / 1.15, bins[-1] * 1.15), ylim=(0, None))
        if bins[-1] / bins[0] < 100:
            log_ticks(ax.xaxis)
        _draw_limit(tile, bins)


def _common_bins(tiles: Sequence[Tile]) -> np.ndarray:
    """Return the edges of bins that hold the draws of all panels."""
    draws: list[np.ndarray] = []
    for tile in tiles:
        draws += [series.draws for series in tile.lines]
    values = np.concatenate(draws)
    return np.geomspace(values.min() / 1.05, values.max() * 1.05, BINS + 1)


def _draw_shares(ax: Axes, series: Series, bins: np.ndarray) -> None:
    """Draw the outline of a histogram, in a tenth of the time that `Axes.hist` takes."""
    look = series.line.look
    shares = np.histogram(series.draws, bins)[0] / len(series.draws)
    x = np.repeat(bins, 2)
    y = np.pad(np.repeat(shares, 2), 1)
    ax.fill_between(x, y, color=look.colour, alpha=0.25, linewidth=0)
    ax.plot(
        x,
        y,
        color=look.colour,
        lw=1.0,
        label=look.label,
        solid_joinstyle="miter",
        solid_capstyle="butt",
    )


def _draw_limit(tile: Tile, bins: np.ndarray) -> None:
    """Draw a line at 1, or, where the statistic is an error, at that of G itself.

    A draw that is closer to G cannot be told from G.
    """
    is_error = tile.panel.metric == "error"
    limit = float(tile.lines[0].points["error_of_G"].iloc[0]) if is_error else 1.0
    if not bins[0] < limit < bins[-1]:
        return
    tile.ax.axvline(limit, **GUIDE)
    if is_error:
        tile.ax.annotate(
            "error of G",
            (limit, 0.9),
            (3, 0),
            xycoords=tile.ax.get_xaxis_transform(),
            fontsize=5.5,
            textcoords="offset points",
            color="#6B6B6B",
        )
