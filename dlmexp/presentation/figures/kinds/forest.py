"""Panels of differences to the ELBO of the same repetitions: a row for each method.

A row has a mark with its interval for each training size: open for the smallest, filled for the
others.
"""

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dlmexp.presentation.figures.axes import STEPS, Tile
from dlmexp.presentation.figures.kinds.sizes import measure as measure
from dlmexp.presentation.figures.looks import INK
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.labels import metric_label

LABEL_WIDTH = 22  # letters in a line of the name of a row
LABEL_SIZE = 5.5
SPREAD = 0.44  # of the distance between two rows: from the first mark of a row to its last


def legend() -> list[Line2D]:
    """Return what open and filled marks and their lines stand for."""
    return [
        _mark(INK, is_open=True, label="fewer training rows n"),
        _mark(INK, is_open=False, label="more training rows n"),
        Line2D([], [], color=INK, linewidth=0.9, label="95 % interval (left of 0: below ELBO)"),
    ]


def _mark(colour: str, is_open: bool, label: str = "_mark") -> Line2D:
    """Return a mark that is not drawn yet; rows have names, so all marks have one shape."""
    return Line2D(
        [],
        [],
        linestyle="none",
        marker="o",
        color=colour,
        markerfacecolor="white" if is_open else colour,
        markersize=3.2,
        label=label,
        zorder=3,
    )


def draw(tiles: Sequence[Tile]) -> None:
    """Draw each panel; those side by side have the same rows, named at the left."""
    for row in sorted({tile.row for tile in tiles}):
        in_row = [tile for tile in tiles if tile.row == row]
        labels = _labels(in_row)
        first = min(tile.column for tile in in_row)
        for tile in in_row:
            _draw_panel(tile, labels, is_named=tile.column == first)


def _labels(tiles: Iterable[Tile]) -> list[str]:
    """Return the names of all lines that have differences, in the order of the panels."""
    labels: dict[str, None] = {}
    for tile in tiles:
        compared = [series for series in tile.lines if "minus_elbo" in series.points]
        labels |= dict.fromkeys(series.line.look.label for series in compared)
    return list(labels)


def _draw_panel(tile: Tile, labels: list[str], is_named: bool) -> None:
    ax = tile.ax
    compared = [series for series in tile.lines if "minus_elbo" in series.points]
    sizes = np.unique(np.concatenate([series.points["x"] for series in compared or tile.lines]))
    for series in compared:
        _draw_row(ax, labels.index(series.line.look.label), series, sizes)
    ax.axvline(0.0, color=INK, linewidth=0.8, zorder=1)
    names = [textwrap.fill(label, LABEL_WIDTH) if is_named else "" for label in labels]
    ax.set_yticks(range(len(labels)), names, fontsize=LABEL_SIZE)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    values = " and ".join(f"{size:g}" for size in sizes)
    ax.set_xlabel(f"Δ {metric_label(tile.panel.metric)} vs ELBO, n = {values}")


def _draw_row(ax: Axes, row: int, series: Series, sizes: np.ndarray) -> None:
    """Draw the differences of a line with their intervals, from the smallest size down."""
    colour = series.line.look.colour
    points = series.points.dropna(subset=["minus_elbo"])
    for size, mean, low, high in points[["x", "minus_elbo", "low", "high"]].to_numpy(dtype=float):
        number = int(np.searchsorted(sizes, size))
        height = row + SPREAD * (number / max(len(sizes) - 1, 1) - 0.5)
        ax.plot([low, high], [height] * 2, color=colour, linewidth=0.9)
        mark = _mark(colour, is_open=number == 0)
        mark.set_data([mean], [height])
        ax.add_line(mark)
