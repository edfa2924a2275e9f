"""Draws a whole figure: panels in a grid, with legends above all of them or above each row."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from dlmexp.common import catalogue
from dlmexp.common.plugin_errors import plugin_errors_as_user_errors
from dlmexp.presentation.figures.axes import Tile, line_style
from dlmexp.presentation.figures.kinds.kind import LOSSES, PanelKind
from dlmexp.presentation.figures.looks import COLUMN, INK, METHOD_LOOKS, PAGE, TEXT
from dlmexp.presentation.figures.notes import usual_repetitions
from dlmexp.presentation.figures.numbers import Measured
from dlmexp.presentation.figures.panels import Figure, Line, Panel

# Heights of rows of the grid, in inches.
PANEL_HEIGHT = 1.55
SINGLE_COLUMN_HEIGHT = 1.9
STRIP_HEIGHT = 0.75
LEGEND_HEIGHT = 0.19  # of each of its lines
EDGE = 0.04  # inches that stay free at the right edge of the figure
LETTER = 0.05  # inches of a letter in a legend
HANDLE = 7  # letters that a handle takes


@dataclass(frozen=True, eq=False)
class Place:
    """Where the numbers of a panel are drawn: a row and a column of panels."""

    measured: Measured
    row: int
    column: int

    @property
    def panel(self) -> Panel:
        """The panel that is drawn here."""
        return self.measured.panel

    @property
    def has_strip(self) -> bool:
        """Whether differences to the ELBO are drawn below the panel."""
        panel = self.panel
        if not panel.facts.has_strip or panel.x != "n" or panel.metric not in LOSSES:
            return False
        return any("minus_elbo" in series.points for series in self.measured.filled)


def render(figure: Figure, measured: Sequence[Measured], protocols: tuple[str, ...]) -> Canvas:
    """Return a figure drawn at its printed size; call it within `paper_style()`.

    Panels without results are left out; the others have letters in reading order.

    Args:
        figure: What is drawn.
        measured: The numbers of its panels; of each panel under each protocol, where protocols
            stand side by side.
        protocols: The protocols that stand side by side, if any.
    """
    places = _arrange(figure, measured, protocols)
    by_row = figure.legend == "row" and not protocols
    grid = _divide(places, by_row)
    canvas, legends, tiles = _make_axes(grid, places)
    titles = [_set_title(tile, grid.columns, places, protocols) for tile in tiles]
    _draw_panels(tiles, protocols)
    ConstrainedLayoutEngine().execute(canvas)  # once, so that the layout is the same in all formats
    _fit_titles(titles, canvas)
    for box in legends:
        _move_inside(box, canvas)
    return canvas


def _arrange(
    figure: Figure, measured: Sequence[Measured], protocols: tuple[str, ...]
) -> list[Place]:
    """Return the panels that have results, with their places."""
    with_results = [numbers for numbers in measured if numbers.filled]
    if protocols:
        return _arrange_protocols(measured, with_results, protocols)
    return _arrange_panels(figure, with_results)


def _arrange_protocols(
    measured: Sequence[Measured], with_results: Sequence[Measured], protocols: tuple[str, ...]
) -> list[Place]:
    """Return a row for each panel and a column for each protocol.

    Panels that compare methods have a column each, and protocols a row.
    """
    panels = list(dict.fromkeys(numbers.panel for numbers in with_results))
    protocols_by_row = panels[0].facts.compares_methods
    places: list[Place] = []
    for numbers in measured:
        if numbers.panel not in panels:
            continue
        panel_number = panels.index(numbers.panel)
        protocol_number = protocols.index(str(numbers.requested_protocol))
        if protocols_by_row:
            places.append(Place(numbers, row=protocol_number, column=panel_number))
        else:
            places.append(Place(numbers, row=panel_number, column=protocol_number))
    return places


def _arrange_panels(figure: Figure, with_results: Sequence[Measured]) -> list[Place]:
    """Return panels in reading order; a panel that asks for a column stands in that column.

    Where fewer panels than columns have results, the figure is narrower, and no panel may ask for a
    column.
    """
    panel_count = len({numbers.panel for numbers in with_results})
    # Three panels have three columns, whatever the figure has.
    columns = 3 if panel_count == 3 else min(figure.columns, panel_count)
    places: list[Place] = []
    row = 0
    column = 0
    for numbers in with_results:
        wanted = numbers.panel.column
        if wanted is not None and columns == figure.columns:
            if column > wanted:
                row += 1
            column = wanted
        elif column >= columns:
            row += 1
            column = 0
        places.append(Place(numbers, row, column))
        column += 1
    return places


@dataclass(frozen=True)
class Grid:
    """How a figure is divided: lines of the grid with their heights, and what stands in them.

    Attributes:
        columns: Number of columns of panels.
        width: Of the figure, in inches.
        heights: Of the lines from top to bottom, in inches.
        legends: The entries of legends, by their line.
        panel_lines: First and last line of each row of panels: the line of the panels and that of
            their strips. Both are the same where no panel of the row has a strip.
    """

    columns: int
    width: float
    heights: list[float]
    legends: dict[int, list[Line2D]]
    panel_lines: list[tuple[int, int]]


def _divide(places: Sequence[Place], by_row: bool) -> Grid:
    """Return the grid of a figure, with a legend above all panels or above each row of them."""
    columns = 1 + max(place.column for place in places)
    width = COLUMN if columns == 1 else TEXT
    grid = Grid(columns, width, heights=[], legends={}, panel_lines=[])
    if not by_row:
        _add_legend_line(grid, places)
    for in_row in _rows_of_places(places):
        if by_row:
            _add_legend_line(grid, in_row)
        _add_panel_lines(grid, in_row)
    return grid


def _rows_of_places(places: Iterable[Place]) -> list[list[Place]]:
    """Return the places of each row, from top to bottom."""
    rows: dict[int, list[Place]] = {}
    for place in places:
        rows.setdefault(place.row, []).append(place)
    return [rows[number] for number in sorted(rows)]


def _add_legend_line(grid: Grid, places: Sequence[Place]) -> None:
    """Add a line with the legend of panels, unless all they show is labelled directly."""
    handles = _legend_entries(places)
    if not handles:
        return
    line = len(grid.heights)
    lines_of_text = math.ceil(len(handles) / _entries_across(handles, grid.width))
    grid.legends[line] = handles
    grid.heights.append(LEGEND_HEIGHT * lines_of_text)


def _add_panel_lines(grid: Grid, in_row: Sequence[Place]) -> None:
    """Add the line of a row of panels, and one for their strips where a panel has one."""
    first = len(grid.heights)
    grid.heights.append(_panel_height(in_row[0].panel.facts, grid.columns))
    if any(place.has_strip for place in in_row):
        grid.heights.append(STRIP_HEIGHT)
    grid.panel_lines.append((first, len(grid.heights) - 1))


def _panel_height(facts: PanelKind, columns: int) -> float:
    """Return the height of panels of a kind, in inches, in a figure with so many columns."""
    if facts.height:
        return facts.height
    if columns == 1:
        return SINGLE_COLUMN_HEIGHT
    return PANEL_HEIGHT


def _make_axes(grid: Grid, places: Sequence[Place]) -> tuple[Canvas, list[Axes], list[Tile]]:
    """Return the canvas, the axes of its legends, and its panels with their axes."""
    height = min(sum(grid.heights) + 0.1, PAGE)
    canvas = Canvas(figsize=(grid.width, height))
    lines = canvas.add_gridspec(len(grid.heights), grid.columns, height_ratios=grid.heights)
    legends: list[Axes] = []
    for line, handles in grid.legends.items():
        box = canvas.add_subplot(lines[line, :])
        _draw_legend(box, handles, grid.width)
        legends.append(box)
    tiles = [_make_tile(place, canvas, lines, grid.panel_lines[place.row]) for place in places]
    return canvas, legends, tiles


def _make_tile(place: Place, canvas: Canvas, lines: GridSpec, span: tuple[int, int]) -> Tile:
    """Return a panel with its axes, and with those of its strip where it has one.

    A panel without a strip is as high as the others of its row with theirs.
    """
    first, last = span
    if not place.has_strip:
        ax = canvas.add_subplot(lines[first : last + 1, place.column])
        return Tile(place.measured, place.row, place.column, ax)
    ax = canvas.add_subplot(lines[first, place.column])
    shared = None if place.measured.has_single_size else ax  # bars have x-axes of their own
    below = canvas.add_subplot(lines[last, place.column], sharex=shared)
    return Tile(place.measured, place.row, place.column, ax, below)


def _set_title(
    tile: Tile, columns: int, places: Sequence[Place], protocols: tuple[str, ...]
) -> Text:
    """Set the title of a panel above its left end, and return it."""
    letter = _letter(tile.panel, places)
    repetitions = _repetitions(tile.measured, [place.measured for place in places])
    protocol = str(tile.measured.requested_protocol)
    if not protocols:
        has_room = columns < 4  # for the dataset that a stand-in stands for
        title = letter + _title(tile.measured, has_room, repetitions)
    elif protocol == protocols[0]:
        title = letter + _title(tile.measured, False, repetitions, protocol)
    else:
        # The letter and the dataset stand above the first protocol alone.
        title = _separator(tile.panel).join(filter(None, [protocol, repetitions]))
    return tile.ax.set_title(title, loc="left")


def _letter(panel: Panel, places: Sequence[Place]) -> str:
    """Return `(a) ` for the first panel; nothing where there is only one."""
    panels = list(dict.fromkeys(place.panel for place in places))
    if len(panels) == 1:
        return ""
    letter = chr(ord("a") + panels.index(panel))
    return f"({letter}) "


def _repetitions(measured: Measured, others: Iterable[Measured]) -> str:
    """Return `R = 10`, the repetitions of a panel; '' where all panels have the same number."""
    counts = {usual_repetitions(numbers) for numbers in others} - {0}
    count = usual_repetitions(measured)
    return f"R = {count}" if len(counts) > 1 and count else ""


def _title(measured: Measured, stands_for: bool, repetitions: str = "", protocol: str = "") -> str:
    """Return `dataset, n = 500, R = 10`, with the panel's own title where there is one.

    Args:
        measured: The numbers of the panel.
        stands_for: Whether the dataset is named that a stand-in stands for.
        repetitions: `R = 10`, where panels differ in it.
        protocol: The protocol, where protocols stand side by side.
    """
    panel = measured.panel
    dataset = panel.dataset
    paper_dataset = catalogue.stands_for(dataset)
    if stands_for and paper_dataset:
        dataset = f"{dataset} (for {catalogue.family(paper_dataset)})"
    size = f"n = {measured.n}" if measured.n and _names_size(panel) else ""
    counts = ", ".join(filter(None, [size, repetitions]))
    return _separator(panel).join(filter(None, [dataset, panel.title, counts, protocol]))


def _separator(panel: Panel) -> str:
    """Return what stands between the parts of a title; panels of effects are narrow."""
    return "\n" if panel.facts.compares_methods else ", "


def _names_size(panel: Panel) -> bool:
    """Return whether the title names the size; curves of our experiments have usual sizes."""
    is_our_curve = panel.kind == "curve" and bool(panel.experiment)
    return panel.facts.has_n_in_title and not is_our_curve and panel.x != "samples"


def _draw_panels(tiles: Sequence[Tile], protocols: tuple[str, ...]) -> None:
    """Draw all panels, those that share a scale together."""
    with_results: list[Tile] = []
    for tile in tiles:
        if tile.lines:
            with_results.append(tile)
        else:
            _mark_as_not_run(tile)
    for group in _groups_with_one_scale(with_results):
        facts = group[0].panel.facts
        with plugin_errors_as_user_errors(f"panel '{group[0].panel.kind}'"):
            facts.load().draw(group)
        if facts.scale == "task":
            _share_limits(group, facts.shared_limits)
        elif facts.scale == "panel" and protocols:
            # One panel under several protocols; the numbers at the axis of the first serve for all.
            _share_limits(group, facts.shared_limits)
            _keep_first_labels(group)


def _mark_as_not_run(tile: Tile) -> None:
    """Draw a light box with the reason why a panel has no results."""
    ax = tile.ax
    ax.set_axis_off()
    ax.add_patch(Rectangle((0, 0), 1, 1, transform=ax.transAxes, facecolor="#f0f0f0"))
    was_run = tile.measured.protocol is not None
    reason = "no result has\nthis metric" if was_run else "not run under\nthis protocol"
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color=INK)


def _groups_with_one_scale(tiles: Sequence[Tile]) -> list[list[Tile]]:
    """Return panels in groups, each of one kind and of what panels of this kind share."""
    groups: dict[tuple[str, object], list[Tile]] = {}
    for tile in tiles:
        panel = tile.panel
        shared = {"panel": panel, "metric": panel.metric, "task": tile.measured.task}
        key = (panel.kind, shared[panel.facts.scale])
        groups.setdefault(key, []).append(tile)
    return list(groups.values())


def _share_limits(tiles: Sequence[Tile], which: str) -> None:
    """Give panels, and their strips, the same limits in x, y or xy, so that they are comparable."""
    _share_limits_of_axes([tile.ax for tile in tiles], which)
    _share_limits_of_axes([tile.below for tile in tiles if tile.below], which)


def _share_limits_of_axes(panels: Sequence[Axes], which: str) -> None:
    """Give axes the limits that hold those of all of them."""
    if not panels:
        return
    if "x" in which:
        limits = np.array([ax.get_xlim() for ax in panels])
        for ax in panels:
            ax.set_xlim(limits[:, 0].min(), limits[:, 1].max())
    if "y" in which:
        limits = np.array([ax.get_ylim() for ax in panels])
        for ax in panels:
            ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def _keep_first_labels(tiles: Iterable[Tile]) -> None:
    """Remove words and numbers at the y-axis of all columns but the first."""
    for tile in tiles:
        if tile.column == 0:
            continue
        for ax in (tile.ax, tile.below):
            if ax is not None:
                ax.set_ylabel("")
                ax.tick_params(labelleft=False)


def _legend_entries(places: Iterable[Place]) -> list[Line2D]:
    """Return entries for the lines that are drawn, unless they are labelled directly.

    Methods come first, in their usual order.
    """
    entries: dict[str, Line2D] = {}
    for place in places:
        facts = place.panel.facts
        if facts.legend == "module":
            return facts.load().legend()
        if not place.measured.has_single_size:  # bars are labelled directly
            _add_entries(entries, facts, [series.line for series in place.measured.filled])
    return [entries[label] for label in sorted(entries, key=_place_of_label)]


def _place_of_label(label: str) -> int:
    """Return the place of a method's label in legends; all other labels come last."""
    labels = [look.label for look in METHOD_LOOKS.values()]
    return labels.index(label) if label in labels else len(labels)


def _add_entries(entries: dict[str, Line2D], facts: PanelKind, lines: Iterable[Line]) -> None:
    """Add entries by their label; one with a marker replaces one without."""
    for line in lines:
        if facts.legend == "betas" and line.names != "beta":
            continue
        look = line.look
        if facts.legend in ("markers", "betas"):
            entries[look.label] = Line2D([], [], **line_style(look))
        elif look.label not in entries:
            plain = replace(look, marker="", dashes="-")
            entries[look.label] = Line2D([], [], **line_style(plain))


def _entries_across(handles: Sequence[Line2D], width: float) -> int:
    """Return how many entries of a legend fit into one of its lines."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = int(width / (LETTER * (longest + HANDLE)))
    return min(len(handles), max(fitting, 1))


def _draw_legend(box: Axes, handles: Sequence[Line2D], width: float) -> None:
    """Draw a legend in axes of its own; it takes no part in the layout.

    Args:
        box: The axes.
        handles: Its entries.
        width: The width of the figure, in inches.
    """
    box.set_axis_off()
    across = _entries_across(handles, width)
    entries = _in_reading_order(handles, across)
    legend = box.legend(handles=entries, loc="center", ncols=across, borderaxespad=0)
    legend.set_in_layout(False)


def _in_reading_order(handles: Sequence[Line2D], across: int) -> list[Line2D]:
    """Return entries in the order that makes matplotlib show them line by line.

    It fills legends by columns.
    """
    lines = math.ceil(len(handles) / across)
    empty = Line2D([], [], linestyle="none", label=" ")
    padded = [*handles, *[empty] * (lines * across - len(handles))]
    entries: list[Line2D] = []
    for column in range(across):
        entries += padded[column::across]
    return entries


def _fit_titles(titles: Sequence[Text], canvas: Canvas) -> None:
    """Shrink all titles alike if one would leave the figure: the layout makes no room for them."""
    shares = [1.0]
    for title in titles:
        assert title.axes is not None
        width = title.get_window_extent().width / canvas.dpi
        left = title.axes.get_position().x0
        room = (1 - left) * canvas.get_figwidth() - EDGE
        shares.append(room / max(width, 1e-6))
    for title in titles:
        title.set_fontsize(float(title.get_fontsize()) * min(shares))


def _move_inside(box: Axes, canvas: Canvas) -> None:
    """Move a legend to the left if its words would leave the figure on the right.

    Its border, which has no words, may lie beyond the figure.
    """
    legend = box.get_legend()
    assert legend is not None
    border = EDGE * canvas.dpi
    beyond = legend.get_window_extent().x1 - canvas.bbox.x1
    if beyond > border:
        centre = 0.5 - (beyond + border) / box.bbox.width
        legend.set_bbox_to_anchor((centre, 0.5), transform=box.transAxes)
