"""Draws a whole figure: panels in a grid, and legends above all of them or above each row."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text

from dlmexp import catalogue
from dlmexp.figures import axes, effects, style
from dlmexp.figures.numbers import Measured, Series
from dlmexp.figures.style import Look

if TYPE_CHECKING:
    from dlmexp.figures.plot import Drawn

PANEL, STRIP, LEGEND, EFFECTS = 1.55, 0.75, 0.19, 2.5  # inches, of a row and its parts
ENTRIES = {1: 4, 2: 7}  # of a legend in one line, by the number of columns (more: as 2)


@dataclass(frozen=True)
class Cell:
    """A place in the grid: a panel under the `column`-th of the protocols side by side."""

    panel: int
    row: int
    column: int
    measured: list[Measured]  # by folder
    protocol: str = ""
    first: bool = True  # of the protocols of its panel

    @property
    def empty(self) -> bool:
        return all(one.empty for one in self.measured)

    @property
    def kind(self) -> str:
        return self.measured[0].panel.kind

    @property
    def has_strip(self) -> bool:
        several = (series for one in self.measured for series in one.series)
        return self.measured[0].panel.has_differences and any("minus_elbo" in series.points for series in several)


def render(drawn: "Drawn", wanted: float | None = None) -> Canvas:
    """Draws the figure at its printed size, or at a width in inches that is wanted; call within `style.use()`. Panels
    without results are left out; the rest have letters in reading order."""
    cells, columns = _arranged(drawn)
    rows = 1 + max(cell.row for cell in cells)
    by_row = drawn.figure.legend == "row" and not drawn.protocols
    legends: dict[int, list[Line2D]] = {}
    for row in range(rows if by_row else 1):
        legends[row] = _legend(drawn, [cell for cell in cells if cell.row == row or not by_row])
    across = ENTRIES.get(columns, ENTRIES[2])
    heights: list[float] = []
    place: dict[int, tuple[int, int]] = {}  # row -> where in the grid it begins and ends
    for row in range(rows):
        if legends.get(row):
            heights.append(LEGEND * -(-len(legends[row]) // across))
        own = [cell for cell in cells if cell.row == row]
        begin = len(heights)
        heights.append(EFFECTS if own[0].kind == "effects" else PANEL if columns > 1 else 1.9)
        heights += [STRIP] if any(cell.has_strip for cell in own) else []
        place[row] = begin, len(heights)
    width, height = style.COLUMN if columns == 1 else style.TEXT, min(sum(heights) + 0.1, style.PAGE)
    if wanted is not None:
        width, height = wanted, height * wanted / width
    canvas = Canvas(figsize=(width, height), layout="constrained")
    grid = canvas.add_gridspec(len(heights), columns, height_ratios=heights)
    for row, handles in legends.items():
        if handles:
            box = canvas.add_subplot(grid[place[row][0] - 1, :])
            box.set_axis_off()
            ncols = min(across, len(handles))
            entries = _by_rows(handles, ncols)
            box.legend(handles=entries, loc="center", ncols=ncols, borderaxespad=0).set_in_layout(False)
    pairs: list[tuple[Cell, Axes, Axes | None]] = []
    titles: list[Text] = []
    for cell in cells:
        begin, end = place[cell.row]
        split = cell.has_strip and not cell.empty
        ax = canvas.add_subplot(grid[begin if split else slice(begin, end), cell.column])
        bars = split and len({x for one in cell.measured for s in one.series for x in s.points.get("x", ())}) == 1
        below = canvas.add_subplot(grid[begin + 1, cell.column], sharex=None if bars else ax) if split else None
        titles.append(ax.set_title(_title(cell, columns, cells), loc="left"))
        _draw(ax, below, cell, drawn)
        if not cell.empty:
            pairs.append((cell, ax, below))
    _draw_together(pairs, drawn)
    # The layout is computed once, so that it is the same in all formats.
    if (engine := canvas.get_layout_engine()) is not None:
        engine.execute(canvas)
    canvas.set_layout_engine("none")
    for title in titles:
        _fit(title, canvas)
    return canvas


def _arranged(drawn: "Drawn") -> tuple[list[Cell], int]:
    """The cells of the grid, and its number of columns: panels in reading order, or a row per panel with a column per
    protocol (of effects, a row per protocol)."""
    shown = [i for i, of in enumerate(drawn.measured) if not all(one.empty for column in of for one in column)]
    cells: list[Cell] = []
    if names := drawn.protocols:
        transposed = drawn.measured[shown[0]][0][0].panel.kind == "effects"
        for place, i in enumerate(shown):
            for k, name in enumerate(names):
                row, column = (k, place) if transposed else (place, k)
                cells.append(Cell(i, row, column, drawn.measured[i][k], name, k == 0))
        return cells, len(shown) if transposed else len(names)
    columns = 3 if len(shown) == 3 else min(drawn.figure.columns, len(shown))
    row = column = 0
    for i in shown:
        asked = drawn.measured[i][0][0].panel.column
        if asked is not None and columns == drawn.figure.columns:
            row, column = (row + 1 if column > asked else row), asked
        elif column >= columns:
            row, column = row + 1, 0
        cells.append(Cell(i, row, column, drawn.measured[i][0]))
        column += 1
    return cells, columns


def _title(cell: Cell, columns: int, cells: list[Cell]) -> str:
    """`(a) dataset, n = 500`; side by side, the letter and the dataset stand above the first protocol alone."""
    one = next((one for one in cell.measured if not one.empty), cell.measured[0])
    at_one_size = cell.kind in ("betas", "reliability", "effects") or (
        cell.kind == "curve" and not one.panel.experiment
    )
    size = f"n = {one.n}" if at_one_size and one.n else ""
    panels = list(dict.fromkeys(other.panel for other in cells))
    letter = f"({chr(97 + panels.index(cell.panel))}) " if len(panels) > 1 else ""
    if cell.protocol and not cell.first and cell.kind != "effects":
        return cell.protocol
    of = catalogue.stands_for(one.panel.dataset) if columns < 4 and not cell.protocol else None
    dataset = f"{one.panel.dataset} (for {catalogue.family(of)})" if of else one.panel.dataset
    words = [dataset, one.panel.title, size]
    if cell.kind == "effects":
        words = [one.panel.dataset, size, cell.protocol] if cell.first else [cell.protocol]
        return (letter if cell.first else "") + "\n".join(word for word in words if word)
    return letter + ", ".join(word for word in [*words, cell.protocol] if word)


def _draw(ax: Axes, below: Axes | None, cell: Cell, drawn: "Drawn") -> None:
    if cell.empty:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color=style.GREY)
        return
    together = [(series, _look(series, drawn)) for one in cell.measured for series in one.series if not series.empty]
    one = next(one for one in cell.measured if not one.empty)
    if cell.kind == "effects":
        effects.draw(ax, one.panel, [series for series, _ in together], cell.column == 0)
    else:
        axes.draw(ax, below, one, together, drawn.error, one.task)


def _look(series: Series, drawn: "Drawn") -> Look:
    look = series.line.look
    return style.folder_look(look, drawn.folders.index(series.folder)) if drawn.folders else look


def _draw_together(pairs: list[tuple[Cell, Axes, Axes | None]], drawn: "Drawn") -> None:
    """What panels share: bins of histograms of one statistic, limits of effects of one task and of protocols side by
    side, where only the first has numbers at its axis."""
    for metric in dict.fromkeys(cell.measured[0].panel.metric for cell, *_ in pairs if cell.kind == "histogram"):
        own = [(cell, ax) for cell, ax, _ in pairs if cell.kind == "histogram" and _metric(cell) == metric]
        several = [
            [(s, _look(s, drawn)) for one in cell.measured for s in one.series if not s.empty] for cell, _ in own
        ]
        axes.draw_histograms([ax for _, ax in own], several, metric)
    for task in dict.fromkeys(cell.measured[0].task for cell, *_ in pairs if cell.kind == "effects"):
        _same_limits([ax for cell, ax, _ in pairs if cell.measured[0].task == task], "x")
    if not drawn.protocols:
        return
    for panel in dict.fromkeys(cell.panel for cell, *_ in pairs if cell.kind != "effects"):
        own = [(cell, ax, below) for cell, ax, below in pairs if cell.panel == panel]
        for together in ([ax for _, ax, _ in own], [below for *_, below in own if below is not None]):
            _same_limits(together, "y" if own[0][0].kind in ("curve", "histogram") else "xy")
        for cell, ax, below in own:
            for one in (ax, below) if not cell.first else ():
                if one is not None:
                    one.set_ylabel("")
                    one.tick_params(labelleft=False)


def _metric(cell: Cell) -> str:
    return cell.measured[0].panel.metric


def _same_limits(several: list[Axes], which: str) -> None:
    """The same limits, so that panels side by side can be compared."""
    for name in which if several else "":
        limits = np.array([getattr(ax, f"get_{name}lim")() for ax in several])
        for ax in several:
            getattr(ax, f"set_{name}lim")(limits[:, 0].min(), limits[:, 1].max())


def _legend(drawn: "Drawn", cells: Iterable[Cell]) -> list[Line2D]:
    """Entries for the lines that are drawn, unless they are labelled directly; then the dashes of folders."""
    entries: dict[str, Line2D] = {}
    for cell in cells:
        if cell.kind == "effects":
            return effects.legend()
        lines = [s for one in cell.measured for s in one.series if not s.empty]
        if cell.kind == "sizes" and len({x for s in lines for x in s.points["x"]}) == 1:
            continue  # bars, which have their names beside them
        for series in lines:
            labelled = series.line.names != "beta" and cell.measured[0].panel.labels_ends
            marked = cell.kind not in ("histogram", "curve")
            look = replace(series.line.look, dashes="-") if drawn.folders or not marked else series.line.look
            handle: dict[str, Any] = axes.line_style(look if marked else replace(look, marker=""))
            if not labelled and (marked or look.label not in entries):
                entries[look.label] = Line2D([], [], **handle)
    order = [look.label for look in style.METHODS.values()]
    ordered = sorted(entries, key=lambda label: order.index(label) if label in order else len(order))
    found = [entries[label] for label in ordered]
    for position, folder in enumerate(drawn.folders):
        dashes = style.folder_look(style.METHODS["elbo"], position).dashes
        found.append(Line2D([], [], color=style.INK, linestyle=dashes, label=folder))
    return found


def _by_rows(entries: list[Line2D], across: int) -> list[Line2D]:
    """Entries in the order that makes matplotlib, which fills legends by columns, show them row by row."""
    rows = -(-len(entries) // across)
    padded = entries + [Line2D([], [], linestyle="none", label=" ")] * (rows * across - len(entries))
    return [padded[row * across + column] for column in range(across) for row in range(rows)]


def _fit(title: Text, canvas: Canvas) -> None:
    """A title that would leave the figure is set smaller: the layout makes no room for titles."""
    assert title.axes is not None
    width = title.get_window_extent().width / canvas.dpi
    room = (1 - title.axes.get_position().x0) * canvas.get_figwidth() - 0.04
    title.set_fontsize(float(title.get_fontsize()) * min(1.0, room / max(width, 1e-6)))
