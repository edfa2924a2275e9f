"""Draws a whole figure: panels in a grid, and legends above all of them or above each row; and
effects, whose panels share their rows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlmexp.common import catalogue
from dlmexp.presentation.figures import axes
from dlmexp.presentation.figures.numbers import Measured
from dlmexp.presentation.figures.panels import (
    COLUMN,
    EFFECT_LOOKS,
    GREY,
    INK,
    LOSSES,
    METHOD_LOOKS,
    PAGE,
    TEXT,
    Figure,
)
from dlmexp.presentation.labels import metric_label

PANEL, ALONE, STRIP, LEGEND, EFFECTS = 1.55, 1.9, 0.75, 0.19, 2.5  # inches, of a row and its parts
LETTER, HANDLE = 0.05, 7  # of a legend: inches for a letter, and letters that a handle takes
MARKS = {
    "elbo": "in ELBO alone",
    "joint_log_dlm": "in joint DLM alone",
    "ppgpr": "PPGPR − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}  # what they stand for; their shapes are those of the methods
BAR, PLACE, NUMBER = (
    0.34,
    0.05,
    -0.33,
)  # height of a bar, and from the middle of its row the bar and its number


class Cell:
    """A place in the grid, with the numbers of a panel; protocols side by side have a cell each."""

    ax: Axes
    below: Axes | None = None  # of the differences to the ELBO

    def __init__(self, measured: Measured, row: int, column: int):
        self.row, self.column = row, column
        self.measured, self.series, self.panel = measured, measured.filled, measured.panel
        loss = self.panel.x == "n" and self.panel.metric in LOSSES
        self.has_strip = loss and any("minus_elbo" in one.points for one in self.series)


def render(figure: Figure, measured: list[Measured], protocols: tuple[str, ...]) -> Canvas:
    """Draws a figure at its printed size, with its numbers by panel and by the `protocols` that
    stand side by side; call within `paper_style()`. Panels without results are left out; the rest
    have letters in reading order."""
    cells = _arranged(figure, measured, protocols)
    columns = 1 + max(cell.column for cell in cells)
    by_row = figure.legend == "row" and not protocols
    width = COLUMN if columns == 1 else TEXT
    heights: list[float] = []
    legends: dict[int, list[Line2D]] = {}  # by their row in the grid
    place: list[slice] = []  # of each row of panels
    for row in range(1 + max(cell.row for cell in cells)):
        own = [cell for cell in cells if cell.row == row]
        if handles := _legend(own if by_row else cells) if by_row or row == 0 else []:
            legends[len(heights)] = handles
            heights.append(LEGEND * -(-len(handles) // _across(handles, width)))
        begin = len(heights)
        heights.append(
            EFFECTS if own[0].panel.kind == "effects" else PANEL if columns > 1 else ALONE
        )
        heights += [STRIP] if any(cell.has_strip for cell in own) else []
        place.append(slice(begin, len(heights)))
    canvas = Canvas(figsize=(width, min(sum(heights) + 0.1, PAGE)))
    grid = canvas.add_gridspec(len(heights), columns, height_ratios=heights)
    boxes = {row: canvas.add_subplot(grid[row, :]) for row in legends}
    for row, box in boxes.items():
        box.set_axis_off()
        ncols = _across(legends[row], width)
        legend = box.legend(
            handles=_by_rows(legends[row], ncols), loc="center", ncols=ncols, borderaxespad=0
        )
        legend.set_in_layout(False)
    for cell in cells:
        rows = place[cell.row]
        cell.ax = ax = canvas.add_subplot(grid[rows.start if cell.has_strip else rows, cell.column])
        if cell.has_strip:  # bars have axes of their own
            share = None if cell.measured.single else ax
            cell.below = canvas.add_subplot(grid[rows.start + 1, cell.column], sharex=share)
        if not cell.series:
            ax.set_axis_off()
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color=GREY)
        elif cell.panel.kind == "effects":
            _draw_effects(cell)
        else:
            axes.draw(ax, cell.below, cell.measured)
    titles = [
        cell.ax.set_title(_title(cell, columns, cells, protocols), loc="left") for cell in cells
    ]
    _draw_together([cell for cell in cells if cell.series], protocols)
    ConstrainedLayoutEngine().execute(canvas)  # once, so that the layout is the same in all formats
    for title in titles:
        _fit(title, canvas)
    for box in boxes.values():
        _move_inside(box, canvas)
    return canvas


def _arranged(figure: Figure, measured: list[Measured], protocols: tuple[str, ...]) -> list[Cell]:
    """The cells of the grid: panels in reading order, or a row per panel with a column per protocol
    (of effects, a row per protocol)."""
    shown = list(dict.fromkeys(one.panel for one in measured if one.filled))
    if protocols:
        order = -1 if shown[0].kind == "effects" else 1
        some = [one for one in measured if one.panel in shown]
        return [
            Cell(one, *(shown.index(one.panel), protocols.index(str(one.asked)))[::order])
            for one in some
        ]
    columns = 3 if len(shown) == 3 else min(figure.columns, len(shown))
    cells: list[Cell] = []
    row = column = 0
    for one in (one for one in measured if one.filled):
        asked = one.panel.column
        if asked is not None and columns == figure.columns:
            row, column = (row + 1 if column > asked else row), asked
        elif column >= columns:
            row, column = row + 1, 0
        cells.append(Cell(one, row, column))
        column += 1
    return cells


def _title(cell: Cell, columns: int, cells: list[Cell], protocols: tuple[str, ...]) -> str:
    """`(a) dataset, n = 500`; side by side, the letter and the dataset stand above the first
    protocol alone."""
    protocol = str(cell.measured.asked) if protocols else ""
    if protocol not in protocols[:1] and protocol:
        return protocol
    panel = cell.panel
    panels = list(dict.fromkeys(other.panel for other in cells))
    letter = f"({chr(97 + panels.index(panel))}) " if len(panels) > 1 else ""
    of = catalogue.stands_for(panel.dataset) if columns < 4 and not protocol else None
    dataset = f"{panel.dataset} (for {catalogue.family(of)})" if of else panel.dataset
    usual = (
        panel.kind == "histogram"
        or (panel.kind == "curve" and panel.experiment)
        or panel.x == "samples"
    )
    n = f"n = {cell.measured.n}" if cell.measured.n and not usual else ""
    words = [dataset, panel.title, n, protocol]
    return letter + ("\n" if panel.kind == "effects" else ", ").join(word for word in words if word)


def _draw_together(cells: list[Cell], protocols: tuple[str, ...]) -> None:
    """What panels share: bins of histograms of one statistic, limits of effects of one task and of
    protocols side by side, where only the first has numbers at its axis."""
    groups: dict[tuple[str, object], list[Cell]] = {}
    for cell in cells:
        own = {"histogram": cell.panel.metric, "effects": cell.measured.task}.get(cell.panel.kind)
        groups.setdefault((cell.panel.kind, own or cell.panel), []).append(cell)
    for (kind, metric), group in groups.items():
        above = [cell.ax for cell in group]
        if kind == "histogram":
            axes.draw_histograms(above, [cell.series for cell in group], str(metric))
        elif kind == "effects":
            _same_limits(above, "x")
        elif protocols:
            for several in (above, [cell.below for cell in group if cell.below]):
                _same_limits(several, "xy" if kind == "sizes" else "y")
            for ax in (ax for cell in group if cell.column for ax in (cell.ax, cell.below) if ax):
                ax.set_ylabel("")
                ax.tick_params(labelleft=False)


def _same_limits(several: list[Axes], which: str) -> None:
    """The same limits, so that panels side by side can be compared."""
    for name in which if several else "":
        low, high = np.transpose([getattr(ax, f"get_{name}lim")() for ax in several])
        for ax in several:
            getattr(ax, f"set_{name}lim")(low.min(), high.max())


def _legend(cells: Iterable[Cell]) -> list[Line2D]:
    """Entries for the lines that are drawn, unless they are labelled directly."""
    entries: dict[str, Line2D] = {}
    for cell in cells:
        if cell.panel.kind == "effects":
            return [
                Line2D([], [], linestyle="none", label=text, **_marker(part))
                for part, text in MARKS.items()
            ]
        marked = cell.panel.kind not in ("histogram", "curve")
        for line in (series.line for series in cell.series if not cell.measured.single):
            look = line.look if marked else replace(line.look, marker="", dashes="-")
            if (cell.panel.kind != "curve" or line.names == "beta") and (
                marked or look.label not in entries
            ):
                entries[look.label] = Line2D([], [], **axes.line_style(look))
    order = {look.label: place for place, look in enumerate(METHOD_LOOKS.values())}
    ordered = sorted(entries, key=lambda label: order.get(label, len(order)))
    return [entries[label] for label in ordered]


def _across(handles: list[Line2D], width: float) -> int:
    """How many entries of a legend fit beside each other."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    return min(len(handles), max(int(width / (LETTER * (longest + HANDLE))), 1))


def _by_rows(entries: list[Line2D], across: int) -> list[Line2D]:
    """Entries in the order that makes matplotlib, which fills legends by columns, show them row by
    row."""
    rows = -(-len(entries) // across)
    padded = entries + [Line2D([], [], linestyle="none", label=" ")] * (
        rows * across - len(entries)
    )
    return [padded[row * across + column] for column in range(across) for row in range(rows)]


def _fit(title: Text, canvas: Canvas) -> None:
    """A title that would leave the figure is set smaller: the layout makes no room for titles."""
    assert title.axes is not None
    width = title.get_window_extent().width / canvas.dpi
    room = (1 - title.axes.get_position().x0) * canvas.get_figwidth() - 0.04
    title.set_fontsize(float(title.get_fontsize()) * min(1.0, room / max(width, 1e-6)))


def _move_inside(box: Axes, canvas: Canvas) -> None:
    """A legend whose words would leave the figure on the right, as beside long labels of axes,
    moves to the left."""
    legend, border = box.get_legend(), 0.04 * canvas.dpi
    assert legend is not None
    beyond = legend.get_window_extent().x1 - canvas.bbox.x1
    if beyond > border:  # less of it has no words
        legend.set_bbox_to_anchor(
            (0.5 - (beyond + border) / box.bbox.width, 0.5), transform=box.transAxes
        )


def _draw_effects(cell: Cell) -> None:
    """A row for each effect, the same in all panels; negative, to the left, where DLM gains."""
    ax, names, edges = cell.ax, list(EFFECT_LOOKS), [0.0]
    for one in cell.series:
        row = names.index(one.line.effect) + PLACE
        points = one.points[np.isfinite(one.points["mean"])]
        for point in points[points["part"] == "effect"].itertuples():
            edges += _draw_effect(ax, row, EFFECT_LOOKS[one.line.effect].colour, point)
        marks = points[points["part"] != "effect"]
        for above, (part, mean) in zip(
            (-0.5, 0.5), zip(marks["part"], marks["mean"], strict=True), strict=False
        ):
            ax.plot(
                [mean],
                [row + above * BAR],
                linestyle="none",
                label=f"_{part}",
                zorder=4,
                **_marker(part),
            )
        edges += [*marks["mean"]]
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    low, high = min(edges), max(edges)
    margin = 0.12 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(names) - 0.5, -0.5))
    ax.axhline(2.5, color="#bbbbbb", linewidth=0.5)
    ax.set_yticks(
        range(len(names)), [EFFECT_LOOKS[name].label if cell.column == 0 else "" for name in names]
    )
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 3, 4, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {metric_label(cell.panel.metric)}")


def _draw_effect(ax: Axes, height: float, colour: str, point: Any) -> list[float]:
    """The effect as a bar with its interval, its number above; what has to be in the frame."""
    ax.barh([height], [point.mean], height=BAR, color=colour, alpha=0.85, zorder=2)
    ax.plot([point.low, point.high], [height] * 2, color=INK, linewidth=0.8, zorder=3)
    sure = point.low > 0 or point.high < 0
    lost = f" ({point.repetitions}/{point.repetitions + point.failed})" if point.failed else ""
    ax.text(0.5, height - PLACE + NUMBER, f"{point.mean:+.3f}".replace("-", "−") + lost, ha="center", va="center",
            fontsize=5.5, color=INK if sure else GREY, transform=ax.get_yaxis_transform(),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    # An interval of two or three repetitions can be huge: it may leave the frame.
    near = [
        edge for edge in (point.low, point.high) if abs(edge - point.mean) <= 3 * abs(point.mean)
    ]
    return [point.mean, *near]


def _marker(part: str) -> dict[str, Any]:
    look = METHOD_LOOKS[part]
    how = {"marker": look.marker, "markeredgecolor": look.colour, "markersize": 3.4}
    return {**how, "markerfacecolor": "white", "markeredgewidth": 0.8}
