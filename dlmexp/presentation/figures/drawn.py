"""Make the picture, the rows of the CSV and the caption file of a measured figure."""

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
from dlmexp.presentation.figures.numbers import MeasuredPanel
from dlmexp.presentation.figures.panels import Figure, Line


@dataclass
class DrawnFigure:
    """A figure with its numbers.

    Attributes:
        figure: The figure.
        name: The name of its files.
        measured_panels: The panels with their numbers. Where protocols stand side by side, a panel
            occurs under each protocol before the next panel follows.
        results: The results that the figure is drawn from.
        request: The options that the figure is drawn with.
        protocols: The protocols that stand side by side; empty where one protocol is drawn.
    """

    figure: Figure
    name: str
    measured_panels: list[MeasuredPanel]
    results: ResultsFolder
    request: Request
    protocols: tuple[str, ...] = ()

    @cached_property
    def panels_with_results(self) -> list[MeasuredPanel]:
        """The numbers of panels that have results."""
        return [measured for measured in self.measured_panels if measured.nonempty_series]

    @cached_property
    def picture(self) -> MatplotlibFigure:
        """The picture, as a matplotlib figure."""
        with paper_style():
            return render(self.figure, self.measured_panels, self.protocols)

    @cached_property
    def _table(self) -> pd.DataFrame:
        """The numbers in all columns, with a row for each point of each line."""
        descriptions: list[dict[str, Any]] = []
        points_by_line: list[pd.DataFrame] = []
        for measured in self.panels_with_results:
            for series in measured.nonempty_series:
                points_by_line.append(series.points.assign(line_number=len(descriptions)))
                descriptions.append(_description(measured, series.line))
        table = pd.DataFrame(descriptions, dtype=object)
        points = pd.concat(points_by_line)
        table = table.merge(points, left_index=True, right_on="line_number")
        table = table.drop(columns="line_number").reset_index(drop=True)
        return table.dropna(axis="columns", how="all")

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The columns that have the same value in all rows of the CSV, with this value.

        They are left out of the CSV of learning curves, which has many rows. Other figures have no
        constants: their CSV keeps all columns.
        """
        if any(measured.panel.kind != "curve" for measured in self.measured_panels):
            return {}
        constants: dict[str, Any] = {}
        for name, column in self._table.items():
            if column.nunique(dropna=False) == 1:
                constants[str(name)] = column.iloc[0]
        return constants

    @property
    def csv(self) -> pd.DataFrame:
        """The rows of the CSV: the numbers of each point, without the `constants`."""
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
        for measured in self.measured_panels:
            command = notes.command(measured, self.results)
            if command:
                distinct[command] = None
        return list(distinct)

    @cached_property
    def notes(self) -> list[str]:
        """Remarks for the caption file and the terminal, one line each; [] without results."""
        if not self.panels_with_results:
            return []
        remarks = [
            notes.settings(self.panels_with_results),
            *notes.repetitions(self.panels_with_results),
            *notes.stand_ins(self.panels_with_results),
            *notes.filters(self.request.by),
            *(f"Not run: {remark}" for remark in self.missing),
            *notes.not_drawn(self.measured_panels, self.is_comparison),
            *notes.line_notes(self.panels_with_results, self.is_comparison),
            *notes.plugin_versions(self.panels_with_results, self.results),
            *notes.left_out(
                self.figure.id, self.measured_panels, self.results, self.request, self.protocols
            ),
        ]
        if self.constants:
            constants = [f"{name} = {value}" for name, value in self.constants.items()]
            remarks.append(f"In all rows of the CSV: {', '.join(constants)}.")
        return remarks

    @property
    def is_comparison(self) -> bool:
        """Whether protocols stand side by side."""
        return bool(self.protocols)

    @cached_property
    def missing(self) -> list[str]:
        """Remarks on panels, lines and sizes without results, with the command for each."""
        return notes.missing_results(self.measured_panels, self.results, self.is_comparison)


def _description(measured: MeasuredPanel, line: Line) -> dict[str, Any]:
    """Return the columns that are the same for all points of a line."""
    setting = measured.protocol
    if measured.changes:
        setting = f"{measured.protocol} with {measured.changes}"
    return {
        "dataset": measured.panel.dataset,
        "metric": measured.panel.metric,
        "against": measured.panel.x_name,
        "n": measured.n,
        "method": f"{line.method} {line.version}".strip(),
        "estimator": line.estimator,
        "samples": line.samples,
        "beta": line.beta,
        "parameterisation": measured.parameterisation,
        "setting": setting,
    }
