"""The tables that a run prints: its plan before training, its results after it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.common.collector import paused_collector
from dlmexp.common.console import counted, print_table, wide_console
from dlmexp.common.literals import with_results_option
from dlmexp.experiment.plan.cell import (
    FIRST_OPTIONS,
    SELECTED_FIELDS,
    SHARED_IN_BATCH,
    CandidateGroup,
    Cell,
    cell_count,
    keys_of,
)
from dlmexp.experiment.plan.plugin_code import plugin_packages
from dlmexp.experiment.records.columns import (
    SHOWN_TEST_METRICS,
    USER_LABEL_METRICS,
    USER_TABLE_METRICS,
)
from dlmexp.experiment.records.gaps import EvidenceGap, largest_gaps
from dlmexp.experiment.records.record import WARNING
from dlmexp.experiment.records.refits import Selections
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.records.table import as_text, candidate_cells, rows_for, tidy
from dlmexp.experiment.running.sweep import Plan, Sweep
from dlmexp.experiment.running.table_baselines import lines_about_best

MAX_DISPERSION = 1.5
"""The ratio of squared errors to predicted variance above which a line about it is printed."""
MAX_RESULT_LINES = 60
METRICS_IN_TARGET_UNITS = [*USER_TABLE_METRICS, "test_nll"]
"""The metrics in the table of results if all results are of users' tables with a numeric target."""
UNITS = (
    "mean±standard deviation over seeds at the betas with the lowest validation metric; "
    "nll: nats per test row"
)
PLAN_COLUMNS = (
    "dataset",
    "n",
    "method",
    "estimator",
    "q",
    "seeds",
    "betas",
    "cells",
    "done",
    "failed",
    "batches",
)
# Columns of every table of results; settings are added if their values differ.
ALWAYS_SHOWN = ["dataset", "n", "M", "method"]
# Columns by which the lines of the table of results are sorted.
RESULT_ORDER = [*ALWAYS_SHOWN, "estimator", "samples", "parameterisation"]
# The values that cells of one batch share (`Cell.shared_values`). A line of the plan shows the
# cells with equal values. These groups of cells are not those of candidates (`CandidateGroup`).
BatchGroup = tuple[Any, ...]


def print_plan(plan: Plan, sweep: Sweep) -> None:
    """Print the cells that could share batches, and how many are done, failed and to run."""
    print_table(wide_console(), _plan_table(plan, sweep))
    batches = [*plan.batches, *plan.refits]
    print(
        f"{counted(len(plan.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed, "
        f"{cell_count(batches)} to run in {counted(len(batches), 'batch')}"
    )
    print_plugin_changes(plan, sweep)


def _plan_table(plan: Plan, sweep: Sweep) -> Table:
    """Return the table of the cells, with a line per `BatchGroup`."""
    pending_batches = Counter(batch[0].shared_values for batch in (*plan.batches, *plan.refits))
    methods = _methods_by_group(sweep)
    table = Table(*PLAN_COLUMNS)
    for group, cells in _cells_by_group(plan.cells).items():
        first = cells[0]
        keys = keys_of(cells)
        counts = (
            len(set(map(attrgetter("seed"), cells))),
            len(set(map(attrgetter("beta"), cells))),
            len(cells),
            len(keys & plan.done),
            len(keys & plan.failed),
            pending_batches[group],
        )
        table.add_row(
            first.dataset,
            str(first.n),
            ", ".join(methods[group]),
            first.model_label,
            _posterior_label(first),
            *map(str, counts),
        )
    return table


def _posterior_label(cell: Cell) -> str:
    """Return the number of Gaussians in q, its parameterisation, and the rows that it is fitted to.

    For instance `3 Gaussians, whitened, folds`.
    """
    label = cell.parameterisation if cell.form == "explicit" else "collapsed"
    if cell.components > 1:
        label = f"{counted(cell.components, 'Gaussian')}, {label}"
    if cell.cv:
        label += ", all rows" if cell.fold is None else ", folds"
    return label


def print_plugin_changes(plan: Plan, sweep: Sweep) -> None:
    """Print how many records another version of a plugin has made, and what happens with them."""
    if not plan.changed:
        return
    packages: set[str] = set()
    for key in plan.changed:
        packages.update(plugin_packages(sweep.by_key[key]))
    cells = counted(len(plan.changed), "cell")
    text = f"{cells} made by another version of {', '.join(sorted(packages))}"
    if sweep.cfg.rerun == "changed":
        print(f"{text}: trained again")
    else:
        print(f"{text}; rerun=changed trains them again")


def _methods_by_group(sweep: Sweep) -> dict[BatchGroup, list[str]]:
    """Return for each `BatchGroup` the names of the methods that have its cells as candidates."""
    methods = defaultdict[BatchGroup, list[str]](list)
    for candidates in sweep.candidates:
        # Candidates have several batch groups if they differ in the number of components, or if
        # there are folds.
        for key in (*candidates.keys, *candidates.folds):
            methods_of_group = methods[sweep.by_key[key].shared_values]
            if candidates.method not in methods_of_group:
                methods_of_group.append(candidates.method)
    return methods


def _cells_by_group(cells: Sequence[Cell]) -> dict[BatchGroup, list[Cell]]:
    """Return the cells of each `BatchGroup`, in the order of the lines of the plan."""

    def order(cell: Cell) -> tuple[int, int, str, bool]:
        # Small fits come first, and for the same data, cells without a base fit.
        has_base = cell.base is not None
        return cell.n, cell.M, cell.dataset, has_base

    groups = defaultdict[BatchGroup, list[Cell]](list)
    for cell in sorted(cells, key=order):
        groups[cell.shared_values].append(cell)
    return groups


@dataclass(frozen=True)
class Summary:
    """How the cells of a run ended, and the selected results."""

    total: int
    done: int
    failed: int
    with_stopping_rule: int  # done fits that could stop before their limit of iterations
    at_limit: int  # fits with a stopping rule that ended at their limit
    selected: pd.DataFrame  # rows of the tidy table, at the selected betas
    gaps: list[EvidenceGap]  # bounds on what a larger M could gain

    @property
    def missing(self) -> int:
        """The number of cells without a record."""
        return self.total - self.done - self.failed

    @property
    def exit_code(self) -> int:
        """0, or 1 if cells failed or have no record."""
        return 1 if self.failed or self.missing else 0


@paused_collector()  # it makes many objects that stay, and few that are garbage
def summarize(groups: Sequence[CandidateGroup], store: Store) -> Summary:
    """Return how the cells of groups of candidates ended, and the selected results.

    Args:
        groups: The groups of candidates.
        store: The results folder.
    """
    selections = Selections.of(store, groups)
    keys: set[str] = set()
    for group in groups:
        # Where folds select, only the selected fits to all rows are needed.
        keys.update(selections.needed(group))
    records = store.cells(keys)
    statuses = records["status"].to_pylist()
    # Where folds select, tables show the selected fits in place of the candidates.
    rows = candidate_cells(records, map(selections.shown, groups))
    table = tidy(rows)
    # A cell that is a candidate of several groups has several rows.
    fits = _fits_with_stopping_rule(rows.drop_duplicates("key"))
    done = statuses.count("done")
    return Summary(
        total=len(keys),
        done=done,
        failed=len(statuses) - done,
        with_stopping_rule=len(fits),
        at_limit=int(fits["converged"].eq(False).sum()),
        selected=as_text(rows_for(table[table["status"] == "done"], "nll")),
        gaps=largest_gaps(store, groups),
    )


def _fits_with_stopping_rule(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of done cells that could stop before their limit of iterations."""
    is_done = cells["status"] == "done"
    has_rule = cells["window"].notna() & cells["max_iterations"].notna()
    if "optimizer" in cells:
        has_rule |= cells["optimizer"] == "lbfgs"
    return cells[is_done & has_rule]


def print_summary(summary: Summary, store: Store, baselines: pd.DataFrame | None = None) -> None:
    """Print the selected results, then how many fits reached their limit, failed or are missing.

    Args:
        summary: The results.
        store: The results folder.
        baselines: Results of baselines on the user's own tables (`table_baselines`).
    """
    if not summary.selected.empty:
        _print_results(summary.selected, store, baselines)
    for gap in summary.gaps:
        print(gap.line)
    for line in warnings_of(summary.selected):
        print(line)
    if summary.at_limit:
        fits = counted(summary.with_stopping_rule, "fit")
        print(
            f"{summary.at_limit} of {fits} stopped at the limit of iterations and had not "
            "converged; training.max_iterations=N trains longer, as other cells"
        )
    _print_counts(summary, store)


def _print_counts(summary: Summary, store: Store) -> None:
    """Print how many cells are done, failed and missing, and commands for the last two."""
    missing = f", {summary.missing} without a record" if summary.missing else ""
    print(
        f"{summary.done} of {counted(summary.total, 'cell')} done, {summary.failed} failed"
        f"{missing}; records in {store.records}"
    )
    status_command = with_results_option("dlmexp status", store.root)
    if summary.failed:
        print(f"`{status_command} --failed` lists them, retry_failed=true runs them again")
    if summary.missing:
        print(f"`{status_command} --missing` lists what has no record, the same command runs it")


def warnings_of(rows: pd.DataFrame) -> list[str]:
    """Return a line per method with a warning in the notes of its results: the first one."""
    lines: list[str] = []
    for method, notes in rows.groupby("method", observed=True)["note"]:
        texts = notes.dropna().astype(str)
        warnings = texts[texts.str.contains(WARNING, regex=False)]
        if len(warnings):
            _, _, text = warnings.iloc[0].partition(WARNING)
            lines.append(f"{WARNING}{method}: {text} ({counted(len(warnings), 'result')})")
    return lines


def _print_results(rows: pd.DataFrame, store: Store, baselines: pd.DataFrame | None) -> None:
    """Print one line per dataset, size and method, with the units of the numbers."""
    if baselines is None:
        baselines = pd.DataFrame()
    metrics = _metrics_of_table(rows)
    rows_to_show = rows if baselines.empty else with_baselines(rows, baselines)
    collect_command = with_results_option("dlmexp collect", store.root)
    line_count = _group_by_line(rows_to_show).ngroups
    if line_count > MAX_RESULT_LINES:
        print(f"{counted(line_count, 'result')}: `{collect_command}` writes them as a table")
        return
    print_table(wide_console(), results_table(rows_to_show, metrics))
    print(_units(rows, metrics, collect_command))
    for line in lines_about_best(rows, baselines):
        print(line)
    for line in overdispersion_lines(rows):
        print(line)


def _metrics_of_table(rows: pd.DataFrame) -> list[str]:
    """Return the metrics that the table of results shows."""
    # Errors in the units of the target say more than the MSE of scaled targets.
    if "test_rmse" in rows and rows["test_rmse"].notna().all():
        return METRICS_IN_TARGET_UNITS
    return USER_LABEL_METRICS if _has_values(rows, "test_auc") else SHOWN_TEST_METRICS


def _units(rows: pd.DataFrame, metrics: Sequence[str], collect_command: str) -> str:
    """Return the line about the units of the metrics.

    Args:
        rows: The selected results.
        metrics: The metrics of the table of results.
        collect_command: The command that writes the table of all results.
    """
    units = UNITS
    is_scaled = (rows["task"] == "regression").any()
    if is_scaled:
        units += " of targets scaled to variance 1"
    if metrics == METRICS_IN_TARGET_UNITS:
        units += "; rmse, mae: in the units of the target"
    elif is_scaled:
        units += f"; `{collect_command}` writes their y_std"
    if metrics == USER_LABEL_METRICS:
        units += "; auc: area under the ROC curve; base_rate: share of class 1"
    return units


def overdispersion_lines(rows: pd.DataFrame) -> list[str]:
    """Return a line per dataset and method whose counts vary much more than predicted."""
    if "test_dispersion" not in rows:
        return []
    lines = []
    groups = rows.groupby(["dataset", "method"], observed=True, sort=False)
    means = groups["test_dispersion"].mean().dropna()
    for (dataset, method), dispersion in means.items():  # pyright: ignore[reportGeneralTypeIssues]
        if dispersion > MAX_DISPERSION:
            lines.append(
                f"{dataset} {method}: squared errors are {dispersion:.3g} times the predicted "
                "variance: the counts vary more than Poisson counts, so intervals are too narrow"
            )
    return lines


def with_baselines(rows: pd.DataFrame, baselines: pd.DataFrame) -> pd.DataFrame:
    """Return results followed by those of baselines on the same tables and sizes."""
    # Baselines have no M, and Int64 allows missing values.
    rows = as_text(rows).astype({"M": "Int64"})
    tables = rows[["dataset", "n", "task"]].drop_duplicates()
    return pd.concat([rows, baselines.merge(tables)], ignore_index=True)


def results_table(rows: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """Return a table of metrics: mean and standard deviation over seeds.

    The table has a column for each setting in which rows of one dataset, size and method differ,
    the estimator for instance. Metrics that no row has are left out.
    """
    rows = rows.sort_values(RESULT_ORDER, kind="stable", na_position="last")
    metrics = [name for name in metrics if _has_values(rows, name)]
    settings = _line_columns(rows)
    selected = ["beta"]
    headers = [*settings, "seeds", "beta"]
    if "components" in rows and (rows["components"] > 1).any():
        selected.append("components")
        headers.append("K")
    headers += [name.removeprefix("test_") for name in metrics]
    table = Table(*headers, box=SIMPLE, pad_edge=False)
    for _, rows_of_line in _group_by_line(rows):
        entries = list(rows_of_line.iloc[0][settings].map(_text_of))
        entries.append(str(len(rows_of_line)))
        entries += [_selected_values(rows_of_line, name) for name in selected]
        entries += [mean_and_deviation(rows_of_line[name]) for name in metrics]
        table.add_row(*entries)
    return table


def _has_values(rows: pd.DataFrame, column: str) -> bool:
    """Return whether there is such a column and not all of its values are missing."""
    return column in rows and bool(rows[column].notna().any())


def _text_of(value: Any) -> str:
    """Return a value as text, '' if it is missing."""
    return "" if pd.isna(value) else str(value)


def _group_by_line(rows: pd.DataFrame) -> Any:
    """Return rows grouped by the lines of a table of results; the rows of a line differ in seed."""
    return rows.groupby(_line_columns(rows), dropna=False, sort=False)


def _line_columns(rows: pd.DataFrame) -> list[str]:
    """Return the columns that identify a line of a table of results."""
    return ALWAYS_SHOWN + _differing_settings(rows)


def _differing_settings(rows: pd.DataFrame) -> list[str]:
    """Return the settings in which rows of one dataset, size and method differ."""
    groups = rows.groupby(["dataset", "n", "method"], dropna=False)
    differing: list[str] = []
    for name in (*SHARED_IN_BATCH, *FIRST_OPTIONS, "changes"):
        # Candidates differ in `SELECTED_FIELDS`. These have columns of their own.
        has_own_column = name in ALWAYS_SHOWN or name in SELECTED_FIELDS
        if name not in rows or has_own_column:
            continue
        if (groups[name].nunique(dropna=False) > 1).any():
            differing.append(name)
    return differing


def _selected_values(rows_of_line: pd.DataFrame, name: str) -> str:
    """Return the selected value: one number if all seeds agree, else the value of each seed."""
    in_order = rows_of_line.sort_values("seed")[name].dropna()
    values = list(in_order.map("{:.3g}".format))
    is_same = len(set(values)) == 1
    return values[0] if is_same else ", ".join(values)


def mean_and_deviation(values: pd.Series) -> str:
    """Return mean and standard deviation as text: `0.6000±0.0012`, `31240±320`."""
    if values.isna().all():
        return ""
    mean = values.mean()
    decimals = 4
    if abs(mean) >= 10:  # fewer decimals: four significant digits in all
        whole_digits = len(f"{abs(mean):.0f}")
        decimals = max(0, 4 - whole_digits)
    text = f"{mean:.{decimals}f}"
    if len(values) > 1:
        text += f"±{values.std():.{decimals}f}"
    return text
