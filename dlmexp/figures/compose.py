"""Draws a whole figure: panels in a grid, one legend above them, notes below."""

import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.textpath import TextPath

from dlmexp import catalogue
from dlmexp.figures import axes, style
from dlmexp.figures.effect_axes import effect_legend, span_effects
from dlmexp.figures.gaps import missing_lines
from dlmexp.figures.measure import Drawn
from dlmexp.figures.notes import notes_below
from dlmexp.figures.panels import Line
from dlmexp.figures.scales import MARGIN
from dlmexp.figures.series import Series
from dlmexp.figures.style import Look
from dlmexp.figures.variants import Drawing

PANEL_HEIGHT = 1.55  # inches
DIFFERENCES_HEIGHT = 0.75  # of the axes below a panel, where a figure has any
EFFECTS_HEIGHT = 2.7
MOST_BLANK = 4  # panels in a row, where they have nothing to show but the command that computes them
TITLE_GAP = 0.04  # inches between a title and the edge of the figure
HEADINGS = {"regression": "Regression", "binary": "Binary", "count": "Counts"}
NOT_RUN = "#cccccc"  # legend entries without any records


def render(drawn: Drawn, wanted: float | None = None) -> Canvas:
    """Draws the figure at its printed size, or at a width in inches that is wanted; call within `style.use()`. Panels
    without records are left out, unless there are no others; the rest have letters in reading order."""
    panels = _shown(drawn)
    columns = min(drawn.drawing.columns, len(panels), MOST_BLANK if drawn.empty else len(panels))
    rows = -(-len(panels) // columns)
    width = style.COLUMN if columns == 1 else style.TEXT
    legend = _legend(drawn)
    per_row = 4 if columns == 1 else 7
    lines = -(-len(legend) // per_row)
    across = per_row if lines > 2 else -(-len(legend) // lines)  # two rows of equal length; figure 1 has a row per kind
    notes = textwrap.wrap(" ".join(notes_below(drawn)), width=80 if columns == 1 else 165, break_long_words=False)
    height = rows * _row_height(drawn, columns) + 0.14 * lines + 0.11 * len(notes) + 0.1
    if wanted is not None:
        width, height = wanted, height * wanted / width
    canvas = Canvas(figsize=(width, height), layout="constrained")
    # Two lines of the grid to a row: a panel takes both, or leaves the second to the axes below it.
    grid = canvas.add_gridspec(2 * rows, columns, height_ratios=[1.7, 1.0] * rows)
    effects = any(panel.kind == "effects" for panel in drawn.drawing.panels)
    # By row: the panels of a kind, and the axes below them; effects by their task.
    drawn_axes: dict[tuple[int | str, str, int], list[Any]] = {}
    titles: list[Text] = []
    for place, index in enumerate(panels):
        row, column = divmod(place, columns)
        ax = canvas.add_subplot(grid[2 * row : 2 * row + 2, column])
        titles.append(_panel(ax, index, drawn, panels))
        if not _empty(drawn.series[index]):
            panel = drawn.drawing.panels[index]
            for below, one in enumerate(canvas.axes[canvas.axes.index(ax) :]):
                drawn_axes.setdefault((panel.experiment if effects else row, panel.kind, below), []).append(one)
    if drawn.drawing.protocols or effects:
        for (_, kind, _), together in drawn_axes.items():
            _same_limits(together, kind)
    spacing = 0.8 if columns == 1 else 1.4
    box = canvas.legend(
        handles=_by_rows(legend, across), loc="outside upper center", ncols=across, columnspacing=spacing
    )
    for line, text in zip(box.get_lines(), box.get_texts(), strict=True):
        if line.get_color() == NOT_RUN:
            text.set_color(style.MISSING)
    if notes:
        canvas.supxlabel("\n".join(notes), fontsize=5.5, color="#555555", linespacing=1.25)
    # The layout is computed once, so that it is the same in all formats.
    if (engine := canvas.get_layout_engine()) is not None:
        engine.execute(canvas)
    canvas.set_layout_engine("none")
    for title in titles:
        _fit(title, canvas)
    return canvas


def _fit(title: Text, canvas: Canvas) -> None:
    """A title that would leave the figure is set smaller: the layout makes no room for titles."""
    assert title.axes is not None
    # By its outline: pixels of a low resolution are too coarse to measure letters with.
    lines = [TextPath((0, 0), line, prop=title.get_fontproperties()) for line in title.get_text().split("\n") if line]
    width = max(float(line.get_extents().x1) for line in lines) / 72
    room = (1 - title.axes.get_position().x0) * canvas.get_figwidth() - TITLE_GAP
    title.set_fontsize(float(title.get_fontsize()) * min(1.0, room / width))


def _row_height(drawn: Drawn, columns: int) -> float:
    if any(panel.kind == "effects" for panel in drawn.drawing.panels):
        return EFFECTS_HEIGHT
    below = DIFFERENCES_HEIGHT if any(panel.has_differences for panel in drawn.drawing.panels) else 0.0
    return (PANEL_HEIGHT if columns > 1 else 2.0) + below


def _empty(series: list[Series]) -> bool:
    return all(one.empty for one in series)


def _shown(drawn: Drawn) -> list[int]:
    """The panels that are drawn: those with records, or all if none has any. Side by side, a row stays whole."""
    everything = list(range(len(drawn.series)))
    width = drawn.drawing.columns if drawn.drawing.protocols else 1
    rows = [everything[first : first + width] for first in everything[::width]]
    return [i for row in rows if not all(_empty(drawn.series[i]) for i in row) for i in row] or everything


def _same_limits(row: list[Any], kind: str) -> None:
    """The same limits, so that panels side by side can be compared: heights and sizes, or those of effects."""
    if kind in ("effects", "sizes"):
        limits = [ax.get_xlim() for ax in row]
        low, high = min(low for low, _ in limits), max(high for _, high in limits)
        for ax in row:
            span_effects(ax, low, high) if kind == "effects" else ax.set_xlim(low, high)
    if kind != "effects" and len({ax.get_yscale() for ax in row}) == 1:
        # On the axis as it is drawn. Where the limits of one panel are the outermost, its margin is small beside the
        # height that they now share, and a marker there would be cut.
        scale = row[0].yaxis.get_transform()
        limits = [scale.transform(np.array(ax.get_ylim())) for ax in row]
        low, of_low = min((low, high - low) for low, high in limits)
        high, of_high = max((high, high - low) for low, high in limits)
        edges = low - MARGIN * (high - low - of_low), high + MARGIN * (high - low - of_high)
        for ax in row:
            ax.set_ylim(scale.inverted().transform(np.array(edges)))


def _letter(index: int, drawing: Drawing, shown: list[int]) -> str:
    """`(a) ` for the first panel that is shown, or row of protocols side by side; nothing for the only one."""
    together = drawing.columns if drawing.protocols else 1
    return f"({chr(97 + shown.index(index) // together)}) " if len(shown) > together else ""


def _heading(index: int, drawn: Drawn, shown: list[int]) -> str:
    """The task above the first of the panels that share it, and a scale."""
    tasks = [catalogue.datasets().get(drawn.drawing.panels[i].dataset, {}).get("task", "") for i in shown]
    place = shown.index(index)
    return HEADINGS.get(tasks[place], "") if tasks[place] not in tasks[:place] else ""


def _panel(ax: Any, index: int, drawn: Drawn, shown: list[int]) -> Text:
    """Draws a panel, and returns its title."""
    panel, series, drawing = drawn.drawing.panels[index], drawn.series[index], drawn.drawing
    at_one_size = panel.kind in ("betas", "reliability", "effects") or (panel.kind == "curve" and not panel.experiment)
    size = next((one.n for one in series if one.n is not None), None) if at_one_size else None
    protocol = drawing.protocols[index] if drawing.protocols else ""
    of = drawing.stand_ins.get(panel.dataset)
    # Side by side there is no room for it; the notes say whom it stands in for.
    dataset = f"{panel.dataset} (for {catalogue.family(of)})" if of and not protocol else panel.dataset
    about = (dataset, panel.title, f"n = {size}" if size else "", protocol)
    narrow = panel.kind == "effects" and drawing.columns > 4
    words = _letter(index, drawing, shown) + ("\n" if narrow else ", ").join(text for text in about if text)
    title = ax.set_title(f"{_heading(index, drawn, shown)}\n{words}" if narrow else words, loc="left")
    if _empty(series):
        axes.blank(ax, "not run", drawn.commands[index])
        return title
    looks = [_look(one, drawn.folders) for one in series]
    axes.draw(ax, panel, series, looks, drawn.error)
    if panel.kind != "effects" and (text := _not_run(series, drawn.folders)):  # their rows say so themselves
        axes.write_beside(ax, text)
    return title


def _not_run(series: list[Series], folders: list[str]) -> str:
    """Text with the lines that have no records, for each folder if there are several."""
    texts = []
    for folder in folders or [""]:
        here = [one for one in series if one.folder == folder]
        if absent := missing_lines(here):
            what = "everything" if len(absent) == len(here) else ", ".join(absent)
            texts.append(f"not run{f' in {folder}' if folder else ''}: {what}")
    return "\n".join(texts)


def _look(one: Series, folders: list[str]) -> Look:
    look = one.line.look
    return style.in_folder(look, folders.index(one.folder), one.folder) if folders else look


def _legend(drawn: Drawn) -> list[Line2D]:
    """Entries of the legend: methods or estimators (grey if without records), then the dashes of betas or folders."""
    if any(panel.kind == "effects" for panel in drawn.drawing.panels):
        return effect_legend()
    run = {entry for entry, several in drawn.by_entry.items() if any(not one.empty for one in several)}
    panels = [panel for panel, _ in drawn.run]
    lines = dict.fromkeys(line for panel in panels for line in panel.lines)
    ordered = sorted(lines, key=_in_legend)
    marked = {line.entry for panel in panels if panel.kind != "histogram" for line in panel.lines}
    entries: dict[str, Line2D] = {}
    for line in ordered:
        look = style.of_method_by_beta(line.method, line.beta) if line.names == "beta" else line.look
        dashes = "-" if drawn.folders else look.dashes
        look = look if line.entry in marked else replace(look, marker="")
        entries.setdefault(line.entry, _handle(look, line.entry in run, dashes))
    betas = sorted({line.beta for line in lines if line.names == "beta" and line.beta is not None})
    for beta in betas if not drawn.folders else ():
        look = style.at_beta(Look("", "#555555", "o"), beta)
        entries[f"β={beta:g}"] = _handle(replace(look, label=f"β = {beta:g}"), True, look.dashes)
    for position, folder in enumerate(drawn.folders):
        dashes = style.FOLDER_DASHES[position % len(style.FOLDER_DASHES)]
        entries[f"folder {folder}"] = Line2D([], [], color="#555555", linestyle=dashes, label=folder)
    return list(entries.values())


def _in_legend(line: Line) -> tuple[int, int, int]:
    """Methods first, then estimators by their number of samples: in figure 1 that gives a row to each."""
    if line.names == "estimator":
        return 1, ["exact", *style.ESTIMATORS].index(line.estimator), line.samples or 0
    known = [look.label for look in style.METHODS.values()]
    return 0, known.index(line.entry) if line.entry in known else len(known), 0


def _by_rows(entries: list[Line2D], across: int) -> list[Line2D]:
    """Entries in the order that makes matplotlib, which fills legends by columns, show them row by row."""
    rows = -(-len(entries) // across)
    padded = entries + [Line2D([], [], linestyle="none", label=" ")] * (rows * across - len(entries))
    return [padded[row * across + column] for column in range(across) for row in range(rows)]


def _handle(look: Look, run: bool, dashes: style.Dashes) -> Line2D:
    shown = look if run else replace(look, colour=NOT_RUN)
    how: dict[str, Any] = axes.line_style(shown) | {"linestyle": dashes}
    return Line2D([], [], label=look.label, **how)
