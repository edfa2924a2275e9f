"""Panels measured from made-up tables, and drawn on bare axes, for tests of figures."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.figures.axes import Tile
from dlmexp.presentation.figures.numbers import MeasuredPanel, Series, measure, panel_rows
from dlmexp.presentation.figures.panels import Line, Panel
from tests.support.tidy import Made


def made(
    rows: Iterable[dict[str, Any]], arrays: Mapping[str, Mapping[str, Any]] | None = None
) -> ResultsFolder:
    """Return made-up results in place of a results folder (`tests.support.tidy.Made`)."""
    return cast(ResultsFolder, Made(rows, cast(Any, arrays)))


def rows_with(names: str, *cases: tuple[Any, ...], **facts: Any) -> list[dict[str, Any]]:
    """Return a row for each case, with its values under `names` and the same facts in all."""
    return [facts | dict(zip(names.split(), case, strict=True)) for case in cases]


def measure_panel(panel: Panel, results: ResultsFolder, **choice: Any) -> MeasuredPanel:
    """Return the numbers of a panel from its rows; `choice` are further arguments of `measure`."""
    return measure(panel, results, panel_rows(panel, results, {}), **choice)


def points_by_method(
    panel: Panel, results: ResultsFolder, **choice: Any
) -> dict[str, pd.DataFrame]:
    """Return the points of each line of a panel by its method."""
    series = measure_panel(panel, results, **choice).series
    return {line.line.method: line.points for line in series}


def points(
    x: Iterable[float], mean: Iterable[float], half: float = 0.0, **more: Any
) -> pd.DataFrame:
    """Return points with means and half widths of their intervals, from three repetitions."""
    repetitions = 3
    student = 4.302652729749462  # quantile at 0.975 with two degrees of freedom
    values = np.array(list(mean), dtype=float)
    table = pd.DataFrame({"x": np.array(list(x), dtype=float), "mean": values})
    return table.assign(std=np.nan, sem=half / student, repetitions=repetitions, failed=0, **more)


def tile(panel: Panel, tables: Mapping[Line, pd.DataFrame], **facts: Any) -> Tile:
    """Return a panel with these points on the bare axes of a small figure."""
    series = [Series(line, table) for line, table in tables.items()]
    measured = MeasuredPanel(panel, "paper", [], series, protocol="paper", task="binary", **facts)
    picture = MatplotlibFigure(figsize=(3.0, 2.0))
    return Tile(measured, 0, 0, picture.add_subplot())


def draw_tile(panel: Panel, tables: Mapping[Line, pd.DataFrame]) -> Tile:
    """Return a drawn panel with these points."""
    drawn = tile(panel, tables)
    draw: Callable[[list[Tile]], None] = panel.panel_kind.load().draw
    draw([drawn])
    return drawn


def ends_of_band(ax: Axes) -> tuple[float, float]:
    """Return the lowest and the highest value of the only band of axes."""
    (band,) = ax.collections
    (path,) = band.get_paths()
    heights = np.asarray(path.vertices)[:, 1]
    return heights.min(), heights.max()
