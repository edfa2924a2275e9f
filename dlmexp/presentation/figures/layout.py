"""Draw a whole figure: panels in a grid, with a legend above all of them or above each row."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from dlmexp.common import catalogue
from dlmexp.common.plugin_errors import plugin_errors_as_user_errors
from dlmexp.presentation.figures.axes import Tile, line_style
from dlmexp.presentation.figures.kinds.kind import LOSSES, PanelKind
from dlmexp.presentation.figures.looks import (
    COLUMN_WIDTH,
    INK,
    METHOD_LOOKS,
    PAGE_HEIGHT,
    TEXT_WIDTH,
)
from dlmexp.presentation.figures.notes import usual_repetitions
from dlmexp.presentation.figures.numbers import MeasuredPanel
from dlmexp.presentation.figures.panels import Figure, Line, Panel

# Heights in inches:
PANEL_HEIGHT = 1.55
SINGLE_COLUMN_HEIGHT = 1.9  # of a panel, where the figure has one column
STRIP_HEIGHT = 0.75  # of the differences to the ELBO below a panel
LEGEND_HEIGHT = 0.19  # of a line of text in a legend
OUTER_HEIGHT = 0.1  # of the borders at the top and the bottom of the figure together
# Widths in inches:
RIGHT_MARGIN = 0.04  # stays free at the right edge of the figure
LEGEND_BORDER = 0.04  # the empty border around the words of a legend, about
LETTER_WIDTH = 0.05  # of a letter in a legend, about
HANDLE_LETTERS = 7  # a handle of a legend is as wide as this many letters


@dataclass(frozen=True, eq=False)
class Place:
    """A panel's numbers with the row and the column of panels where they are drawn, from 0."""

    measured: MeasuredPanel
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
        is_loss_against_n = panel.metric in LOSSES and panel.x == "n"
        if not panel.panel_kind.has_strip or not is_loss_against_n:
            return False
        return any("minus_elbo" in series.points for series in self.measured.nonempty_series)


def render(
    figure: Figure, measured_panels: Sequence[MeasuredPanel], protocols: tuple[str, ...]
) -> MatplotlibFigure:
    """Return a figure drawn at its printed size; call this function within `paper_style()`.

    Panels without results are left out. The panels have letters in reading order.

    Args:
        figure: The figure.
        measured_panels: Its panels with their numbers; where protocols stand side by side, each
            panel under each protocol.
        protocols: The protocols that stand side by side; empty where one protocol is drawn.
    """
    places = _arrange(figure, measured_panels, protocols)
    has_legend_by_row = figure.legend == "row" and not protocols
    grid = _divide(places, has_legend_by_row)
    picture, legends, tiles = _make_axes(grid, places)
    titles = [_set_title(tile, grid.columns, places, protocols) for tile in tiles]
    _draw_panels(tiles, protocols)
    # Once, so that the layout is the same in all formats.
    ConstrainedLayoutEngine().execute(picture)
    _fit_titles(titles, picture)
    for legend_axes in legends:
        _move_inside(legend_axes, picture)
    return picture


def _arrange(
    figure: Figure, measured_panels: Sequence[MeasuredPanel], protocols: tuple[str, ...]
) -> list[Place]:
    """Return the panels that have results, with their places.

    Where protocols stand side by side, a panel needs results under one of them.
    """
    with_results = [measured for measured in measured_panels if measured.nonempty_series]
    if protocols:
        return _arrange_protocols(measured_panels, with_results, protocols)
    return _arrange_panels(figure, with_results)


def _arrange_protocols(
    measured_panels: Sequence[MeasuredPanel],
    with_results: Sequence[MeasuredPanel],
    protocols: tuple[str, ...],
) -> list[Place]:
    """Place each panel in a row, with a column for each protocol.

    Panels that compare methods are narrow. Each of them is placed in a column instead, with a row
    for each protocol.
    """
    panels = _distinct_panels(with_results)
    protocols_by_row = panels[0].panel_kind.compares_methods
    places: list[Place] = []
    for measured in measured_panels:
        if measured.panel not in panels:
            continue
        panel_number = panels.index(measured.panel)
        protocol_number = protocols.index(str(measured.requested_protocol))
        if protocols_by_row:
            places.append(Place(measured, row=protocol_number, column=panel_number))
        else:
            places.append(Place(measured, row=panel_number, column=protocol_number))
    return places


def _distinct_panels(measured_panels: Iterable[MeasuredPanel]) -> list[Panel]:
    """Return the panels without their numbers, each once, in their order."""
    panels: dict[Panel, None] = {}  # an ordered set
    for measured in measured_panels:
        panels[measured.panel] = None
    return list(panels)


def _arrange_panels(figure: Figure, with_results: Sequence[MeasuredPanel]) -> list[Place]:
    """Place panels in reading order; a panel that declares its column stands in this column.

    Where fewer panels have results than the figure has columns, the figure is narrower, and the
    declared columns are ignored.
    """
    panel_count = len(_distinct_panels(with_results))
    # Three panels stand side by side even in a figure of two columns, where one would be alone.
    columns = 3 if panel_count == 3 else min(figure.columns, panel_count)
    places: list[Place] = []
    row = 0
    column = 0
    for measured in with_results:
        declared_column = measured.panel.column
        if declared_column is not None and columns == figure.columns:
            if column > declared_column:
                row += 1
            column = declared_column
        elif column >= columns:
            row += 1
            column = 0
        places.append(Place(measured, row, column))
        column += 1
    return places


@dataclass(frozen=True)
class Grid:
    """How a figure is divided into tracks from top to bottom.

    A track holds a legend, a row of panels, or the strips of differences to the ELBO below a row of
    panels. A row of panels thus takes one track, or two tracks if one of its panels has a strip.

    Attributes:
        columns: The number of columns of panels.
        width: The width of the figure, in inches.
        heights: The heights of the tracks from top to bottom, in inches.
        legends: The entries of each legend, by the number of its track.
        tracks_of_rows: The first and the last track of each row of panels; they are equal where
            the row takes one track.
    """

    columns: int
    width: float
    heights: list[float]
    legends: dict[int, list[Line2D]]
    tracks_of_rows: list[tuple[int, int]]


def _divide(places: Sequence[Place], has_legend_by_row: bool) -> Grid:
    """Return the grid of a figure, with a legend above each row of panels or above all of them."""
    columns = 1 + max(place.column for place in places)
    width = COLUMN_WIDTH if columns == 1 else TEXT_WIDTH
    grid = Grid(columns, width, heights=[], legends={}, tracks_of_rows=[])
    if not has_legend_by_row:
        _add_legend_track(grid, places)
    for places_of_row in _rows_of_places(places):
        if has_legend_by_row:
            _add_legend_track(grid, places_of_row)
        _add_tracks_of_row(grid, places_of_row)
    return grid


def _rows_of_places(places: Iterable[Place]) -> list[list[Place]]:
    """Return the places of each row, from top to bottom."""
    rows: dict[int, list[Place]] = {}
    for place in places:
        rows.setdefault(place.row, []).append(place)
    return [rows[number] for number in sorted(rows)]


def _add_legend_track(grid: Grid, places: Sequence[Place]) -> None:
    """Add a track with the legend of panels; no track if the legend has no entries."""
    handles = _legend_entries(places)
    if not handles:
        return
    track = len(grid.heights)
    lines_of_text = math.ceil(len(handles) / _entries_across(handles, grid.width))
    grid.legends[track] = handles
    grid.heights.append(LEGEND_HEIGHT * lines_of_text)


def _add_tracks_of_row(grid: Grid, places_of_row: Sequence[Place]) -> None:
    """Add the track of a row of panels, and a track for strips if one of the panels has a strip."""
    first_track = len(grid.heights)
    grid.heights.append(_panel_height(places_of_row[0].panel.panel_kind, grid.columns))
    if any(place.has_strip for place in places_of_row):
        grid.heights.append(STRIP_HEIGHT)
    last_track = len(grid.heights) - 1
    grid.tracks_of_rows.append((first_track, last_track))


def _panel_height(kind: PanelKind, columns: int) -> float:
    """Return the height of panels of a kind, in inches, in a figure with this many columns."""
    if kind.height:
        return kind.height
    if columns == 1:
        return SINGLE_COLUMN_HEIGHT
    return PANEL_HEIGHT


def _make_axes(
    grid: Grid, places: Sequence[Place]
) -> tuple[MatplotlibFigure, list[Axes], list[Tile]]:
    """Return the picture, the axes of its legends, and its panels with their axes.

    Legends are drawn already, while panels are still empty.
    """
    height = min(sum(grid.heights) + OUTER_HEIGHT, PAGE_HEIGHT)
    picture = MatplotlibFigure(figsize=(grid.width, height))
    tracks = picture.add_gridspec(len(grid.heights), grid.columns, height_ratios=grid.heights)
    legends: list[Axes] = []
    for track, handles in grid.legends.items():
        legend_axes = picture.add_subplot(tracks[track, :])
        _draw_legend(legend_axes, handles, grid.width)
        legends.append(legend_axes)
    tiles: list[Tile] = []
    for place in places:
        first_track, last_track = grid.tracks_of_rows[place.row]
        tiles.append(_make_tile(place, picture, tracks, first_track, last_track))
    return picture, legends, tiles


def _make_tile(
    place: Place, picture: MatplotlibFigure, tracks: GridSpec, first_track: int, last_track: int
) -> Tile:
    """Return a panel with its axes, and with those of its strip if it has one.

    A panel without a strip takes all tracks of its row, from the first to the last.
    """
    if not place.has_strip:
        ax = picture.add_subplot(tracks[first_track : last_track + 1, place.column])
        return Tile(place.measured, place.row, place.column, ax)
    ax = picture.add_subplot(tracks[first_track, place.column])
    # The strip has the x-axis of its panel. Bars are horizontal, so they need an x-axis each.
    shared_axis = None if place.measured.has_bars else ax
    below = picture.add_subplot(tracks[last_track, place.column], sharex=shared_axis)
    return Tile(place.measured, place.row, place.column, ax, below)


def _set_title(
    tile: Tile, columns: int, places: Sequence[Place], protocols: tuple[str, ...]
) -> Text:
    """Set the title of a panel above its left end, and return it."""
    all_measured = [place.measured for place in places]
    letter = _letter(tile.panel, all_measured)
    repetitions = _repetitions(tile.measured, all_measured)
    protocol = str(tile.measured.requested_protocol)
    if protocols and protocol != protocols[0]:
        # The letter and the dataset stand above the first protocol alone.
        title = _separator(tile.panel).join(filter(None, [protocol, repetitions]))
        return tile.ax.set_title(title, loc="left")
    has_room = not protocols and columns < 4
    title = letter + _title(
        tile.measured,
        explains_stand_in=has_room,
        repetitions=repetitions,
        protocol=protocol if protocols else "",
    )
    return tile.ax.set_title(title, loc="left")


def _letter(panel: Panel, all_measured: Iterable[MeasuredPanel]) -> str:
    """Return `(a) ` for the first panel of a figure; '' if the figure has only one panel."""
    panels = _distinct_panels(all_measured)
    if len(panels) == 1:
        return ""
    letter = chr(ord("a") + panels.index(panel))
    return f"({letter}) "


def _repetitions(measured: MeasuredPanel, all_measured: Iterable[MeasuredPanel]) -> str:
    """Return `R = 10`, the repetitions of a panel; '' if all panels have the same number."""
    # 0 stands for a panel that has no repetitions to count.
    counts = {usual_repetitions(other) for other in all_measured} - {0}
    count = usual_repetitions(measured)
    differs_by_panel = len(counts) > 1
    return f"R = {count}" if differs_by_panel and count else ""


def _title(
    measured: MeasuredPanel, explains_stand_in: bool, repetitions: str, protocol: str
) -> str:
    """Return `dataset, n = 500, R = 10`, with the panel's own title after the dataset.

    Args:
        measured: The numbers of the panel.
        explains_stand_in: Whether a stand-in, a dataset that replaces one of the paper's, is
            followed by the dataset that it replaces.
        repetitions: `R = 10` if panels differ in their repetitions, else ''.
        protocol: The protocol if protocols stand side by side, else ''.
    """
    panel = measured.panel
    dataset = panel.dataset
    paper_dataset = catalogue.stands_for(dataset)
    if explains_stand_in and paper_dataset:
        dataset = f"{dataset} (for {catalogue.family(paper_dataset)})"
    size = f"n = {measured.n}" if measured.n and _names_size(panel) else ""
    counts = ", ".join(filter(None, [size, repetitions]))
    return _separator(panel).join(filter(None, [dataset, panel.title, counts, protocol]))


def _separator(panel: Panel) -> str:
    """Return the separator of the parts of a title.

    It is a line break in panels that compare methods, which are narrow.
    """
    return "\n" if panel.panel_kind.compares_methods else ", "


def _names_size(panel: Panel) -> bool:
    """Return whether the title of a panel names its training size.

    The size is left out in learning curves of declared figures, whose sizes are those of the paper,
    and in panels against the number of samples, whose caption states the size.
    """
    is_declared_curve = panel.kind == "curve" and panel.experiment != ""
    if is_declared_curve or panel.x == "samples":
        return False
    return panel.panel_kind.has_n_in_title


def _draw_panels(tiles: Sequence[Tile], protocols: tuple[str, ...]) -> None:
    """Draw all panels; those that share a scale are drawn together.

    Panels with the scale `task` get common limits here. So do those with the scale `panel` if
    protocols stand side by side; otherwise each of them has its own scale. For panels with the
    scale `metric`, the function `draw` of their kind sets the limits.
    """
    with_results: list[Tile] = []
    for tile in tiles:
        if tile.lines:
            with_results.append(tile)
        else:
            _mark_as_not_run(tile)
    for group in _groups_with_one_scale(with_results):
        panel = group[0].panel
        kind = panel.panel_kind
        with plugin_errors_as_user_errors(f"panel '{panel.kind}'"):
            kind.load().draw(group)
        if kind.scale == "task":
            _share_limits(group, kind.shared_limits)
        elif kind.scale == "panel" and protocols:
            # The labels of the first protocol serve for all.
            _share_limits(group, kind.shared_limits)
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
    """Return groups of panels that share a scale (`PanelKind.scale`)."""
    groups: dict[tuple[str, object], list[Tile]] = {}
    for tile in tiles:
        panel = tile.panel
        value_by_scale = {"panel": panel, "metric": panel.metric, "task": tile.measured.task}
        key = (panel.kind, value_by_scale[panel.panel_kind.scale])
        groups.setdefault(key, []).append(tile)
    return list(groups.values())


def _share_limits(tiles: Sequence[Tile], directions: str) -> None:
    """Give panels the same limits in the directions x, y or xy, and likewise their strips."""
    _share_limits_of_axes([tile.ax for tile in tiles], directions)
    _share_limits_of_axes([tile.below for tile in tiles if tile.below], directions)


def _share_limits_of_axes(axes: Sequence[Axes], directions: str) -> None:
    """Give all axes the narrowest limits that hold the limits of each of them."""
    if not axes:
        return
    if "x" in directions:
        limits = np.array([ax.get_xlim() for ax in axes])
        for ax in axes:
            ax.set_xlim(limits[:, 0].min(), limits[:, 1].max())
    if "y" in directions:
        limits = np.array([ax.get_ylim() for ax in axes])
        for ax in axes:
            ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def _keep_first_labels(tiles: Iterable[Tile]) -> None:
    """Remove the labels of the y-axis from all columns but the first."""
    for tile in tiles:
        if tile.column == 0:
            continue
        for ax in (tile.ax, tile.below):
            if ax is not None:
                ax.set_ylabel("")
                ax.tick_params(labelleft=False)


def _legend_entries(places: Iterable[Place]) -> list[Line2D]:
    """Return legend entries for the lines that are drawn, methods first and in their usual order.

    A panel of bars has labels at its axis and needs no entries. Where the module of a kind has a
    legend, all panels under this legend are of the kind, and the legend is the same for all.
    """
    entries: dict[str, Line2D] = {}
    for place in places:
        kind = place.panel.panel_kind
        if kind.legend == "module":
            return kind.load().legend()
        if not place.measured.has_bars:
            lines = [series.line for series in place.measured.nonempty_series]
            _add_entries(entries, kind, lines)
    return [entries[label] for label in sorted(entries, key=_position_of_label)]


def _position_of_label(label: str) -> int:
    """Return the position of a method's label in legends; all other labels come last."""
    labels = [look.label for look in METHOD_LOOKS.values()]
    return labels.index(label) if label in labels else len(labels)


def _add_entries(entries: dict[str, Line2D], kind: PanelKind, lines: Iterable[Line]) -> None:
    """Add legend entries by label; an entry with a marker replaces one without."""
    for line in lines:
        if kind.legend == "betas" and line.names != "beta":
            continue  # its label stands in the panel
        look = line.look
        if kind.legend in ("markers", "betas"):
            entries[look.label] = Line2D([], [], **line_style(look))
        elif look.label not in entries:
            plain = replace(look, marker="", dashes="-")
            entries[look.label] = Line2D([], [], **line_style(plain))


def _entries_across(handles: Sequence[Line2D], width: float) -> int:
    """Return how many entries of a legend stand side by side in a figure of a width in inches."""
    letters_of_longest = max(len(str(handle.get_label())) for handle in handles)
    entry_width = LETTER_WIDTH * (letters_of_longest + HANDLE_LETTERS)
    fitting_entries = int(width / entry_width)
    return min(len(handles), max(fitting_entries, 1))


def _draw_legend(legend_axes: Axes, handles: Sequence[Line2D], width: float) -> None:
    """Draw a legend in axes of its own; the layout engine makes no room for the legend.

    Args:
        legend_axes: The axes.
        handles: The entries of the legend.
        width: The width of the figure, in inches.
    """
    legend_axes.set_axis_off()
    across = _entries_across(handles, width)
    entries = _in_reading_order(handles, across)
    legend = legend_axes.legend(handles=entries, loc="center", ncols=across, borderaxespad=0)
    legend.set_in_layout(False)


def _in_reading_order(handles: Sequence[Line2D], across: int) -> list[Line2D]:
    """Return entries in the order that makes matplotlib show them from left to right.

    Matplotlib fills legends column by column. Empty entries at the end make all columns equally
    long.

    Args:
        handles: The entries in reading order.
        across: The number of entries that stand side by side.
    """
    lines_of_text = math.ceil(len(handles) / across)
    empty = Line2D([], [], linestyle="none", label=" ")
    missing_entries = lines_of_text * across - len(handles)
    padded = [*handles, *[empty] * missing_entries]
    entries: list[Line2D] = []
    for column in range(across):
        entries += padded[column::across]
    return entries


def _fit_titles(titles: Sequence[Text], picture: MatplotlibFigure) -> None:
    """Shrink all titles alike if one of them is too long for the figure.

    The layout engine makes no room for titles that reach beyond their panel.
    """
    factor = 1.0
    for title in titles:
        assert title.axes is not None
        width = title.get_window_extent().width / picture.dpi
        left = title.axes.get_position().x0
        room = (1 - left) * picture.get_figwidth() - RIGHT_MARGIN
        factor = min(factor, room / max(width, 1e-6))
    for title in titles:
        title.set_fontsize(float(title.get_fontsize()) * factor)


def _move_inside(legend_axes: Axes, picture: MatplotlibFigure) -> None:
    """Move a legend to the left if its words would leave the figure on the right.

    The empty border around its words may lie beyond the figure.
    """
    legend = legend_axes.get_legend()
    assert legend is not None
    # In pixels:
    overhang = legend.get_window_extent().x1 - picture.bbox.x1
    if overhang > LEGEND_BORDER * picture.dpi:
        shift = overhang + RIGHT_MARGIN * picture.dpi
        centre = 0.5 - shift / legend_axes.bbox.width
        legend.set_bbox_to_anchor((centre, 0.5), transform=legend_axes.transAxes)
