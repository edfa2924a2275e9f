"""Measure and draw panels of gradient draws.

A panel shows the distribution of a statistic of draws g of a gradient, with a line for each number
of samples. G is the reference gradient, computed by bMC (biased Monte Carlo) with 10 000 samples.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import GUIDE, TICK_STEPS, Tile, log_ticks
from dlmexp.presentation.figures.kinds.kind import STATISTICS
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.figures.panels import Line, Panel
from dlmexp.presentation.figures.stats import statistics

BINS = 60


def measure(panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return the draws of the first repetition that has any, in units of |G|^2.

    Only one repetition is shown because the size of the gradient differs between repetitions.

    Returns:
        The draws, and a point with their mean at the number of samples.
    """
    draws_by_repetition: list[np.ndarray] = []
    for key in rows["key"]:
        draws = results.arrays(key).get(panel.metric, [])
        draws_by_repetition.append(np.asarray(draws, dtype=float))
    has_draws = [bool(np.isfinite(draws).any()) for draws in draws_by_repetition]
    if not any(has_draws):
        return Series(line, notes=["no gradient draws in its records"])
    first = has_draws.index(True)
    row = rows.iloc[first]
    squared_norm = row["norm2_G"]
    # Condition (i) is recorded in units of |G|^2 already, the other statistics are not.
    unit = 1.0 if panel.metric == "condition_i" else squared_norm
    draws = draws_by_repetition[first]
    draws = draws[np.isfinite(draws)] / unit
    # `statistics` takes draws as repetitions, so the numbers of repetitions are set afterwards.
    points = statistics([line.samples or 0], draws[:, None], attempted=len(draws)).assign(
        repetitions=sum(has_draws),
        failed=len(has_draws) - sum(has_draws),
        draws=len(draws),
        seed=row["seed"],
        # In records, bias is |mean of the draws - G|^2.
        bias=row["bias"] / squared_norm,
        error_of_G=_error_of_reference(row, results) / squared_norm,
    )
    return Series(line, points, draws=draws)


def _error_of_reference(row: pd.Series, results: ResultsFolder) -> float:
    """Return an estimate of |G - exact gradient|^2, the error of the reference gradient itself.

    uPS (unbiased product sampling) is unbiased, so the mean of many uPS draws is close to the exact
    gradient: it differs by about 1 % of the error of G. Therefore its squared distance to G is
    nearly the error of G. Its squared distance to the gradient by quadrature, which is the noise of
    the mean, is subtracted. NaN means that there are no uPS draws.
    """
    rows = results.candidates
    belongs = (rows["role"] == "gradient") & (rows["estimator"] == "ups")
    for name in ("dataset", "base", "parameterisation", "beta"):
        belongs &= rows[name] == row[name]
    # Draws of more samples have a more precise mean.
    by_samples = rows.loc[belongs, ["samples", "bias", "bias_quadrature"]].sort_values("samples")
    if by_samples.empty:
        return np.nan
    most_samples = by_samples.iloc[-1]
    # |mean of the draws - G|^2 - |mean of the draws - gradient by quadrature|^2
    return float(most_samples["bias"] - most_samples["bias_quadrature"])


def draw(tiles: Sequence[Tile]) -> None:
    """Draw histograms of one statistic, with the same bins in all of its panels."""
    metric = tiles[0].panel.metric
    bins = _common_bins(tiles)
    for tile in tiles:
        ax = tile.ax
        ax.set(xscale="log", xlabel=STATISTICS[metric], ylabel="share of draws")
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))
        for series in tile.lines:
            _draw_shares(ax, series, bins)
        ax.set(xlim=(bins[0] / 1.15, bins[-1] * 1.15), ylim=(0, None))
        if bins[-1] / bins[0] < 100:
            log_ticks(ax.xaxis)
        _draw_limit(tile, bins)


def _common_bins(tiles: Sequence[Tile]) -> np.ndarray:
    """Return the edges of bins that hold the draws of all panels, equally wide on a log axis."""
    draws_by_line: list[np.ndarray] = []
    for tile in tiles:
        draws_by_line += [series.draws for series in tile.lines]
    values = np.concatenate(draws_by_line)
    return np.geomspace(values.min() / 1.05, values.max() * 1.05, BINS + 1)


def _draw_shares(ax: Axes, series: Series, bins: np.ndarray) -> None:
    """Draw a histogram as a filled outline, which takes a tenth of the time of `Axes.hist`."""
    look = series.line.look
    counts, _ = np.histogram(series.draws, bins)
    shares = counts / len(series.draws)
    # The outline has two corners at each edge of a bin, and begins and ends at 0.
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
    """Draw a guide line: at 1, or at the error of G itself where the statistic is an error.

    Errors of draws below that of G cannot be told from the error of G. The line is left out if it
    lies outside of the bins.
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
