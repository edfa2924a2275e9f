"""Draws a whole figure: panels in a grid, one legend above them, notes below."""

import shlex
import textwrap
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from dlmexp import catalogue
from dlmexp.console import counted
from dlmexp.figures import axes, style
from dlmexp.figures.effect_axes import effect_legend
from dlmexp.figures.effects import effect_records, panel_effects
from dlmexp.figures.gaps import Gap, caveats, gaps, missing_lines
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.series import Series, drawing_protocol, panel_kind, panel_records, panel_setting, series_of
from dlmexp.figures.style import Look
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results
from dlmexp.records.settings import PAPER, Setting, options, run_words
from dlmexp.records.wanted import ANY, Settled, Wanted

PANEL_HEIGHT = 1.55  # inches
DIFFERENCES_HEIGHT = 0.75  # of the axes below a panel, where a figure has any
EFFECTS_HEIGHT = 2.3
MOST_BLANK = 4  # panels in a row, where they have nothing to show but the command that computes them
NOT_RUN = "#cccccc"  # legend entries without any records
ABOUT_EFFECTS = [
    "Change of test NLL, negative is better; numbers in grey: the interval has 0 in it.",
    "DLM − ELBO (β selected against β = 1) is the sum of the two rows below it: each is the mean over the two orders "
    "of changing β and objective, which the markers show.",
    "Optimisation, noise: by how much DLM − ELBO changes if q is trained unwhitened, or the noise is kept above 0.01.",
]
MOST_LEFT_OUT = 3  # settings that are left out, named below the picture; `plot` prints all
ERRORS = {"std": "standard deviation", "sem": "standard error"}


@dataclass(frozen=True)
class LeftOut:
    """Cells of another setting than the one that is drawn."""

    setting: Setting
    cells: int
    options: str  # of `dlmexp plot`, that draw them
    command: str

    @property
    def words(self) -> str:
        of = f"other settings ({self.setting.label})" if self.setting.changes else f"protocol {self.setting.protocol}"
        return f"{counted(self.cells, 'cell')} {'with' if self.setting.changes else 'of'} {of}"


@dataclass
class Drawn:
    """A drawing with its numbers, and a description of what is missing."""

    drawing: Drawing
    series: list[list[Series]]  # per panel, all folders one after the other
    gaps: list[Gap]
    caveats: list[str]
    error: str = "std"
    folders: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)  # per panel: what computes it
    settings: dict[str, str] = field(default_factory=dict)  # panel -> its setting, where it is not the paper's protocol
    left_out: list[LeftOut] = field(default_factory=list)

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
                    "beta": one.line.beta, "parameterisation": one.parameterisation, "folder": one.folder,
                    "setting": one.setting.label if self.settings and one.setting else None,
                }  # fmt: skip
                tables.append(one.points.assign(**about)[[*about, *one.points.columns]])
        return pd.concat(tables, ignore_index=True).dropna(axis="columns", how="all") if tables else pd.DataFrame()


def measure(drawing: Drawing, several: list[Results], error: str = "std", wanted: Wanted = ANY) -> Drawn:
    """The numbers of a drawing from one or more results folders."""
    series: list[list[Series]] = [[] for _ in drawing.panels]
    commands = [""] * len(drawing.panels)
    missing: dict[Gap, None] = {}
    warnings: dict[str, None] = {}
    settings: dict[str, str] = {}
    left_out: list[LeftOut] = []
    for results in several:
        protocol = drawing_protocol(drawing.panels, results, drawing.parameterisation, wanted)
        settled = []
        for index, panel in enumerate(drawing.panels):
            here = Wanted(drawing.protocols[index] if drawing.protocols else protocol, wanted.where)
            if panel.kind == "effects":
                records = effect_records(panel, results, here)
                one = panel_effects(panel, results, records)
            else:
                records = panel_records(panel, results, drawing.parameterisation, here)
                one = series_of(panel, results, drawing.parameterisation, records)
            words = [*drawing.protocols[index : index + 1], *([results.label] if results.label else [])]
            where = f"{panel.dataset} [{', '.join(words)}]" if words else panel.dataset
            kind = panel_kind(panel, results)
            asked = records.setting or Setting(here.protocol or PAPER)
            commands[index] = (
                commands[index]
                or panel.command
                or (
                    catalogue.run_command(panel.experiment, panel.dataset)
                    + run_words(asked, panel.experiment, panel.dataset, kind)
                )
            )
            missing |= {Gap(where, gap.what, commands[index]): None for gap in gaps(panel, one)}
            warnings |= dict.fromkeys(f"{where}: {text}" for text in caveats(one))
            if said := _said(panel, kind, one, drawing):
                settings[where] = said
            series[index] += one
            settled.append(records)
        left_out += _left_out(drawing, results, settled)
    folders = [results.label for results in several if results.label]
    return Drawn(drawing, series, list(missing), list(warnings), error, folders, commands, settings, left_out)


def _said(panel: Panel, kind: str, series: list[Series], drawing: Drawing) -> str:
    """What to say of a panel's setting; '' for what its experiment asks for under the paper's protocol."""
    setting, how = series[0].setting, series[0].parameterisation
    if setting is None:
        return ""
    said = setting.protocol if setting == panel_setting(panel, setting.protocol, kind) else setting.label
    if how != drawing.parameterisation:
        return f"{said} with q {how}"
    titled = said == setting.protocol and drawing.protocols  # side by side, the panel's title says it
    return "" if said == PAPER or titled else said


def _left_out(drawing: Drawing, results: Results, settled: list[Settled]) -> list[LeftOut]:
    """The cells on these datasets that no panel shows because of their setting, with the command that draws them."""
    shown = {record.key for records in settled for one in records.kept for record in one.records}
    keys: dict[tuple[Setting, str], set[str]] = {}
    for panel, records in zip(drawing.panels, settled, strict=True):
        kind = panel_kind(panel, results)
        for setting, several in records.left_out.items():
            usual = panel_setting(panel, setting.protocol, kind)
            selects = any(results.settings.value(one, setting, "beta") for one in records.at_hand[setting])
            words = shlex.join([*drawing.options, *options(setting, usual, kind, selects)])
            said = Setting(setting.protocol) if setting == usual else setting
            keys.setdefault((said, words), set()).update(several - shown)
    root = results.store.root.as_posix()
    folder = "" if root == "results" else f" --results {shlex.quote(root)}"
    return [
        LeftOut(setting, len(several), words, f"dlmexp plot {drawing.figure.id} {words}".rstrip() + folder)
        for (setting, words), several in keys.items()
        if several
    ]


def _against(panel: Panel) -> str:
    against = {"sizes": "n", "betas": "beta", "histogram": "samples", "reliability": "predicted", "effects": "effect"}
    return against.get(panel.kind, panel.x)


def render(drawn: Drawn, wanted: float | None = None) -> Canvas:
    """Draws the figure at its printed size, or at a width in inches that is wanted; call within `style.use()`. Panels
    without records are left out, unless there are no others; the rest keep their letters."""
    panels = _shown(drawn)
    columns = min(drawn.drawing.columns, len(panels), MOST_BLANK if drawn.empty else len(panels))
    rows = -(-len(panels) // columns)
    width = style.COLUMN if columns == 1 else style.TEXT
    legend = _legend(drawn)
    per_row = 4 if columns == 1 else 7
    lines = -(-len(legend) // per_row)
    across = per_row if lines > 2 else -(-len(legend) // lines)  # two rows of equal length; figure 1 has a row per kind
    notes = textwrap.wrap(" ".join(_notes(drawn)), width=80 if columns == 1 else 165, break_long_words=False)
    height = rows * _row_height(drawn, columns) + 0.14 * lines + 0.11 * len(notes) + 0.1
    if wanted is not None:
        width, height = wanted, height * wanted / width
    canvas = Canvas(figsize=(width, height), layout="constrained")
    # Two lines of the grid to a row: a panel takes both, or leaves the second to the axes below it.
    grid = canvas.add_gridspec(2 * rows, columns, height_ratios=[1.7, 1.0] * rows)
    drawn_axes: list[list[Any]] = [[] for _ in range(rows)]
    for place, index in enumerate(panels):
        row, column = divmod(place, columns)
        ax = canvas.add_subplot(grid[2 * row : 2 * row + 2, column])
        _panel(ax, index, drawn)
        if not _empty(drawn.series[index]):
            drawn_axes[row].append(ax)
    if drawn.drawing.protocols:
        for together in drawn_axes:
            _same_heights(together)
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


def _same_heights(row: list[Any]) -> None:
    """The same limits, so that panels side by side can be compared."""
    if len({ax.get_yscale() for ax in row}) == 1:
        limits = [ax.get_ylim() for ax in row]
        for ax in row:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _letter(index: int, drawing: Drawing) -> str:
    place = index // drawing.columns if drawing.protocols else index
    return f"({chr(97 + place)}) " if len(drawing.panels) > max(1, drawing.columns if drawing.protocols else 1) else ""


def _panel(ax: Any, index: int, drawn: Drawn) -> None:
    panel, series, drawing = drawn.drawing.panels[index], drawn.series[index], drawn.drawing
    at_one_size = panel.kind in ("betas", "reliability", "effects")
    size = next((one.n for one in series if one.n is not None), None) if at_one_size else None
    protocol = drawing.protocols[index] if drawing.protocols else ""
    of = drawing.stand_ins.get(panel.dataset)
    dataset = f"{panel.dataset} (for {catalogue.family(of)})" if of else panel.dataset
    about = (dataset, panel.title, f"n = {size}" if size else "", protocol)
    separator = "\n" if panel.kind == "effects" else ", "  # narrow panels
    ax.set_title(_letter(index, drawing) + separator.join(text for text in about if text), loc="left")
    if _empty(series):
        axes.blank(ax, "not run", drawn.commands[index])
        return
    looks = [_look(one, drawn.folders) for one in series]
    axes.draw(ax, panel, series, looks, drawn.error)
    if panel.kind != "effects" and (text := _not_run(series, drawn.folders)):  # their rows say so themselves
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
    if any(panel.kind == "effects" for panel in drawn.drawing.panels):
        return effect_legend()
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
        look = style.of_method_by_beta(line.method) if line.names == "beta" else line.look
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
    return style.of_method_by_beta(line.method).label if line.names == "beta" else line.look.label


def _handle(look: Look, run: bool, dashes: style.Dashes) -> Line2D:
    shown = look if run else replace(look, colour=NOT_RUN)
    how: dict[str, Any] = axes.line_style(shown) | {"linestyle": dashes}
    return Line2D([], [], label=look.label, **how)


def _by_line(drawn: Drawn) -> dict[str, list[Series]]:
    entries: dict[str, list[Series]] = {}
    for one in (one for panel in drawn.series for one in panel):
        entries.setdefault(_entry(one.line), []).append(one)
    return entries


def _about_histograms(points: list[Series]) -> list[str]:
    """What the histograms of gradient draws are made of."""
    seeds = sorted({int(one.points["seed"].iloc[0]) for one in points if one.draws is not None})
    text = f"Draws on one split (seed {', '.join(map(str, seeds))}), in units of |G|²."
    drawn_line = any(one.points["error_of_G"].notna().any() for one in points if one.draws is not None)
    return [text, "Dash-dotted: the error of G itself, taken from 10 000 samples."] if drawn_line else [text]


def _named(panel: Panel) -> str:
    """The dataset of a panel, with the share of its rows where the panel is of one."""
    return panel.dataset if panel.n is None else f"{panel.dataset} at {panel.n.replace('%', ' %')}"


def _notes(drawn: Drawn) -> list[str]:
    """The notes below a figure: repetitions, failures, stand-ins, parameterisation of q."""
    points = [one for panel in drawn.series for one in panel if not one.empty]
    if not points:
        return []
    notes = []
    kinds = {panel.kind for panel in drawn.drawing.panels}
    counts = sorted({int(c) for one in points for c in one.points["repetitions"] if c > 0})
    if kinds == {"histogram"}:
        pass
    elif counts == [1]:
        notes.append("A single repetition: no error bars.")
    elif counts:
        span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        what = (
            "Mean and 95 % interval of paired differences"
            if kinds == {"effects"}
            else f"Mean and {ERRORS[drawn.error]}"
        )
        notes.append(f"{what} over {span} repetitions" + (" (no bar where there is one)." if counts[0] == 1 else "."))
    both = list(zip(drawn.drawing.panels, drawn.series, strict=True))
    if any(panel.has_differences and any("minus_elbo" in one.points for one in several) for panel, several in both):
        notes.append("Below an NLL: minus the ELBO of the same repetition, with the 95 % interval of the mean.")
    notes += _about_histograms(points) if "histogram" in kinds else []
    notes += ABOUT_EFFECTS if "effects" in kinds else []
    if any((one.points["failed"] > 0).any() for one in points):
        notes.append("k/m beside a point or line: k of m repetitions gave a finite result and are averaged.")
    if kinds != {"effects"} and any(all(one.empty for one in several) for several in _by_line(drawn).values()):
        notes.append("Grey in the legend: not run.")
    if any(panel.height for panel in drawn.drawing.panels):
        notes.append("Learning curves may leave the frame where they start, and in spikes.")
    elif "curve" in kinds:
        notes.append("The first twentieth of a learning curve may leave the frame.")
    shown = [panel for panel, several in both if not all(one.empty for one in several)]
    if any(panel.metric == "reliability" for panel in shown):
        notes.append("Reliability in bins of equal numbers of test rows.")
    if any(panel.kind == "reliability" for panel in shown):
        notes.append("Grey lines: perfect calibration.")
    if any(panel.metric.startswith("coverage_") for panel in shown):
        notes.append("Grey at 95 %: what the interval promises; for counts, whole numbers, it covers at least that.")
    if "betas" in kinds:
        notes.append("Circles: the β with the lowest mean validation NLL. Far from it, lines may leave the frame.")
    notes += [
        f"{name} stands in for the paper's {catalogue.family(of)}." for name, of in drawn.drawing.stand_ins.items()
    ]
    if absent := dict.fromkeys(_named(panel) for panel, several in both if all(one.empty for one in several)):
        notes.append(f"Not run: {', '.join(absent)}.")
    if drawn.drawing.preset:
        notes.append(f"Preset {drawn.drawing.preset}: a first look with fewer seeds, sizes, betas and iterations.")
    if drawn.drawing.parameterisation != "whitened":
        notes.append(f"q {drawn.drawing.parameterisation}, as in the authors' released code.")
    notes += _about_settings(drawn)
    return notes


def _about_settings(drawn: Drawn) -> list[str]:
    """The setting, where it is not the paper's protocol, and what is left out because of its setting."""
    notes, said = [], drawn.settings
    if len(set(said.values())) == 1 and len(said) == len({panel.dataset for panel in drawn.drawing.panels}):
        notes.append(f"Protocol: {next(iter(said.values()))}.")
    elif said:
        notes.append(f"Protocol: {'; '.join(f'{where}: {label}' for where, label in said.items())}.")
    notes += [
        f"Left out: {one.words}; dlmexp plot {drawn.drawing.figure.id} {one.options} draws them."
        for one in drawn.left_out[:MOST_LEFT_OUT]
    ]
    if (more := len(drawn.left_out) - MOST_LEFT_OUT) > 0:
        notes.append(f"Left out as well: cells of {counted(more, 'more setting')}.")
    return notes
