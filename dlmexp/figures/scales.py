"""Scales, ticks and frames of axes, chosen by what has to be seen."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

WIDE = 12.0  # a range with max / min beyond this is drawn on a log axis
FAR = 25.0  # values beyond so many times the middle half's spread need a compressed axis
STEPS = [1, 2, 2.5, 5, 10]
NEAR = 8.0  # a beta within this factor of the best one, or next to it, is in the frame, whatever its loss
MARGIN = 0.06
TICKS = (
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 7),
    tuple(m / 10 for m in range(10, 100)),
)  # in a decade, until there are enough


def scale_of(values: np.ndarray) -> str:
    """`log` for positive values over a wide range, `symlog` where a few lie far off and some are negative, else
    `linear`."""
    finite = values[np.isfinite(values)]
    if len(finite) < 2 or finite.max() == finite.min():
        return "linear"
    if finite.min() > 0:
        return "log" if finite.max() / finite.min() > WIDE else "linear"
    low, high = np.percentile(finite, [25, 75])
    return "symlog" if finite.max() - finite.min() > FAR * max(high - low, 1e-3) else "linear"


def compact(value: float, _position: Any = None) -> str:
    """500, 1k, 11k, 2M: short tick labels."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def log_x(ax: Axes, label: str, formatter: Any = None) -> None:
    """A log axis; with a formatter, ticks at 1, 2 and 5 times powers of ten."""
    ax.set_xscale("log")
    ax.set_xlabel(label)
    if formatter is not None:
        if ax.dataLim.x0 == ax.dataLim.x1:  # a single size
            ax.set_xlim(ax.dataLim.x0 / 2, ax.dataLim.x0 * 2)
        low, high = ax.dataLim.x0, ax.dataLim.x1
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
        if len(round_numbers(low, high, TICKS[0])) < 2:  # then the ends tell more
            ax.xaxis.set_major_locator(FixedLocator([low] if low == high else [low, high]))
        ax.xaxis.set_major_formatter(FuncFormatter(formatter))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.xaxis.set_major_locator(LogLocator(numticks=6))
        ax.xaxis.set_minor_formatter(NullFormatter())


def scale_y(ax: Axes, means: np.ndarray, may_be_log: bool, log: bool = False) -> None:
    """Linear, log or symlog; `log`: a log axis if it is possible. What goes down towards 0, and perhaps below it, is
    never on a plain log axis (`may_be_log`)."""
    positive = bool(np.isfinite(means).any()) and float(np.nanmin(means)) > 0
    scale = "log" if log and positive else scale_of(means)
    if scale == "linear" or (scale == "log" and not may_be_log):
        ax.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
        return
    if scale == "symlog":
        middle = np.percentile(np.abs(means[np.isfinite(means)]), 75)
        ax.set_yscale("symlog", linthresh=max(float(middle), 1e-3))
        return
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high / low < 100:  # under two decades: the powers of ten alone would leave the axis nearly bare
        ax.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())


def tick_zero(ax: Axes, place: float) -> None:
    """A log axis with a tick for 0 at `place`, left of the powers of ten or, where there are none, of other round
    numbers."""
    low, high = 1.5 * place, ax.get_xlim()[1]
    if powers := round_numbers(low, high, (1,)):
        shown = powers[:: -(-len(powers) // 5)]
        labels = [f"$10^{{{round(math.log10(value))}}}$" for value in shown]
    else:
        shown = log_ticks(low, high, enough=1)
        labels = [f"{value:g}" for value in shown]
    ax.set_xticks([place, *shown], ["0", *labels])
    ax.xaxis.set_minor_locator(NullLocator())


def round_numbers(low: float, high: float, steps: Iterable[float]) -> list[float]:
    """All of `steps` times powers of ten from `low` to `high`."""
    return [m * 10.0**e for e in range(-9, 10) for m in steps if low <= m * 10.0**e <= high]


def few_ticks(low: float, high: float) -> list[float]:
    """0, and a round number on each side that has room for it: for a narrow axis with 0 on it."""
    widest = max(abs(low), abs(high))
    step = max(round_numbers(widest / 10, widest, (1, 2, 5)), default=0.0)
    return [tick for tick in dict.fromkeys((-step, 0.0, step)) if low <= tick <= high]


def log_ticks(low: float, high: float, enough: int = 3) -> list[float]:
    """Round numbers between `low` and `high`, as round as leaves enough of them, and no more than six."""
    ticks: list[float] = []
    for steps in TICKS:
        ticks = round_numbers(low, high, steps)
        if len(ticks) >= enough:
            break
    return ticks[:: -(-len(ticks) // 6)] if ticks else []


def frame(ax: Axes, points: pd.DataFrame, error: str) -> None:
    """Just what these points and their bands need, so that small differences at the end can be seen."""
    bar = points[error].fillna(0.0)
    low, high = (points["mean"] - bar).min(), (points["mean"] + bar).max()
    if low < high:
        ax.set_ylim(low - MARGIN * (high - low), high + MARGIN * (high - low))


def frame_of_height(ax: Axes, several: list[pd.DataFrame], height: float) -> None:
    """A frame of a given height around where the curves end: half their length counts, a spike on the way does not."""
    ends = [some[some["x"] >= some["x"].max() / 2]["mean"] for some in several if len(some)]
    if levels := [float(np.nanmedian(end)) for end in ends if end.notna().any()]:
        low = min(levels)
        ax.set_ylim(low - 0.35 * height, low + 0.65 * height)


def frame_of_optimum(ax: Axes, several: list[pd.DataFrame], error: str) -> bool:
    """A frame around the lowest points of lines against beta, so that they can be told apart; whether something of the
    lines is outside. Lines without a beta are inside, and so is where the validation metric is lowest."""
    edges, everything = [], []
    for points in several:
        points = points[points["mean"].notna()].sort_values("x")
        if points.empty:
            continue
        at = int(np.argmin(points["mean"].to_numpy(dtype=float)))
        best = float(points["x"].to_numpy(dtype=float)[at])
        near = points["x"].isna() | points["x"].between(best / NEAR, best * NEAR)
        near |= np.abs(np.arange(len(points)) - at) <= 1  # itself and, however far apart betas are, its neighbours
        near |= points["validation"] == points["validation"].min()
        bar = points[error].fillna(0.0)
        edges += [*(points["mean"] - bar)[near], *(points["mean"] + bar)[near]]
        everything += [*points["mean"]]
    if not edges or min(edges) == max(edges):
        return False
    low, high = min(edges), max(edges)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if max(everything) <= low + 2.5 * (high - low):  # nothing is far off
        return False
    ax.set_ylim(low, high)
    return True
