"""The closing table of a run: what was selected, what failed, what is missing."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.console import counted, print_table, wide_console
from dlmexp.paths import in_folder
from dlmexp.plan.cell import SHARED
from dlmexp.plan.setting import Candidates
from dlmexp.records.manifest import manifest
from dlmexp.records.store import Store
from dlmexp.records.table import OWN_UNITS, TEST, Frames, rows_for

MOST_LINES = 60  # of the closing table
UNITS = "mean±standard deviation over seeds at the betas with the lowest validation metric; nll: nats per test row"


def summary(candidates: Sequence[Candidates], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds at the selected betas) with its units, then how many
    fits reached their limit, what failed and what is missing. Returns the exit code: 0, or 1 if cells failed or have
    no record."""
    console, asked = wide_console(), manifest("", candidates)
    say = partial(console.print, highlight=False, soft_wrap=True)
    frames = Frames(store.cells(asked.keys), asked.candidates)
    cells = frames.candidates.drop_duplicates("key")
    chosen = rows_for(frames.table[frames.table["status"] == "done"], "nll")
    collect, status = in_folder("dlmexp collect", store.root), in_folder("dlmexp status", store.root)
    lines = _lines(chosen)
    if 0 < lines.row_count <= MOST_LINES:
        print_table(console, lines)
        scaled = " of targets scaled to variance 1" if (chosen["task"] == "regression").any() else ""
        own = "; rmse, mae: in the units of the target" if "rmse" in _metrics(chosen) else ""
        say(f"{UNITS}{scaled}{own}" + (f"; `{collect}` writes their y_std" if scaled and not own else ""))
    elif lines.row_count:
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


def _lines(chosen: pd.DataFrame) -> Table:
    """A table with mean and standard deviation over seeds of each test metric that some record has."""
    if chosen.empty:
        return Table()
    shown = _metrics(chosen)
    differing = _differing(chosen)
    usual = (chosen["estimator"] == "exact").all() and "test_rmse" in chosen  # of no interest in a user's own table
    how = () if usual else ("estimator", "q")
    names = ("dataset", "n", "M", "method", *how, "seeds", *differing, "beta")
    names += tuple(metric if usual else f"test {metric}" for metric in shown)
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "M", "method", "estimator", "samples", "sampler", "parameterisation", *differing]
    for _, rows in chosen.groupby(by, dropna=False):
        first = rows.iloc[0]
        lines.add_row(
            str(first["dataset"]),
            str(first["n"]),
            str(first["M"]),
            str(first["method"]),
            *(() if usual else (_estimator(first), _coordinates(first))),
            str(len(rows)),
            *("" if pd.isna(first[name]) else str(first[name]) for name in differing),
            _betas(rows),
            *(_mean(rows[f"test_{name}"]) for name in shown),
        )
    return lines


def _differing(chosen: pd.DataFrame) -> list[str]:
    """The settings in which rows of one method, dataset and size differ: parts of an experiment may have their own."""
    groups = chosen.groupby(["dataset", "n", "method", "estimator", "samples", "parameterisation"], dropna=False)
    shown = ("dataset", "n", "M", "parameterisation")
    names = [name for name in (*SHARED, "changes") if name in chosen and name not in shown]
    return [name for name in names if (groups[name].nunique(dropna=False) > 1).any()]


def _estimator(row: pd.Series) -> str:
    """The estimator with its samples, and its sampler where that is not the usual one: `ups-10 rejection`."""
    if pd.isna(row["samples"]):
        return str(row["estimator"])
    usual = pd.isna(row["sampler"]) or row["sampler"] == "auto"
    return f"{row['estimator']}-{row['samples']:g}" + ("" if usual else f" {row['sampler']}")


def _coordinates(row: pd.Series) -> str:
    """Those that q is trained in; in closed form it has none."""
    return str(row["parameterisation"]) if row["form"] == "explicit" else "collapsed"


def _mean(values: pd.Series) -> str:
    """Mean and standard deviation as text: `0.6000±0.0012`, `31240±320`."""
    if values.isna().all():
        return ""
    digits = max(0, 4 - len(f"{abs(values.mean()):.0f}")) if abs(values.mean()) >= 10 else 4
    return f"{values.mean():.{digits}f}" + (f"±{values.std():.{digits}f}" if len(values) > 1 else "")


def _betas(rows: pd.DataFrame) -> str:
    """The selected beta, or that of each seed in their order where they differ; '' for a method without beta."""
    betas = [f"{beta:.3g}" for beta in rows.sort_values("seed")["beta"].dropna()]
    return ", ".join(betas if len(set(betas)) > 1 else betas[:1])


def _metrics(chosen: pd.DataFrame) -> list[str]:
    """The test metrics that some row has: errors in own units where all are of users' tables, as MSE of scaled targets
    says less."""
    own = "test_rmse" in chosen and chosen["test_rmse"].notna().all()
    names = [*OWN_UNITS, "test_nll"] if own else TEST
    return [name.removeprefix("test_") for name in names if name in chosen and chosen[name].notna().any()]
