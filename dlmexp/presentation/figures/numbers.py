"""From the tidy table to the numbers of a panel: a `Series` for each line, all of one setting.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or
infinite, is left out of mean and interval and counted in `failed`; one with candidates that have
not been run yet is left out and counted in a note.
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
from dlmexp.experiment.records.settings import PAPER, SETTING, Where, named, select_setting
from dlmexp.experiment.records.table import best_at_each_beta, rows_for, select
from dlmexp.presentation.figures.panels import SHORTEST, Line, Panel
from dlmexp.presentation.figures.stats import BAYES_NLL, half_width, statistics

WHITENED = "whitened"
# The columns that figures read, apart from metrics.
FACTS = (
    *IDENTITY,
    *SELECTION,
    *SETTING,
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
        points: A row per x: x, mean, std, sem (or median, q25, q75), repetitions, failed, and
            columns that only some kinds of panels have.
        values: Of panels of `sizes`: the metric by seed, a column for each n (or M).
        draws: Of histograms: the draws of one repetition.
        notes: What readers should know about the line, without its name.
    """

    line: Line
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    values: pd.DataFrame | None = None
    draws: np.ndarray = field(default_factory=lambda: np.empty(0))
    notes: list[str] = field(default_factory=list)


@dataclass
class Measured:
    """The numbers of a panel, with the setting that they belong to.

    Attributes:
        requested_protocol: The protocol that is drawn, whether it has rows or not.
        others: Options that draw other settings, and how many results these have.
        protocol: The protocol of the rows; None where there are none.
        coordinates: Parameterisations of q in this setting; none in regression.
        n: The training size, where the panel has only one.
        command: The command that made most of the rows.
    """

    panel: Panel
    requested_protocol: str | None
    others: list[tuple[str, int]]
    series: list[Series]
    protocol: str | None = None
    changes: str = ""
    parameterisation: str = WHITENED
    coordinates: frozenset[str] = frozenset()
    task: str = ""
    n: int | None = None
    command: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def filled(self) -> list[Series]:
        """The lines that have points."""
        return [series for series in self.series if not series.points.empty]

    @property
    def has_single_size(self) -> bool:
        """Whether all points have one x, so that there is nothing to join: they become bars."""
        if self.panel.kind != "sizes":
            return False
        positions: set[float] = set()
        for series in self.filled:
            positions.update(series.points["x"])
        return len(positions) == 1


def panel_rows(
    panel: Panel, results: ResultsFolder, by: Where, where: Iterable[str] = ()
) -> pd.DataFrame:
    """Return all rows that may be drawn in a panel, of every setting, size and parameterisation.

    Args:
        panel: Its lines are numbered in the column `line`.
        results: The tidy table and its candidates.
        by: Values that the rows have, by column; those of dataset, method and beta have already
            chosen panels and lines.
        where: Further columns that are needed to choose a setting.
    """
    columns = _columns(panel, where)
    # Effects compare methods: all lines share the rows of the first one.
    lines = panel.lines[:1] if panel.facts.compares_methods else panel.lines
    parts: list[pd.DataFrame] = []
    for number, line in enumerate(lines):
        rows = _rows_of_line(panel, line, results, by, columns)
        parts.append(rows.assign(line=number))
    with_rows = [part for part in parts if len(part)]
    rows = pd.concat(with_rows or parts[:1], ignore_index=True)
    return rows.copy()  # which joins columns of one type: filters take half the time


def _columns(panel: Panel, where: Iterable[str]) -> set[str]:
    """Return the names of the columns that a panel needs."""
    metric = _recorded_metric(panel)
    metrics = {f"test_{metric}", f"validation_{metric}", "validation_nll"}
    metrics |= {_recalibrated(name) for name in metrics}
    return {*FACTS, panel.x, *metrics, *where}


def _recorded_metric(panel: Panel) -> str:
    """Return the metric that records have; `excess_nll` is made from `nll`."""
    return panel.metric.removeprefix("excess_")


def _recalibrated(name: str) -> str:
    """Return `test_recalibrated_nll` for `test_nll`."""
    return name.replace("_", "_recalibrated_", 1)


def _rows_of_line(
    panel: Panel, line: Line, results: ResultsFolder, by: Where, columns: set[str]
) -> pd.DataFrame:
    """Return the rows of a line, of every setting, size and parameterisation.

    Args:
        panel: The panel of the line.
        line: The line.
        results: The tidy table and its candidates.
        by: Values that the rows have, by column.
        columns: The columns to return, as far as there are such.
    """
    is_of_candidates = _has_every_beta(panel, line)
    table = results.candidates if is_of_candidates else results.table
    names = [name for name in map(str, table) if name in columns]
    rows = table.loc[_belongs_to_line(table, panel, line, by), names]
    if "selected_by" not in rows:  # candidates
        rows = best_at_each_beta(rows, "nll").assign(selected_by="nll")
    if line.role == "rivals":
        use_of_validation = "train" if line.version == "train" else ""
        rows = _with_use_of_validation(rows, use_of_validation)
    if line.version == "short":
        return _with_own_groups(_selected_from_short_grid(rows))
    if line.version == "recalibrated":
        return _with_own_groups(_with_recalibrated_metric(rows, panel.metric))
    return rows


def _selected_from_short_grid(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that NLL selects among the betas that the paper's grids have."""
    in_grid = (candidates["beta"] >= SHORTEST) & (candidates["missing"] == 0)
    return select(candidates[in_grid], "nll")


def _with_own_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with groups that no other line has: of a group only one row is drawn."""
    return rows.assign(group=-1 - rows["group"])


def _belongs_to_line(rows: pd.DataFrame, panel: Panel, line: Line, by: Where) -> pd.Series:
    """Return which rows have the dataset, role, method, estimator and values of a line."""
    facts = panel.facts
    role = line.role or facts.role
    methods = facts.methods or (line.method,)
    belongs = rows["dataset"] == panel.dataset
    belongs &= rows["role"] == role
    belongs &= rows["method"].isin(methods)
    if not facts.compares_methods:
        belongs &= rows["estimator"] == line.estimator
        if panel.x != "samples":
            belongs &= rows["samples"].fillna(0) == (line.samples or 0)
    if line.beta is not None:
        belongs &= np.isclose(rows["beta"].astype(float), line.beta)
    for name in by.keys() - {"dataset", "method", "beta"}:
        belongs &= named(rows[name], by[name])
    return belongs


def _with_use_of_validation(rows: pd.DataFrame, use: str) -> pd.DataFrame:
    """Return the rows whose split makes this use of the validation rows.

    The use is part of what a line shows, not of its setting, so the name of the split loses it.
    """
    uses = rows["split"].str.extract(r"-(train|tenth)-", expand=False).fillna("")
    rows = rows[uses == use]
    return rows.assign(split=rows["split"].str.replace(f"-{use}-", "-"))


def _with_recalibrated_metric(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows with the recalibrated metric in place of the plain one."""
    names = (f"test_{metric}", f"validation_{metric}")
    return rows.assign(**{name: rows.get(_recalibrated(name), np.nan) for name in names})


def _has_every_beta(panel: Panel, line: Line) -> bool:
    """Return whether a line is drawn from all candidates instead of the selected ones."""
    return panel.facts.every_beta or line.beta is not None or line.version == "short"


def measure(
    panel: Panel,
    results: ResultsFolder,
    rows: pd.DataFrame,
    protocol: str | None = PAPER,
    where: Where | None = None,
    parameterisation: str | None = None,
) -> Measured:
    """Return the numbers of a panel from its `panel_rows`.

    Args:
        panel: The panel.
        results: Its arrays have learning curves, gradient draws and reliability diagrams.
        rows: From `panel_rows`.
        protocol: The protocol to draw.
        where: Values of the setting to draw, by name.
        parameterisation: Of q; None: whitened where there is any.
    """
    rows, others = select_setting(rows, protocol, where or {}, results.changes)
    measured = Measured(panel, protocol, others, [Series(line) for line in panel.lines])
    if rows.empty:
        return measured
    _describe_setting(measured, rows)
    rows = _rows_to_draw(measured, rows, parameterisation)
    for number in range(len(panel.lines)):
        series = _measure_line(panel, number, rows, results)
        measured.series[number] = series
        measured.notes += [f"{series.line.label}: {note}" for note in series.notes]
    _add_differences(measured.filled)
    return measured


def _describe_setting(measured: Measured, rows: pd.DataFrame) -> None:
    """Set protocol, changes, task, command and coordinates from rows of one setting."""
    first = rows.iloc[0]
    measured.protocol = first["protocol"]
    measured.changes = first["changes"]
    measured.task = first["task"]
    measured.command = next(iter(rows["command"].dropna().mode()), "")
    if measured.task != "regression":
        measured.coordinates = frozenset(rows["parameterisation"])


def _rows_to_draw(
    measured: Measured, rows: pd.DataFrame, parameterisation: str | None
) -> pd.DataFrame:
    """Return the rows in one parameterisation and at the size of the panel, in order of seeds.

    Sets the parameterisation and the size.
    """
    panel = measured.panel
    facts = panel.facts
    if not facts.compares_methods:
        measured.parameterisation = _coordinates(rows, parameterisation)
        rows = _in_coordinates(rows, measured.parameterisation)
    rows = _without_repeated_cells(panel, rows)
    if facts.at_one_size or panel.x != "n":
        measured.n = _main_size(rows, panel.n)
        rows = rows[rows["n"] == measured.n]
    if facts.by_selection:
        rows = rows_for(rows.reset_index(drop=True), panel.metric)
    return rows.sort_values("seed", kind="stable")


def _coordinates(rows: pd.DataFrame, wanted: str | None) -> str:
    """Return the parameterisation of q to draw: the wanted one, else whitened where it was run."""
    if wanted is not None or rows["task"].iloc[0] == "regression":
        return wanted or WHITENED
    return max(rows["parameterisation"])  # whitened comes after unwhitened


def _in_coordinates(rows: pd.DataFrame, parameterisation: str) -> pd.DataFrame:
    """Return the rows in one parameterisation of q.

    Most methods of regression have a closed form over q, so a line of regression without such rows
    keeps those that it has.
    """
    fits = rows["parameterisation"] == parameterisation
    if rows["task"].iloc[0] == "regression":
        fits |= ~rows["line"].isin(rows["line"][fits])
    return rows[fits]


def _without_repeated_cells(panel: Panel, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without cells of a line that occur again, in another group of candidates."""
    numbers = [number for number, line in enumerate(panel.lines) if _has_every_beta(panel, line)]
    if not numbers:
        return rows
    is_repeated = rows["line"].isin(numbers) & rows.duplicated(["line", "key"])
    return rows[~is_repeated]


def _main_size(rows: pd.DataFrame, size: str | None) -> int | None:
    """Return the n with the most rows, the larger of equals; None where there are no rows.

    Args:
        rows: The rows.
        size: The only size to count, as it is written in a command; None: all.
    """
    if size is not None:
        rows = rows[rows["size"] == size]
    counts = rows["n"].value_counts()
    return max(counts.index, key=lambda n: (counts[n], n), default=None)


def _measure_line(panel: Panel, number: int, rows: pd.DataFrame, results: ResultsFolder) -> Series:
    """Return the numbers of a line from its complete rows, with a note on incomplete ones."""
    line = panel.lines[number]
    if not panel.facts.compares_methods:
        rows = rows[rows["line"] == number]
    complete = rows[rows["status"] != "incomplete"]
    series = Series(line)
    if len(complete):
        series = _measured_by_kind(panel, line, complete, results)
    if incomplete := len(rows) - len(complete):
        repetitions = counted(incomplete, "repetition")
        series.notes.insert(0, f"{repetitions} with candidates not yet run, not drawn")
    series.notes += _warnings(complete)
    return series


def _measured_by_kind(
    panel: Panel, line: Line, rows: pd.DataFrame, results: ResultsFolder
) -> Series:
    """Return what the module of a kind of panel measures of a line.

    Raises:
        UserError: The module is one of a plugin, and raised an exception or returned another type.
    """
    module = panel.facts.load()
    with plugin_errors_as_user_errors(f"panel '{panel.kind}'"):
        series = module.measure(panel, line, rows, results)
    if not isinstance(series, Series):
        raise UserError(
            f"panel '{panel.kind}': {module.__name__}.measure returned a {type(series).__name__}; "
            "return a Series of dlmexp.plugins, with the numbers of the line in its points"
        )
    return series


def _warnings(rows: pd.DataFrame) -> list[str]:
    """Return the warning in the records of a line, with the number of its results."""
    notes = [str(note) for note in rows.get("note", ()) if WARNING in str(note)]
    if not notes:
        return []
    # The numbers in them differ: the first stands for all.
    _, _, text = notes[0].partition(WARNING)
    return [f"{WARNING}{text} ({counted(len(notes), 'result')})"]


def metric_values(rows: pd.DataFrame, panel: Panel, split: str = "test") -> np.ndarray:
    """Return the metric of each row; NaN where it was not recorded, or the row is not done.

    Args:
        rows: Rows of one line.
        panel: Its metric `excess_nll` is NLL minus that of the truth.
        split: test or validation.
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
    """Return the seeds `[R]`, and values by seed and column `[R, P]`; NaN where there is none.

    Args:
        rows: Rows of one line.
        columns: The number of the column of each row.
        values: The value of each row.
    """
    seeds, seed_numbers = np.unique(rows["seed"], return_inverse=True)
    table = np.full((len(seeds), columns.max() + 1), np.nan)
    table[seed_numbers, columns] = values
    return seeds, table


def _add_differences(lines: Sequence[Series]) -> None:
    """Add to each line its difference to the ELBO of the same repetitions, with its interval."""
    by_size = [series for series in lines if series.values is not None]
    elbo = next((series for series in by_size if _is_elbo(series.line)), None)
    if elbo is None:
        return
    for series in by_size:
        if not _is_elbo(series.line):
            difference = _difference(series, elbo)
            series.points = series.points.assign(**difference)


def _is_elbo(line: Line) -> bool:
    return line.method == "elbo" and not line.version


def _difference(series: Series, elbo: Series) -> dict[str, np.ndarray]:
    """Return the mean difference at each x, its 95 % interval and standard deviation."""
    assert series.values is not None
    assert elbo.values is not None
    paired = (series.values - elbo.values).reindex(columns=series.values.columns)
    difference = statistics(series.points["x"], paired.to_numpy(), 0)
    mean = difference["mean"].to_numpy()
    half = half_width(difference)
    return {
        "minus_elbo": mean,
        "low": mean - half,
        "high": mean + half,
        "minus_elbo_std": difference["std"].to_numpy(),
    }
