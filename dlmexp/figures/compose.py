"""Draws a whole figure: panels in a grid, one legend above them, notes below."""

import textwrap
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from dlmexp import catalogue
from dlmexp.figures import axes, style
from dlmexp.figures.gaps import Gap, caveats, gaps, missing_lines
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.series import Series, panel_series
from dlmexp.figures.style import Look
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results

PANEL_HEIGHT = 1.55  # inches
NOT_RUN = "#cccccc"  # legend entries without any records
ERRORS = {"std": "standard deviation", "sem": "standard error"}


@dataclass
class Drawn:
    """A drawing with its numbers, and a description of what is missing."""

    drawing: Drawing
    series: list[list[Series]]  # per panel, all folders one after the other
    gaps: list[Gap]
    caveats: list[str]
    error: str = "std"
    folders: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return all(one.empty for panel in self.series for one in panel)

    @property
    def numbers(self) -> pd.DataFrame:
        """The table that is saved as CSV: a row per point."""
        tables = []
        for panel, several in zip(self.drawing.panels, self.series, strict=True):
            for one in several:
                if one.empty:
                    continue
                about: dict[str, Any] = {
                    "dataset": panel.dataset, "metric": panel.metric, "against": _against(panel), "n": one.n,
                    "method": one.line.method, "estimator": one.line.estimator, "samples": one.line.samples,
                    "beta": one.line.beta, "parameterisation": self.drawing.parameterisation, "folder": one.folder,
                }  # fmt: skip
                tables.append(one.points.assign(**about)[[*about, *one.points.columns]])
        return pd.concat(tables, ignore_index=True).dropna(axis="columns", how="all") if tables else pd.DataFrame()


def measure(drawing: Drawing, several: list[Results], error: str = "std") -> Drawn:
    """The numbers of a drawing from one or more results folders."""
    series: list[list[Series]] = []
    missing: dict[Gap, None] = {}
    warnings: dict[str, None] = {}
    for panel in drawing.panels:
        found: list[Series] = []
        for results in several:
            one = panel_series(panel, results, drawing.parameterisation)
            where = f" [{results.label}]" if results.label else ""
            missing |= {Gap(gap.dataset + where, gap.what, gap.command): None for gap in gaps(panel, one)}
            warnings |= dict.fromkeys(f"{panel.dataset}{where}: {text}" for text in caveats(one))
            found += one
        series.append(found)
    folders = [results.label for results in several if results.label]
    return Drawn(drawing, series, list(missing), list(warnings), error, folders)


def _against(panel: Panel) -> str:
    against = {"sizes": "n", "betas": "beta", "histogram": "samples", "reliability": "predicted"}
    return against.get(panel.kind, panel.x)


def render(drawn: Drawn, wanted: float | None = None) -> Canvas:
    """Draws the figure at its printed size, or at a width in inches that is wanted; call within `style.use()`."""
    panels, columns = drawn.drawing.panels, min(drawn.drawing.figure.columns, len(drawn.drawing.panels))
    rows = -(-len(panels) // columns)
    width = style.COLUMN if columns == 1 else style.TEXT
    legend = _legend(drawn)
    per_row = 4 if columns == 1 else 7
    lines = -(-len(legend) // per_row)
    across = per_row if lines > 2 else -(-len(legend) // lines)  # two rows of equal length; figure 1 has a row per kind
    notes = _notes(drawn)
    height = rows * (PANEL_HEIGHT if columns > 1 else 2.0) + 0.14 * lines + 0.11 * len(notes) + 0.1
    if wanted is not None:
        width, height = wanted, height * wanted / width
    canvas = Canvas(figsize=(width, height), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False)
    for index, ax in enumerate(grid.flat):
        if index >= len(panels):
            ax.set_axis_off()
            continue
        _panel(ax, panels[index], drawn.series[index], drawn, f"({chr(97 + index)}) " if len(panels) > 1 else "")
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
    return canvas


def _panel(ax: Any, panel: Panel, series: list[Series], drawn: Drawn, letter: str) -> None:
    at_one_size = panel.kind in ("betas", "reliability")
    size = next((one.n for one in series if one.n is not None), None) if at_one_size else None
    about = ", ".join(text for text in (panel.dataset, panel.title, f"n = {size}" if size else "") if text)
    ax.set_title(f"{letter}{about}", loc="left")
    if all(one.empty for one in series):
        command = next((gap.command for gap in drawn.gaps if gap.dataset.split(" [")[0] == panel.dataset), "")
        axes.blank(ax, "not run", command)
        return
    looks = [_look(one, drawn.folders) for one in series]
    axes.draw(ax, panel, series, looks, drawn.error)
    if text := _not_run(series, drawn.folders):
        ax.text(0.98, 0.98, text, transform=ax.transAxes, ha="right", va="top", fontsize=5.5, color=style.MISSING)


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
    run = {entry for entry, several in _by_line(drawn).items() if any(not one.empty for one in several)}
    lines = dict.fromkeys(line for panel in drawn.drawing.panels for line in panel.lines)
    # Methods first, then estimators by their number of samples: in figure 1 that gives a row to each.
    order = ["exact", *style.ESTIMATORS]
    ordered = sorted(
        lines,
        key=lambda line: (
            (1, order.index(line.estimator), line.samples or 0) if line.names == "estimator" else (0, 0, 0)
        ),
    )
    entries: dict[str, Line2D] = {}
    for line in ordered:
        look = style.of_method(line.method) if line.names == "beta" else line.look
        dashes = "-" if drawn.folders else look.dashes
        entries.setdefault(_entry(line), _handle(look, _entry(line) in run, dashes))
    betas = sorted({line.beta for line in lines if line.names == "beta" and line.beta is not None})
    for beta in betas if not drawn.folders else ():
        dashes = style.BETA_DASHES.get(beta, "-.")
        entries[f"β={beta:g}"] = Line2D([], [], color="#555555", linestyle=dashes, label=f"β = {beta:g}")
    for position, folder in enumerate(drawn.folders):
        dashes = style.FOLDER_DASHES[position % len(style.FOLDER_DASHES)]
        entries[f"folder {folder}"] = Line2D([], [], color="#555555", linestyle=dashes, label=folder)
    return list(entries.values())


def _by_rows(entries: list[Line2D], across: int) -> list[Line2D]:
    """Entries in the order that makes matplotlib, which fills legends by columns, show them row by row."""
    rows = -(-len(entries) // across)
    padded = entries + [Line2D([], [], linestyle="none", label=" ")] * (rows * across - len(entries))
    return [padded[row * across + column] for column in range(across) for row in range(rows)]


def _entry(line: Line) -> str:
    return style.of_method(line.method).label if line.names == "beta" else line.look.label


def _handle(look: Look, run: bool, dashes: style.Dashes) -> Line2D:
    colour = look.colour if run else NOT_RUN
    return Line2D(
        [], [], color=colour, marker=look.marker, linestyle=dashes, markerfacecolor=colour if look.filled else "white",
        markeredgecolor=colour, label=look.label,
    )  # fmt: skip


def _by_line(drawn: Drawn) -> dict[str, list[Series]]:
    entries: dict[str, list[Series]] = {}
    for one in (one for panel in drawn.series for one in panel):
        entries.setdefault(_entry(one.line), []).append(one)
    return entries


def _notes(drawn: Drawn) -> list[str]:
    """The notes below a figure: repetitions, failures, stand-ins, parameterisation of q."""
    points = [one for panel in drawn.series for one in panel if not one.empty]
    if not points:
        return []
    notes = []
    kinds = {panel.kind for panel in drawn.drawing.panels}
    counts = sorted({int(c) for one in points for c in one.points["repetitions"] if c > 0})
    if counts == [1]:
        notes.append("A single repetition: no error bars." if kinds != {"histogram"} else "Draws of one repetition.")
    elif counts:
        span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        what = f"Mean and {ERRORS[drawn.error]}" if kinds != {"histogram"} else "Draws pooled"
        notes.append(f"{what} over {span} repetitions" + (" (no bar where there is one)." if counts[0] == 1 else "."))
    if any((one.points["failed"] > 0).any() for one in points):
        notes.append("k/m beside a point or line: k of m repetitions gave a finite result and are averaged.")
    if any(all(one.empty for one in several) for several in _by_line(drawn).values()):
        notes.append("Grey in the legend: not run.")
    if "curve" in kinds:
        notes.append("The first twentieth of a learning curve may leave the frame.")
    metrics = {panel.metric for panel in drawn.drawing.panels if panel.kind == "reliability"}
    if "reliability" in metrics:
        notes.append("Reliability in bins of equal numbers of test rows.")
    if metrics:
        notes.append("Grey lines: perfect calibration.")
    if "betas" in kinds:
        notes.append("Circles: the β with the lowest mean validation NLL.")
    notes += [
        f"{name} stands in for the paper's {catalogue.family(of)}." for name, of in drawn.drawing.stand_ins.items()
    ]
    if drawn.drawing.preset:
        notes.append(f"Preset {drawn.drawing.preset}: a first look with fewer seeds, sizes, betas and iterations.")
    if drawn.drawing.parameterisation != "whitened":
        notes.append(f"q {drawn.drawing.parameterisation}, as in the authors' released code.")
    return textwrap.wrap(" ".join(notes), width=85 if drawn.drawing.figure.columns == 1 else 175)
