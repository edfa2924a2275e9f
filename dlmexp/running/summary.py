"""The closing table of a run: what was selected, what failed, what is missing."""

from collections.abc import Sequence

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.console import counted, wide_console
from dlmexp.paths import in_folder
from dlmexp.plan.cell import SHARED
from dlmexp.plan.setting import Candidates
from dlmexp.records.manifest import manifest
from dlmexp.records.store import Store
from dlmexp.records.table import TEST, Frames, rows_for

MOST_LINES = 60  # of the closing table
MOST_INCOMPLETE = 8  # messages about incomplete grids
UNITS = {  # of the metrics
    "nll": "nll: nats per test row",
    "mse": "mse: mean squared error",
    "error": "error: share of wrong labels",
    "mre": "mre: mean relative error of the predicted count",
}
NORMALISED = (
    "targets of {datasets} are scaled to variance 1: mse times y_std squared and nll plus log(y_std) are in their own "
    "units (`{collect}` writes y_std)"
)


def summary(candidates: Sequence[Candidates], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds at the selected betas) with its units, then how many
    fits stopped at their limit, what failed and what is missing. Returns the exit code: 0, or 1 if cells failed or have
    no record."""
    console = wide_console()
    frames, keys = _frames(candidates, store)
    cells = frames.candidates.drop_duplicates("key")
    chosen = rows_for(frames.table[frames.table["status"] == "done"], "nll")
    collect = in_folder("dlmexp collect", store.root)
    lines = _lines(chosen)
    if 0 < lines.row_count <= MOST_LINES:
        console.print(lines)
        for line in _units(chosen, collect):
            console.print(line, highlight=False, soft_wrap=True)
    elif lines.row_count:
        many = f"{counted(lines.row_count, 'result')}: `{collect}` writes them as a table"
        console.print(many, highlight=False, soft_wrap=True)
    _print_incomplete(candidates, set(cells["key"]))
    if at_limit := _stopped_at_limit(cells):
        console.print(at_limit, highlight=False, soft_wrap=True)
    done = int((cells["status"] == "done").sum())
    failed, missing = len(cells) - done, len(keys) - len(cells)
    console.print(
        f"{done} of {counted(len(keys), 'cell')} done, {failed} failed"
        + (f", {missing} without a record" if missing else "")
        + f"; records in {store.records}",
        highlight=False,
        soft_wrap=True,
    )
    if failed:
        see = in_folder("dlmexp status --failed", store.root)
        console.print(f"`{see}` lists them, retry_failed=true runs them again", highlight=False, soft_wrap=True)
    return 1 if failed or missing else 0


def _frames(candidates: Sequence[Candidates], store: Store) -> tuple[Frames, set[str]]:
    """The tidy table of a run, and the keys of its cells."""
    asked = manifest("", candidates)
    return Frames(store.cells(asked.keys), asked.candidates), asked.keys


def print_incomplete(candidates: Sequence[Candidates], store: Store) -> None:
    """Print for each method, dataset and size how many of its cells have no record yet, if some have none."""
    done, failed = store.keys()
    _print_incomplete(candidates, done | failed)


def _print_incomplete(candidates: Sequence[Candidates], recorded: set[str]) -> None:
    keys: dict[str, set[str]] = {}
    for some in candidates:
        first = some.cells[0]
        keys.setdefault(f"{some.method} on {first.dataset}, n = {first.n}", set()).update(c.key for c in some.cells)
    lines = [
        f"{name}: {len(all_keys - recorded)} of {len(all_keys)} candidates (betas x seeds) have no record yet"
        for name, all_keys in keys.items()
        if all_keys - recorded
    ]
    console = wide_console()
    for line in lines[:MOST_INCOMPLETE]:
        console.print(line, highlight=False, soft_wrap=True)
    if (more := len(lines) - MOST_INCOMPLETE) > 0:
        console.print(f"... and {counted(more, 'more incomplete grid')}", highlight=False)


def _lines(chosen: pd.DataFrame) -> Table:
    """A table with mean and standard deviation over seeds of each test metric that some record has."""
    if chosen.empty:
        return Table()
    shown = _metrics(chosen)
    differing = _differing(chosen)
    names = ("dataset", "n", "M", "method", "estimator", "q", "seeds", *differing, "beta")
    names += tuple(f"test {metric}" for metric in shown)
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "M", "method", "estimator", "samples", "sampler", "parameterisation", *differing]
    for _, rows in chosen.groupby(by, dropna=False):
        first = rows.iloc[0]
        lines.add_row(
            str(first["dataset"]),
            str(first["n"]),
            str(first["M"]),
            str(first["method"]),
            _estimator(first),
            str(first["parameterisation"]) if first["form"] == "explicit" else "collapsed",  # it has no coordinates
            str(len(rows)),
            *("" if pd.isna(first[name]) else str(first[name]) for name in differing),
            _betas(rows),
            *(_mean(rows[f"test_{metric}"]) for metric in shown),
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


def _mean(values: pd.Series) -> str:
    """Mean and standard deviation as text: `0.6000±0.0012`."""
    if values.isna().all():
        return ""
    return f"{values.mean():.4f}" + (f"±{values.std():.4f}" if len(values) > 1 else "")


def _betas(rows: pd.DataFrame) -> str:
    """The selected beta, or that of each seed in their order where they differ; '' for a method without beta."""
    betas = [f"{beta:.3g}" for beta in rows.sort_values("seed")["beta"].dropna()]
    return ", ".join(betas if len(set(betas)) > 1 else betas[:1])


def _metrics(chosen: pd.DataFrame) -> list[str]:
    """The test metrics that some row has."""
    return [name.removeprefix("test_") for name in TEST if chosen[name].notna().any()]


def _units(chosen: pd.DataFrame, collect: str) -> list[str]:
    """What the numbers of the table are, and of which data they are on a normalised scale. `collect`: the command that
    writes them with their scale."""
    what = "; ".join(UNITS[metric] for metric in _metrics(chosen))
    by = " or ".join(f"validation {name}" for name in dict.fromkeys(chosen["selected_by"]))
    said = [f"mean±standard deviation over seeds; beta: selected by {by}, of each seed where they differ; {what}"]
    scaled = sorted(chosen.loc[chosen["task"] == "regression", "dataset"].unique())
    return said + ([NORMALISED.format(datasets=", ".join(scaled), collect=collect)] if scaled else [])


def _stopped_at_limit(cells: pd.DataFrame) -> str:
    """How many fits were to converge and reached their limit of iterations first, by method; '' if none did. `cells`
    has each once: a fit that methods share, as ELBO and β-ELBO do, counts for the first of them."""
    rule = cells[(cells["status"] == "done") & cells["window"].notna() & cells["max_iterations"].notna()]
    limit = rule["converged"].eq(False)
    if not limit.any():
        return ""
    parts = [
        f"{name} {int(some.sum())} of {len(some)}"
        for name, some in limit.groupby(rule["method"], sort=False)
        if some.any()
    ]
    return (
        f"{int(limit.sum())} of {counted(len(rule), 'fit')} stopped at the limit of iterations and had not converged: "
        f"{', '.join(parts)}; training.max_iterations=N trains longer, as other cells"
    )
