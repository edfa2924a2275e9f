"""Compute the numbers of a panel from the tidy table: a `Series` for each line.

`panel_rows` collects the rows of a panel in all settings. `measure` computes means and intervals
from the rows in one setting.

Means and intervals are over the repetitions with a finite metric. A repetition that failed, or
whose metric is NaN or infinite, is counted in `failed`. A repetition is not drawn as long as some
of its candidates (for instance values of beta) have not been run; a note counts such repetitions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.plugin_errors import plugin_errors_as_user_errors
from dlmexp.experiment.records.columns import IDENTITY, SELECTION
from dlmexp.experiment.records.record import WARNING
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import (
    PAPER_PROTOCOL,
    SETTING_COLUMNS,
    Where,
    is_any_of,
    select_setting,
)
from dlmexp.experiment.records.table import best_at_each_beta, rows_for, select
from dlmexp.presentation.figures.panels import SHORT_GRID_MIN, Line, Panel
from dlmexp.presentation.figures.stats import BAYES_NLL, half_width, statistics

WHITENED = "whitened"
UNWHITENED = "unwhitened"
# The columns of the tidy table that figures read, apart from metrics.
FIGURE_COLUMNS = (
    *IDENTITY,
    *SELECTION,
    *SETTING_COLUMNS,
    "group",
    "M",
    "components",
    "form",
    "noise_floor",
    "minibatch",
    "options",
    "initial",
    "command",
    "base",
    "bias",
    "bias_quadrature",
    "norm2_G",
    "arrays",
    "note",
    "plugins",
)


@dataclass(eq=False)
class Series:
    """The numbers of one line.

    Attributes:
        line: The line.
        points: A row per x: x, mean, std, sem (or median, q25, q75), repetitions, failed, and
            columns that only some kinds of panels have.
        values: In panels of kind `sizes`, the metric with a row per seed and a column per n (or
            M); None in panels of other kinds.
        draws: In histograms, the statistic of the gradient draws of one repetition; else empty.
        notes: Remarks on the line for the caption, without its name.
    """

    line: Line
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    values: pd.DataFrame | None = None
    draws: np.ndarray = field(default_factory=lambda: np.empty(0))
    notes: list[str] = field(default_factory=list)


@dataclass
class MeasuredPanel:
    """A panel with its numbers and the setting that they belong to.

    Attributes:
        panel: The panel.
        requested_protocol: The protocol to draw, even if it has no rows; None where no protocol
            has any.
        other_settings: For each setting that is not drawn, the options of `dlmexp plot` that draw
            it and the number of its results.
        series: The numbers of each line of the panel, in the same order.
        protocol: The protocol of the rows; None where there are none.
        changes: The changed values of the setting as a text, such as `M=50`; '' without changes.
        parameterisation: The parameterisation of q that is drawn.
        parameterisations: All parameterisations of q in this setting; empty in regression.
        task: The task of the dataset; '' without rows.
        n: The training size, where the panel has only one.
        command: The command that made most of the rows.
        notes: Remarks on the lines, with their names.
    """

    panel: Panel
    requested_protocol: str | None
    other_settings: list[tuple[str, int]]
    series: list[Series]
    protocol: str | None = None
    changes: str = ""
    parameterisation: str = WHITENED
    parameterisations: frozenset[str] = frozenset()
    task: str = ""
    n: int | None = None
    command: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def nonempty_series(self) -> list[Series]:
        """The numbers of the lines that have points."""
        return [series for series in self.series if not series.points.empty]

    @property
    def has_bars(self) -> bool:
        """Whether a panel of kind `sizes` is drawn as bars: if all points are at one size.

        No line could join such points.
        """
        if self.panel.kind != "sizes":
            return False
        positions: set[float] = set()
        for series in self.nonempty_series:
            positions.update(series.points["x"])
        return len(positions) == 1


def panel_rows(
    panel: Panel, results: ResultsFolder, by: Where, where: Iterable[str] = ()
) -> pd.DataFrame:
    """Return the rows of a panel in all settings, sizes and parameterisations.

    Args:
        panel: The panel.
        results: The tidy table and its candidates.
        by: Values that the rows should have, by column. Those of dataset, method and beta are
            ignored here, as panels and lines were already chosen by them.
        where: Names of further columns, which are needed to choose a setting.

    Returns:
        Rows with the number of their line in the column `line`. A row that belongs to several
        lines occurs once for each of them.
    """
    columns = _needed_columns(panel, where)
    # Effects compare methods: all lines share the rows of the first one.
    lines = panel.lines[:1] if panel.panel_kind.compares_methods else panel.lines
    rows_by_line: list[pd.DataFrame] = []
    for number, line in enumerate(lines):
        rows = _rows_of_line(panel, line, results, by, columns)
        rows_by_line.append(rows.assign(line=number))
    # Empty tables are left out, as they could change the types of columns. If all are empty, the
    # first one gives the columns.
    nonempty = [rows for rows in rows_by_line if len(rows)]
    rows_of_panel = pd.concat(nonempty or rows_by_line[:1], ignore_index=True)
    # A copy stores columns of the same type together, which halves the time of filters.
    return rows_of_panel.copy()


def _needed_columns(panel: Panel, where: Iterable[str]) -> set[str]:
    """Return the names of the columns that a panel needs."""
    metric = _recorded_metric(panel)
    metrics = {f"test_{metric}", f"validation_{metric}", "validation_nll"}
    recalibrated = {_recalibrated_name(name) for name in metrics}
    return {*FIGURE_COLUMNS, panel.x, *metrics, *recalibrated, *where}


def _recorded_metric(panel: Panel) -> str:
    """Return the metric in records: `nll` for `excess_nll`, which is computed from the NLL."""
    return panel.metric.removeprefix("excess_")


def _recalibrated_name(column: str) -> str:
    """Return `test_recalibrated_nll` for `test_nll`."""
    return column.replace("_", "_recalibrated_", 1)


def _rows_of_line(
    panel: Panel, line: Line, results: ResultsFolder, by: Where, columns: set[str]
) -> pd.DataFrame:
    """Return the rows of a line in all settings, sizes and parameterisations.

    Args:
        panel: The panel of the line.
        line: The line.
        results: The tidy table and its candidates.
        by: Values that the rows should have, by column (`panel_rows`).
        columns: The columns to return; those that the table lacks are ignored.
    """
    rows = results.candidates if _is_drawn_from_candidates(panel, line) else results.table
    belongs = _belongs_to_line(rows, panel, line, by)
    present_columns = [name for name in map(str, rows) if name in columns]
    rows = rows.loc[belongs, present_columns]
    is_of_candidates = "selected_by" not in rows  # a column of the table of selected rows
    if is_of_candidates:
        rows = best_at_each_beta(rows, "nll").assign(selected_by="nll")
    if line.role == "rivals":
        use_of_validation = "train" if line.version == "train" else ""
        rows = _with_use_of_validation(rows, use_of_validation)
    if line.version == "short":
        return _with_own_groups(_selected_from_short_grid(rows))
    if line.version == "recalibrated":
        return _with_own_groups(_with_recalibrated_metric(rows, panel.metric))
    return rows


def _is_drawn_from_candidates(panel: Panel, line: Line) -> bool:
    """Return whether a line is drawn from all candidates instead of the selected ones."""
    return panel.panel_kind.every_beta or line.beta is not None or line.version == "short"


def _belongs_to_line(rows: pd.DataFrame, panel: Panel, line: Line, by: Where) -> pd.Series:
    """Return which rows have the dataset, role, method, estimator and values of a line."""
    kind = panel.panel_kind
    belongs = rows["dataset"] == panel.dataset
    belongs &= rows["role"] == (line.role or kind.role)
    belongs &= rows["method"].isin(kind.methods or (line.method,))
    if not kind.compares_methods:
        belongs &= rows["estimator"] == line.estimator
        if panel.x != "samples":
            belongs &= rows["samples"].fillna(0) == (line.samples or 0)
    if line.beta is not None:
        belongs &= np.isclose(rows["beta"].astype(float), line.beta)
    # Panels and lines were already chosen by dataset, method and beta.
    for name in by.keys() - {"dataset", "method", "beta"}:
        belongs &= is_any_of(rows[name], by[name])
    return belongs


def _selected_from_short_grid(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that NLL selects among the betas of the paper's grids."""
    in_grid = (candidates["beta"] >= SHORT_GRID_MIN) & (candidates["missing"] == 0)
    return select(candidates[in_grid], "nll")


def _with_own_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with numbers of groups that no other line has.

    Without this, a row of another version of the line would have the same group, and `rows_for`
    would keep only one of both rows. Groups are counted from 0, so numbers below 0 are free.
    """
    return rows.assign(group=-1 - rows["group"])


def _with_use_of_validation(rows: pd.DataFrame, use: str) -> pd.DataFrame:
    """Return the rows of splits that make a certain use of the validation rows.

    The use is removed from the names of the splits: `published-train-v1` becomes `published-v1`.
    Otherwise lines of different uses would count as different settings, and only one of these is
    drawn.

    Args:
        rows: Rows of one line.
        use: `train` if the validation rows were trained on, `tenth` if a tenth of them was used,
            '' if all of them were used to select beta, as usual.
    """
    uses = rows["split"].str.extract(r"-(train|tenth)-", expand=False).fillna("")
    rows = rows[uses == use]
    return rows.assign(split=rows["split"].str.replace(f"-{use}-", "-"))


def _with_recalibrated_metric(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows with the recalibrated metric in place of the plain one."""
    recalibrated: dict[str, pd.Series | float] = {}
    for name in (f"test_{metric}", f"validation_{metric}"):
        recalibrated[name] = rows.get(_recalibrated_name(name), np.nan)
    return rows.assign(**recalibrated)


def measure(
    panel: Panel,
    results: ResultsFolder,
    rows: pd.DataFrame,
    protocol: str | None = PAPER_PROTOCOL,
    where: Where | None = None,
    parameterisation: str | None = None,
) -> MeasuredPanel:
    """Return the numbers of a panel.

    Args:
        panel: The panel.
        results: The folder of the rows. Its arrays have learning curves, gradient draws and
            reliability diagrams.
        rows: The rows of the panel (`panel_rows`).
        protocol: The protocol to draw.
        where: Values of the setting to draw, by name.
        parameterisation: The parameterisation of q to draw; None means whitened where it was run.
    """
    rows, other_settings = select_setting(rows, protocol, where or {}, results.changes)
    empty = [Series(line) for line in panel.lines]
    measured = MeasuredPanel(panel, protocol, other_settings, empty)
    if rows.empty:
        return measured
    _describe_setting(measured, rows)
    rows = _rows_to_draw(measured, rows, parameterisation)
    for line_number in range(len(panel.lines)):
        series = _measure_line(panel, line_number, rows, results)
        measured.series[line_number] = series
        measured.notes += [f"{series.line.label}: {note}" for note in series.notes]
    _add_differences(measured.nonempty_series)
    return measured


def _describe_setting(measured: MeasuredPanel, rows: pd.DataFrame) -> None:
    """Set protocol, changes, task, command and parameterisations from rows of one setting."""
    first = rows.iloc[0]
    measured.protocol = first["protocol"]
    measured.changes = first["changes"]
    measured.task = first["task"]
    measured.command = next(iter(rows["command"].dropna().mode()), "")
    if measured.task != "regression":
        measured.parameterisations = frozenset(rows["parameterisation"])


def _rows_to_draw(
    measured: MeasuredPanel, rows: pd.DataFrame, parameterisation: str | None
) -> pd.DataFrame:
    """Return the rows in one parameterisation and at the size of the panel, in order of seeds.

    The parameterisation and the size, if the panel has only one, are set in `measured`.
    """
    panel = measured.panel
    kind = panel.panel_kind
    if not kind.compares_methods:
        measured.parameterisation = _parameterisation_to_draw(rows, parameterisation)
        rows = _in_parameterisation(rows, measured.parameterisation)
    rows = _without_repeated_cells(panel, rows)
    if kind.at_one_size or panel.x != "n":
        measured.n = _size_to_draw(rows, panel.n)
        rows = rows[rows["n"] == measured.n]
    if kind.by_selection:
        rows = rows_for(rows.reset_index(drop=True), panel.metric)
    return rows.sort_values("seed", kind="stable")


def _parameterisation_to_draw(rows: pd.DataFrame, requested: str | None) -> str:
    """Return the parameterisation of q to draw.

    The requested one is returned. If none is requested, the result is `whitened`, except where a
    task other than regression was run unwhitened only.
    """
    if requested is not None:
        return requested
    is_regression = rows["task"].iloc[0] == "regression"
    was_run_whitened = (rows["parameterisation"] == WHITENED).any()
    return WHITENED if is_regression or was_run_whitened else UNWHITENED


def _in_parameterisation(rows: pd.DataFrame, parameterisation: str) -> pd.DataFrame:
    """Return the rows in one parameterisation of q.

    Most methods of regression have a closed form over q, which has no parameterisation. A line of
    regression without rows in the parameterisation keeps all of its rows.
    """
    is_kept = rows["parameterisation"] == parameterisation
    if rows["task"].iloc[0] == "regression":
        lines_with_rows = rows["line"][is_kept]
        is_kept |= ~rows["line"].isin(lines_with_rows)
    return rows[is_kept]


def _without_repeated_cells(panel: Panel, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without repeated cells in lines that are drawn from all candidates.

    A cell that is a candidate of several groups has a row in each of them, but only one point on
    its line.
    """
    lines_of_candidates: list[int] = []
    for number, line in enumerate(panel.lines):
        if _is_drawn_from_candidates(panel, line):
            lines_of_candidates.append(number)
    if not lines_of_candidates:
        return rows
    is_repeated = rows["line"].isin(lines_of_candidates) & rows.duplicated(["line", "key"])
    return rows[~is_repeated]


def _size_to_draw(rows: pd.DataFrame, size: str | None) -> int | None:
    """Return the training size n with the most rows; None where there are no rows.

    Of several sizes with equally many rows, the largest is returned.

    Args:
        rows: The rows.
        size: The size to draw as it is written in a command, such as '5%'; None means any size.
    """
    if size is not None:
        rows = rows[rows["size"] == size]
    counts = rows["n"].value_counts()
    return max(counts.index, key=lambda n: (counts[n], n), default=None)


def _measure_line(
    panel: Panel, line_number: int, rows: pd.DataFrame, results: ResultsFolder
) -> Series:
    """Return the numbers of a line from its complete rows, with a note on incomplete ones.

    A row is incomplete if some of its candidates have not been run yet.
    """
    line = panel.lines[line_number]
    # Where lines compare methods, they share all rows (`panel_rows`).
    if not panel.panel_kind.compares_methods:
        rows = rows[rows["line"] == line_number]
    complete = rows[rows["status"] != "incomplete"]
    series = Series(line)
    if len(complete):
        series = _measured_by_kind(panel, line, complete, results)
    incomplete_count = len(rows) - len(complete)
    if incomplete_count:
        repetitions = counted(incomplete_count, "repetition")
        series.notes.insert(0, f"{repetitions} with candidates not yet run, not drawn")
    series.notes += _warnings(complete)
    return series


def _measured_by_kind(
    panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder
) -> Series:
    """Return the numbers of a line, computed by the module of the panel's kind.

    Raises:
        UserError: The module belongs to a plugin, and raised an exception or did not return a
            `Series`.
    """
    module = panel.panel_kind.load()
    with plugin_errors_as_user_errors(f"panel '{panel.kind}'"):
        series = module.measure(panel, line, rows, results)
    if not isinstance(series, Series):
        raise UserError(
            f"panel '{panel.kind}': {module.__name__}.measure returned a {type(series).__name__}; "
            "return a Series of dlmexp.plugins, with the numbers of the line in its points"
        )
    return series


def _warnings(rows: pd.DataFrame) -> list[str]:
    """Return the first warning in the records of a line, with the number of records with warnings.

    Warnings differ only in the numbers that they contain, so the first one represents all. The list
    is empty if no record has a warning.
    """
    warnings: list[str] = []
    for note in rows.get("note", ()):
        _, _, text = str(note).partition(WARNING)
        if text:
            warnings.append(text)
    if not warnings:
        return []
    return [f"{WARNING}{warnings[0]} ({counted(len(warnings), 'result')})"]


def metric_values(rows: pd.DataFrame, panel: Panel, split: str = "test") -> np.ndarray:
    """Return the metric of a panel for each row; NaN where it is unknown or the row is not done.

    The metric `excess_nll` is the NLL minus the NLL of the true class probabilities.

    Args:
        rows: Rows of one line.
        panel: The panel.
        split: The rows of data that the metric is of, `test` or `validation`.
    """
    name = f"{split}_{_recorded_metric(panel)}"
    if name not in rows:
        return np.full(len(rows), np.nan)
    values = rows[name].astype(float).where(rows["status"] == "done").to_numpy()
    if panel.metric == "excess_nll":
        return values - BAYES_NLL.get(panel.dataset, np.nan)
    return values


def by_seed(
    rows: pd.DataFrame, columns: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Arrange values in a matrix with a row per seed.

    Args:
        rows: Rows of one line.
        columns: The column of the matrix in which the value of each row stands, from 0.
        values: The value of each row.

    Returns:
        The seeds `[R]`, and the matrix of values `[R, P]`; NaN where a seed has no value.
    """
    seeds, seed_numbers = np.unique(rows["seed"], return_inverse=True)
    matrix = np.full((len(seeds), columns.max() + 1), np.nan)
    matrix[seed_numbers, columns] = values
    return seeds, matrix


def _add_differences(lines: Sequence[Series]) -> None:
    """Add the difference to the ELBO to the points of all other lines that have values by seed.

    Nothing is added where no line is the ELBO. Of several such lines, the first is subtracted.
    """
    with_values = [series for series in lines if series.values is not None]
    elbos = [series for series in with_values if _is_elbo(series.line)]
    if not elbos:
        return
    for series in with_values:
        if not _is_elbo(series.line):
            difference = _difference(series, elbos[0])
            series.points = series.points.assign(**difference)


def _is_elbo(line: Line) -> bool:
    """Return whether a line shows the usual result of the ELBO, not another version of it."""
    return line.method == "elbo" and not line.version


def _difference(series: Series, elbo: Series) -> dict[str, np.ndarray]:
    """Return the mean difference at each x with its 95 % interval and standard deviation.

    The metrics of the same repetition are subtracted before the mean is taken. Both lines have
    values by seed.
    """
    assert series.values is not None
    assert elbo.values is not None
    # pandas aligns seeds and sizes; `reindex` drops sizes that only the ELBO has.
    paired = (series.values - elbo.values).reindex(columns=series.values.columns)
    # The number of attempted repetitions is not used.
    difference = statistics(series.points["x"], paired.to_numpy(), attempted=0)
    mean = difference["mean"].to_numpy()
    half = half_width(difference)
    return {
        "minus_elbo": mean,
        "low": mean - half,
        "high": mean + half,
        "minus_elbo_std": difference["std"].to_numpy(),
    }
