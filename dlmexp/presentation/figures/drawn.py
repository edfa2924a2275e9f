"""A figure with its numbers: the picture, the rows of its CSV, and the text of its caption file."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

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
        name: The name of its files.
        measured: The numbers of its first panel, under each of the protocols that stand side by
            side, then those of the next.
        protocols: The protocols that stand side by side, if any.
    """

    figure: Figure
    name: str
    measured: list[Measured]
    results: ResultsFolder
    request: Request
    protocols: tuple[str, ...] = ()

    @cached_property
    def run(self) -> list[Measured]:
        """The numbers of panels that have results."""
        return [measured for measured in self.measured if measured.filled]

    @cached_property
    def canvas(self) -> Canvas:
        """The picture, as a matplotlib figure."""
        with paper_style():
            return render(self.figure, self.measured, self.protocols)

    @cached_property
    def _table(self) -> pd.DataFrame:
        """The numbers with all columns, a row per point."""
        facts: list[dict[str, Any]] = []
        points: list[pd.DataFrame] = []
        for measured in self.run:
            for series in measured.filled:
                points.append(series.points.assign(series=len(facts)))
                facts.append(_facts(measured, series.line))
        table = pd.DataFrame(facts, dtype=object)
        table = table.merge(pd.concat(points), left_index=True, right_on="series")
        return table.drop(columns="series").reset_index(drop=True).dropna(axis="columns", how="all")

    @cached_property
    def constants(self) -> dict[str, Any]:
        """What all rows share, where they are points of curves: the CSV would be long with it."""
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
        """What computes each panel, under the protocol that is drawn; each command once."""
        commands = [notes.command(measured, self.results) for measured in self.measured]
        return list(dict.fromkeys(filter(None, commands)))

    @cached_property
    def notes(self) -> list[str]:
        """One line each, for the caption file and the terminal; nothing where nothing was run."""
        if not self.run:
            return []
        lines = [
            notes.settings(self.run),
            *notes.repetitions(self.run),
            *notes.stand_ins(self.run),
            *notes.choice(self.request.by),
            *(f"Not run: {gap}" for gap in self.missing),
            *notes.not_drawn(self.measured, self.is_comparison),
            *notes.of_lines(self.run, self.is_comparison),
            *notes.versions(self.run, self.results),
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
        """Panels, lines and sizes without results, with what computes them."""
        return notes.gaps(self.measured, self.results, self.is_comparison)


def _facts(measured: Measured, line: Line) -> dict[str, Any]:
    """Return the columns of a line's rows that say what its points are of."""
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
