"""What a run shows: what was read from a user's own tables, with `plan=true` its cells, and at its end what was
selected, what failed and what is missing."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.config import DatasetConfig
from dlmexp.console import counted, print_table, wide_console
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import split
from dlmexp.paths import in_folder
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import SHARED, Cell
from dlmexp.plan.setting import Asked
from dlmexp.records.manifest import manifest
from dlmexp.records.store import Store
from dlmexp.records.table import OWN_UNITS, TEST, as_text, candidate_cells, rows_for, tidy
from dlmexp.running.sweep import Sweep

MOST_COLUMNS = 12  # that are named one by one
MOST_LINES = 60  # of the closing table
UNITS = "mean±standard deviation over seeds at the betas with the lowest validation metric; nll: nats per test row"


def what_was_read(sweep: Sweep) -> list[str]:
    """Lines about each dataset that is a user's own table: rows, features, target, how the rows are divided, what was
    left out, and what looks wrong."""
    lines = []
    for which, (spec, data) in sweep.datasets.items():
        if spec.loader != "table":
            continue
        facts, columns = data.facts, data.schema.columns
        cells = [cell for cell in sweep.cells if (cell.dataset, cell.split) == which]
        n, M = (", ".join(map(str, sorted({getattr(cell, name) for cell in cells}))) for name in ("n", "M"))
        named = [f"{repr(each.name) if ',' in each.name else each.name} ({each.words})" for each in columns]
        more = [f"{len(columns) - MOST_COLUMNS} more"] if len(columns) > MOST_COLUMNS else []
        lines += [
            f"{data.name}: {_rows(data)}, {counted(data.X.shape[1], 'feature')} from "
            f"{counted(len(columns), 'column')}: {', '.join(named[:MOST_COLUMNS] + more)}",
            f"  target {f'log({data.schema.target})' if data.schema.log else data.schema.target}: {_target(data)}",
            f"  {_division(spec, data)}; n = {n}; M = {M}",
        ]
        if filled := facts["filled"]:
            lines.append(f"  {counted(filled, 'row')} with missing values, which get the mean of the training rows")
        if facts["left_out"]:
            lines.append(f"  left out: {', '.join(facts['left_out'])}")
        lines += [f"  warning: {text}" for text in facts["warnings"]]
    return lines


def _rows(data: Dataset) -> str:
    """How many rows each file has."""
    rows, test_file = len(data.y), data.facts.get("test_file")
    if test_file is None or data.arrangement is None:
        return f"{counted(rows, 'row')} of {data.facts['file']}"
    tested = data.arrangement.test
    return f"{counted(rows - tested, 'row')} of {data.facts['file']} and {tested} of {test_file}"


def _target(data: Dataset) -> str:
    if data.task == "binary":
        zero, one = data.schema.labels or (0, 1)
        ones = int(data.y.sum())
        return f"class 1 is '{one}' ({ones} rows), class 0 is '{zero}' ({len(data.y) - ones} rows)"
    return f"{data.y.min():g} to {data.y.max():g}, mean {data.y.mean():.4g}"


def _division(spec: DatasetConfig, data: Dataset) -> str:
    parts, how = split(len(data.y), spec.split, 0, None, data.arrangement), "at random"
    if data.arrangement is not None and data.arrangement.by is not None:
        how = f"by {data.arrangement.kind} ({data.arrangement.column})"
    counts = f"{len(parts.train_pool)} rows for training, {len(parts.validation)} for validation"
    return f"divided {how}: {counts}, {len(parts.test[: spec.test_cap])} for testing"


def show_plan(plan: Plan, sweep: Sweep) -> None:
    """Print one line per dataset, size, method and estimator with its cells, how many are done, and in how many batches
    the rest run; then the totals, and the missing datasets."""
    table = Table("dataset", "n", "method", "estimator", "q", "seeds", "betas", "cells", "done", "failed", "batches")
    batches = Counter(batch[0].group for batch in plan.batches)
    methods, groups = defaultdict[tuple, dict[str, None]](dict), defaultdict[tuple, list[Cell]](list)
    for some in sweep.candidates:
        methods[sweep.by_key[some.keys[0]].group][some.method] = None
    for cell in plan.cells:
        groups[cell.group].append(cell)
    for group, cells in groups.items():
        first = cells[0]
        done, failed = (sum(cell.key in keys for cell in cells) for keys in (plan.done, plan.failed))
        seeds, betas = len({cell.seed for cell in cells}), len({cell.beta for cell in cells})
        q = (first.parameterisation if first.form == "explicit" else "collapsed") + first.floor_label
        counts = map(str, (seeds, betas, len(cells), done, failed, batches[group]))
        table.add_row(first.dataset, str(first.n), ", ".join(methods[group]), first.estimator_label, q, *counts)
    console = wide_console()
    print_table(console, table)
    console.print(
        f"{counted(len(plan.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed, "
        f"{plan.pending} to run in {counted(len(plan.batches), 'batch')}",
        highlight=False,
    )
    for message in sweep.missing:
        console.print(f"left out: {message}", highlight=False)


def summary(asked_for: Sequence[Asked], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds at the selected betas) with its units, then how many
    fits reached their limit, what failed and what is missing. Returns the exit code: 0, or 1 if cells failed or have
    no record."""
    console, asked = wide_console(), manifest("", asked_for)
    say = partial(console.print, highlight=False, soft_wrap=True)
    candidates = as_text(candidate_cells(store.cells(asked.keys), asked.candidates))
    cells, table = candidates.drop_duplicates("key"), tidy(candidates)
    collect, status = in_folder("dlmexp collect", store.root), in_folder("dlmexp status", store.root)
    if not (chosen := rows_for(table[table["status"] == "done"], "nll")).empty:
        own = "test_rmse" in chosen and chosen["test_rmse"].notna().all()  # MSE of scaled targets would say less
        lines = _lines(chosen, [*OWN_UNITS, "test_nll"] if own else TEST)
        if lines.row_count <= MOST_LINES:
            print_table(console, lines)
            scaled = " of targets scaled to variance 1" if (chosen["task"] == "regression").any() else ""
            units = "; rmse, mae: in the units of the target" if own else f"; `{collect}` writes their y_std"
            say(f"{UNITS}{scaled}{units if scaled or own else ''}")
        else:
            say(f"{counted(lines.row_count, 'result')}: `{collect}` writes them as a table")
    rule = cells[(cells["status"] == "done") & cells["window"].notna() & cells["max_iterations"].notna()]
    if at_limit := int(rule["converged"].eq(False).sum()):
        what = f"{at_limit} of {counted(len(rule), 'fit')} stopped at the limit of iterations and had not converged"
        say(f"{what}; training.max_iterations=N trains longer, as other cells")
    done = int((cells["status"] == "done").sum())
    failed, missing = len(cells) - done, len(asked.keys) - len(cells)
    without = f", {missing} without a record" if missing else ""
    say(f"{done} of {counted(len(asked.keys), 'cell')} done, {failed} failed{without}; records in {store.records}")
    if failed:
        say(f"`{status} --failed` lists them, retry_failed=true runs them again")
    if missing:
        say(f"`{status} --missing` lists what has no record, the same command runs it")
    return 1 if failed or missing else 0


def _lines(chosen: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """A table with mean and standard deviation over seeds of those metrics that some row has."""
    q = chosen["parameterisation"].where(chosen["form"] == "explicit", "collapsed")
    rows = chosen.assign(q=q).sort_values(["dataset", "n", "M", "method", "estimator", "samples", "q"], kind="stable")
    rows["estimator"] = [_estimator(row) for _, row in rows.iterrows()]
    shown = [name for name in metrics if name in rows and rows[name].notna().any()]
    by = ["dataset", "n", "M", "method", "estimator", "q"]
    # Parts of an experiment may have settings of their own: those in which rows of one method and size differ.
    alike = rows.groupby([name for name in by if name != "M"], dropna=False)
    names = [name for name in (*SHARED, "changes") if name in rows and name not in (*by, "parameterisation", "form")]
    differing = [name for name in names if (alike[name].nunique(dropna=False) > 1).any()]
    if usual := "test_mse" not in metrics and (rows["estimator"] == "exact").all():
        by = by[:4]  # how is of no interest in a user's own table
    names = [name.removeprefix("test_") if usual else name.replace("_", " ", 1) for name in shown]
    lines = Table(*by, "seeds", *differing, "beta", *names, box=SIMPLE, pad_edge=False)
    for _, seeds in rows.groupby([*by, *differing], dropna=False, sort=False):
        betas = [f"{beta:.3g}" for beta in seeds.sort_values("seed")["beta"].dropna()]  # of each seed, if they differ
        first = seeds.iloc[0]
        facts = ["" if pd.isna(first[name]) else str(first[name]) for name in (*by, *differing)]
        beta = ", ".join(betas if len(set(betas)) > 1 else betas[:1])
        means = (_mean(seeds[name]) for name in shown)
        lines.add_row(*facts[: len(by)], str(len(seeds)), *facts[len(by) :], beta, *means)
    return lines


def _estimator(row: pd.Series) -> str:
    """The estimator with its samples, and its sampler where that is not the usual one: `ups-10 rejection`."""
    if pd.isna(row["samples"]):
        return str(row["estimator"])
    usual = pd.isna(row["sampler"]) or row["sampler"] == "auto"
    return f"{row['estimator']}-{row['samples']:g}" + ("" if usual else f" {row['sampler']}")


def _mean(values: pd.Series) -> str:
    """Mean and standard deviation as text: `0.6000±0.0012`, `31240±320`."""
    if values.isna().all():
        return ""
    digits = max(0, 4 - len(f"{abs(values.mean()):.0f}")) if abs(values.mean()) >= 10 else 4
    return f"{values.mean():.{digits}f}" + (f"±{values.std():.{digits}f}" if len(values) > 1 else "")
