"""The numbers of a drawing, from one or more results folders, and what is missing or left out."""

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from dlmexp import catalogue
from dlmexp.console import counted
from dlmexp.figures.effects import effect_records, panel_effects
from dlmexp.figures.gaps import Gap, caveats, gaps
from dlmexp.figures.panels import Panel
from dlmexp.figures.series import Series, drawing_protocol, panel_kind, panel_records, panel_setting, series_of
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results
from dlmexp.records.settings import PAPER, Setting, experiment_of, options, run_words
from dlmexp.records.wanted import ANY, Settled, Wanted


@dataclass(frozen=True)
class LeftOut:
    """Cells of another setting than the one that is drawn."""

    setting: Setting
    cells: int
    changed: bool  # by hand: neither a protocol as it stands, nor what an experiment of ours makes of it
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
    not_run: tuple[str, ...] = ()  # protocols that have no column, for none of the panels was run under them

    @property
    def empty(self) -> bool:
        return all(one.empty for panel in self.series for one in panel)

    @property
    def run(self) -> list[tuple[Panel, list[Series]]]:
        """The panels that have records, with their lines; all panels if none has any."""
        both = list(zip(self.drawing.panels, self.series, strict=True))
        return [(panel, several) for panel, several in both if not all(one.empty for one in several)] or both

    @property
    def by_entry(self) -> dict[str, list[Series]]:
        """The lines of these panels by their names in the legend."""
        found: dict[str, list[Series]] = {}
        for one in (one for _, several in self.run for one in several):
            found.setdefault(one.line.entry, []).append(one)
        return found

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
        # What is None in some tables is an object in all of them: pandas before 3.0 warns of it otherwise.
        objects = {name for table in tables for name in table if pd.api.types.is_object_dtype(table[name])}
        tables = [table.astype(dict.fromkeys(objects & {*table}, object)) for table in tables]
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
            missing |= {Gap(where, gap.what, results.command(commands[index])): None for gap in gaps(panel, one)}
            warnings |= dict.fromkeys(f"{where}: {text}" for text in caveats(one))
            if said := _said(panel, kind, one, drawing):
                settings[where] = said
            series[index] += one
            settled.append(records)
        left_out += _left_out(drawing, results, settled)
    folders = [results.label for results in several if results.label]
    return Drawn(drawing, series, list(missing), list(warnings), error, folders, commands, settings, left_out)


def without_empty_columns(drawn: Drawn) -> Drawn:
    """Protocols side by side, without those under which none of the panels was run; two columns at least."""
    columns: dict[str, list[int]] = {}
    for index, name in enumerate(drawn.drawing.protocols):
        columns.setdefault(name, []).append(index)
    run = {name for name, several in columns.items() if any(not one.empty for i in several for one in drawn.series[i])}
    if len(run) < 2:
        return drawn
    kept = [index for index, name in enumerate(drawn.drawing.protocols) if name in run]
    drawing = replace(
        drawn.drawing,
        panels=tuple(drawn.drawing.panels[index] for index in kept),
        protocols=tuple(drawn.drawing.protocols[index] for index in kept),
    )
    series, commands = [drawn.series[index] for index in kept], [drawn.commands[index] for index in kept]
    not_run = tuple(name for name in columns if name not in run)
    return replace(drawn, drawing=drawing, series=series, commands=commands, not_run=not_run)


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
    keys: dict[tuple[Setting, str, bool], set[str]] = {}
    for panel, records in zip(drawing.panels, settled, strict=True):
        kind = panel_kind(panel, results)
        for setting, several in records.left_out.items():
            usual = panel_setting(panel, setting.protocol, kind)
            selects = any(results.settings.value(one, setting, "beta") for one in records.at_hand[setting])
            words = shlex.join([*drawing.options, *options(setting, usual, kind, selects)])
            said = Setting(setting.protocol) if setting == usual else setting
            changed = experiment_of(setting, records.at_hand[setting][0]) is None
            keys.setdefault((said, words, changed), set()).update(several - shown)
    plot = f"dlmexp plot {drawing.figure.id}"
    return [
        LeftOut(setting, len(several), changed, words, results.command(f"{plot} {words}".rstrip()))
        for (setting, words, changed), several in keys.items()
        if several
    ]


def _against(panel: Panel) -> str:
    against = {"sizes": "n", "betas": "beta", "histogram": "samples", "reliability": "predicted", "effects": "effect"}
    return against.get(panel.kind, panel.x)
