"""Draw panels of differences to the ELBO of the same repetitions, with a row for each line.

Here a line of a panel (`Line`) is a row of marks, one for each training size, with intervals. The
mark of the smallest size is open; marks of larger sizes are filled. The numbers are those of panels
of kind `sizes`.
"""

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dlmexp.presentation.figures.axes import TICK_STEPS, Tile
from dlmexp.presentation.figures.kinds.sizes import measure as measure
from dlmexp.presentation.figures.looks import INK
from dlmexp.presentation.figures.numbers import Series
from dlmexp.presentation.labels import metric_label

LABEL_WIDTH = 22  # letters in a line of text of a label
LABEL_SIZE = 5.5  # font size
SPREAD = 0.44  # from the first mark of a row to the last, as a share of the height of a row


def legend() -> list[Line2D]:
    """Return the entries of the legend: open marks, filled marks and intervals."""
    return [
        _mark(INK, is_open=True, label="fewer training rows n"),
        _mark(INK, is_open=False, label="more training rows n"),
        Line2D([], [], color=INK, linewidth=0.9, label="95 % interval (left of 0: below ELBO)"),
    ]


def _mark(colour: str, is_open: bool, label: str = "_mark") -> Line2D:
    """Return a mark without a position. All marks have the same shape, as rows have labels."""
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
    """Draw each panel. Panels side by side have the same rows, labelled at the left."""
    for row_of_tiles in sorted({tile.row for tile in tiles}):
        side_by_side = [tile for tile in tiles if tile.row == row_of_tiles]
        labels = _labels(side_by_side)
        first_column = min(tile.column for tile in side_by_side)
        for tile in side_by_side:
            _draw_panel(tile, labels, has_labels=tile.column == first_column)


def _labels(tiles: Iterable[Tile]) -> list[str]:
    """Return the labels of all lines that have differences, in the order of the panels."""
    labels: dict[str, None] = {}  # an ordered set
    for tile in tiles:
        for series in _with_differences(tile):
            labels[series.line.look.label] = None
    return list(labels)


def _with_differences(tile: Tile) -> list[Series]:
    """Return the lines of a panel that have differences to the ELBO."""
    return [series for series in tile.lines if "minus_elbo" in series.points]


def _draw_panel(tile: Tile, labels: list[str], has_labels: bool) -> None:
    """Draw a panel with a row for each label; rows whose line the panel lacks are empty.

    Args:
        tile: The panel with its axes.
        labels: The labels of the rows from top to bottom.
        has_labels: Whether the labels are written at the axis.
    """
    ax = tile.ax
    compared = _with_differences(tile)
    # Without differences the panel is empty, but its axis still names the sizes.
    sizes = np.unique(np.concatenate([series.points["x"] for series in compared or tile.lines]))
    for series in compared:
        _draw_row(ax, labels.index(series.line.look.label), series, sizes)
    ax.axvline(0.0, color=INK, linewidth=0.8, zorder=1)
    words = [textwrap.fill(label, LABEL_WIDTH) if has_labels else "" for label in labels]
    ax.set_yticks(range(len(labels)), words, fontsize=LABEL_SIZE)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))
    size_words = " and ".join(f"{size:g}" for size in sizes)
    ax.set_xlabel(f"Δ {metric_label(tile.panel.metric)} vs ELBO, n = {size_words}")


def _draw_row(ax: Axes, row: int, series: Series, sizes: np.ndarray) -> None:
    """Draw the differences of a line with their intervals, the smallest size on top."""
    colour = series.line.look.colour
    points = series.points.dropna(subset=["minus_elbo"])
    for size, mean, low, high in points[["x", "minus_elbo", "low", "high"]].to_numpy(dtype=float):
        size_number = int(np.searchsorted(sizes, size))  # 0 for the smallest size
        share_of_spread = size_number / max(len(sizes) - 1, 1)
        height = row + SPREAD * (share_of_spread - 0.5)
        ax.plot([low, high], [height] * 2, color=colour, linewidth=0.9)
        mark = _mark(colour, is_open=size_number == 0)
        mark.set_data([mean], [height])
        ax.add_line(mark)
