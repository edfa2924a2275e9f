"""Keep a figure with its numbers, and make its picture, the rows of its CSV and its caption."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures import notes
from dlmexp.presentation.figures.choose import Request
from dlmexp.presentation.figures.layout import render
from dlmexp.presentation.figures.looks import paper_style
from dlmexp.presentation.figures.numbers import Measured
from dlmexp.presentation.figures.panels import Figure, Line


@dataclass
class Drawn:
    """A figure with its numbers.

    Attributes:
        figure: The figure.
        name: The name of its files.
        measured: The numbers of each panel. Where protocols stand side by side, each panel has its
            numbers under all of them before those of the next panel.
        results: The results that it is drawn from.
        request: The options that it is drawn with.
        protocols: The protocols that stand side by side; empty where one protocol is drawn.
    """

    figure: Figure
    name: str
    measured: list[Measured]
    results: ResultsFolder
    request: Request
    protocols: tuple[str, ...] = ()

    @cached_property
    def panels_with_results(self) -> list[Measured]:
        """The numbers of panels that have results."""
        return [measured for measured in self.measured if measured.nonempty_series]

    @cached_property
    def picture(self) -> MatplotlibFigure:
        """The picture, as a matplotlib figure."""
        with paper_style():
            return render(self.figure, self.measured, self.protocols)

    @cached_property
    def _table(self) -> pd.DataFrame:
        """The numbers with all columns, a row per point."""
        descriptions: list[dict[str, Any]] = []
        points: list[pd.DataFrame] = []
        for measured in self.panels_with_results:
            for series in measured.nonempty_series:
                points.append(series.points.assign(series=len(descriptions)))
                descriptions.append(_description(measured, series.line))
        table = pd.DataFrame(descriptions, dtype=object)
        table = table.merge(pd.concat(points), left_index=True, right_on="series")
        return table.drop(columns="series").reset_index(drop=True).dropna(axis="columns", how="all")

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The columns that are equal in all rows of learning curves, with their value.

        The many rows of such a CSV would be long with them. Other figures keep all columns.
        """
        if any(measured.panel.kind != "curve" for measured in self.measured):
            return {}
        constants: dict[str, Any] = {}
        for name, column in self._table.items():
            if column.nunique(dropna=False) == 1:
                constants[str(name)] = column.iloc[0]
        return constants

    @property
    def csv(self) -> pd.DataFrame:
        """The numbers, a row per point, without the `constants`."""
        return self._table.drop(columns=list(self.constants))

    @property
    def text(self) -> str:
        """The caption file, in Markdown."""
        title = self.figure.title or self.figure.id
        items = [f"- {note}" for note in self.notes]
        return "\n".join([f"# {title}", "", self.figure.caption, "", *items, ""])

    @property
    def commands(self) -> list[str]:
        """The commands that compute the panels, each once."""
        distinct: dict[str, None] = {}  # an ordered set
        for measured in self.measured:
            command = notes.command(measured, self.results)
            if command:
                distinct[command] = None
        return list(distinct)

    @cached_property
    def notes(self) -> list[str]:
        """Remarks of one line each, for the caption file and the terminal; [] without results."""
        if not self.panels_with_results:
            return []
        lines = [
            notes.settings(self.panels_with_results),
            *notes.repetitions(self.panels_with_results),
            *notes.stand_ins(self.panels_with_results),
            *notes.filters(self.request.by),
            *(f"Not run: {gap}" for gap in self.missing),
            *notes.not_drawn(self.measured, self.is_comparison),
            *notes.line_notes(self.panels_with_results, self.is_comparison),
            *notes.plugin_versions(self.panels_with_results, self.results),
            *notes.left_out(
                self.figure.id, self.measured, self.results, self.request, self.protocols
            ),
        ]
        if self.constants:
            constants = [f"{name} = {value}" for name, value in self.constants.items()]
            lines.append(f"In all rows of the CSV: {', '.join(constants)}.")
        return lines

    @property
    def is_comparison(self) -> bool:
        """Whether protocols stand side by side."""
        return bool(self.protocols)

    @cached_property
    def missing(self) -> list[str]:
        """Remarks on panels, lines and sizes without results, with the command for each."""
        return notes.missing_results(self.measured, self.results, self.is_comparison)


def _description(measured: Measured, line: Line) -> dict[str, Any]:
    """Return the columns that are the same for all points of a line."""
    setting = measured.protocol
    if measured.changes:
        setting = f"{measured.protocol} with {measured.changes}"
    return {
        "dataset": measured.panel.dataset,
        "metric": measured.panel.metric,
        "against": measured.panel.against,
        "n": measured.n,
        "method": f"{line.method} {line.version}".strip(),
        "estimator": line.estimator,
        "samples": line.samples,
        "beta": line.beta,
        "parameterisation": measured.parameterisation,
        "setting": setting,
    }
