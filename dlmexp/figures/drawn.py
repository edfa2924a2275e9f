"""A figure with its numbers, and what was asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp.figures import style
from dlmexp.figures.numbers import Measured
from dlmexp.figures.panels import Figure
from dlmexp.figures.style import Page
from dlmexp.records.table import Term

AGAINST = {"sizes": "n", "betas": "beta", "histogram": "samples", "reliability": "predicted", "effects": "effect"}


@dataclass(frozen=True)
class Request:
    """What is asked of `dlmexp plot`, figures aside."""

    by: Mapping[str, list[str]] = field(default_factory=dict)  # column -> the values to draw (`choose.parse_by`)
    protocol: str | None = None  # None: paper, or if nothing of it was run the one with most results
    where: tuple[Term, ...] = ()  # changed settings (`parse_where`)
    parameterisation: str | None = None  # of q; None: whitened, or what there is, and a variant where both were run
    compare_protocols: bool = False  # all that were run, side by side
    error: str = "ci95"  # or std, sem


@dataclass
class Drawn:
    """A figure with its numbers: `measured` by panel, protocol (one, unless they stand side by side) and folder."""

    figure: Figure
    name: str  # of its files
    measured: list[list[list[Measured]]]
    render: Callable[["Drawn", float | None], Canvas]  # draws it, at a width in inches
    protocols: tuple[str, ...] = ()  # side by side
    folders: list[str] = field(default_factory=list)  # that are compared
    error: str = "ci95"
    page: Page = field(default_factory=Page)
    commands: list[str] = field(default_factory=list)  # what computes its panels
    notes: list[str] = field(default_factory=list)  # setting, repetitions, what was not run or is left out

    @property
    def caption(self) -> str:
        return self.figure.caption

    @property
    def cells(self) -> list[Measured]:
        return [one for panel in self.measured for column in panel for one in column]

    @property
    def empty(self) -> bool:
        return all(one.empty for one in self.cells)

    @cached_property
    def canvas(self) -> Canvas:
        """The picture, as a matplotlib figure."""
        with style.use(self.page.style):
            return self.render(self, self.page.width)

    @cached_property
    def _table(self) -> pd.DataFrame:
        tables = []
        for one in self.cells:
            setting = f"{one.protocol} with {one.changes}" if one.changes else one.protocol
            for series in (series for series in one.series if not series.empty):
                line, panel = series.line, one.panel
                about = {
                    "dataset": panel.dataset, "metric": panel.metric, "against": AGAINST.get(panel.kind, panel.x),
                    "n": one.n, "method": line.method, "estimator": line.estimator, "samples": line.samples,
                    "beta": line.beta, "parameterisation": one.parameterisation, "setting": setting,
                    "folder": series.folder or None,
                }  # fmt: skip
                points = series.points.assign(**about).astype(dict.fromkeys(about, object))
                tables.append(points[[*about, *series.points.columns]])
        return pd.concat(tables, ignore_index=True).dropna(axis="columns", how="all") if tables else pd.DataFrame()

    @property
    def constants(self) -> dict[str, Any]:
        """What all rows of the numbers share, where they are points of curves: named once, in the notes."""
        if any(one.panel.kind != "curve" for one in self.cells):
            return {}
        table = self._table
        return {str(name): table[name].iloc[0] for name in table if table[name].nunique(dropna=False) == 1}

    @property
    def csv(self) -> pd.DataFrame:
        """The numbers, a row per point."""
        return self._table.drop(columns=[*self.constants])

    @property
    def text(self) -> str:
        """The caption file, in Markdown."""
        title = self.figure.title or self.figure.id
        return "\n".join([f"# {title}", "", self.caption, "", *(f"- {note}" for note in self.notes), ""])
