"""The closing table of a run: what was selected, what failed, what is missing."""

from collections.abc import Mapping, Sequence

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.console import counted, wide_console
from dlmexp.plan.cell import SHARED, Candidates, Cell
from dlmexp.records.manifest import manifest
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, choices
from dlmexp.records.store import Store
from dlmexp.records.table import METRICS, selected_table, table

MOST_LINES = 60  # of the closing table
MOST_INCOMPLETE = 8  # messages about incomplete grids


def summary(candidates: Sequence[Candidates], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds at the selected betas), then what failed and what is
    missing. Returns the exit code: 0, or 1 if cells failed or have no record."""
    console = wide_console()
    cells = {cell.key: cell for some in candidates for cell in some.cells}
    records = _records(cells, store)
    selections = _selections(candidates, records)
    if selections:
        lines = _lines(selected_table(selections, table(records.values())))
        if 0 < lines.row_count <= MOST_LINES:
            console.print(lines)
        elif lines.row_count:
            console.print(f"{lines.row_count} results: 'dlmexp collect' writes them as a table", highlight=False)
    _print_incomplete(candidates, records)
    done = sum(record.done for record in records.values())
    failed, missing = len(records) - done, len(cells) - len(records)
    console.print(
        f"{done} of {len(cells)} cells done, {failed} failed"
        + (f", {missing} without a record" if missing else "")
        + f"; records in {store.records}",
        highlight=False,
        soft_wrap=True,
    )
    if failed:
        console.print("see them with 'dlmexp status --failed', run them again with retry_failed=true", highlight=False)
    return 1 if failed or missing else 0


def print_incomplete(candidates: Sequence[Candidates], store: Store) -> None:
    """Print for each method, dataset and size how many of its cells have no record yet, if some have none."""
    cells = {cell.key: cell for some in candidates for cell in some.cells}
    _print_incomplete(candidates, _records(cells, store))


def _print_incomplete(candidates: Sequence[Candidates], records: Mapping[str, Record]) -> None:
    keys: dict[str, set[str]] = {}
    for some in candidates:
        first = some.cells[0]
        keys.setdefault(f"{some.method} on {first.dataset}, n = {first.n}", set()).update(c.key for c in some.cells)
    lines = [
        f"{name}: {len(all_keys - records.keys())} of {len(all_keys)} candidates (betas x seeds) have no record yet"
        for name, all_keys in keys.items()
        if all_keys - records.keys()
    ]
    console = wide_console()
    for line in lines[:MOST_INCOMPLETE]:
        console.print(line, highlight=False, soft_wrap=True)
    if (more := len(lines) - MOST_INCOMPLETE) > 0:
        console.print(f"... and {counted(more, 'more incomplete grid')}", highlight=False)


def _records(cells: Mapping[str, Cell], store: Store) -> dict[str, Record]:
    """The sound records of these cells, done or failed."""
    found = {key: record for key, cell in cells.items() if (record := store.find(cell.dataset, key)) is not None}
    for key in cells.keys() & store.keys()[1] - found.keys():
        if (record := store.read_failure(cells[key].dataset, key)) is not None:
            found[key] = record
    return found


def _selections(candidates: Sequence[Candidates], records: Mapping[str, Record]) -> list[Choice]:
    """The selections of beta among fits of which at least one candidate has a record."""
    return [one for one in choices(manifest("", candidates).candidates, records) if one.cell.kind == "fit"]


def _lines(chosen: pd.DataFrame) -> Table:
    """A table with mean and standard deviation over seeds of each test metric that some record has."""
    if chosen.empty:
        return Table()
    grids = ("grid",) if "betas" in chosen else ()  # where a method has selections from two beta grids
    shown = [metric for metric in METRICS if chosen[f"test_{metric}"].notna().any()]
    differing = _differing(chosen)
    names = ("dataset", "n", "method", "estimator", "q", "seeds", *differing, *grids, "beta")
    names += tuple(f"test {metric}" for metric in shown)
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "method", "estimator", "samples", "sampler", "parameterisation", *differing]
    by += ["betas"] if grids else []
    for _, rows in chosen.groupby(by, dropna=False):
        first = rows.iloc[0]
        lines.add_row(
            str(first["dataset"]),
            str(first["n"]),
            str(first["method"]),
            _estimator(first),
            str(first["parameterisation"]),
            str(len(rows)),
            *("" if pd.isna(first[name]) else str(first[name]) for name in differing),
            *(str(first["betas"]) for _ in grids),
            _range(rows["beta"]),
            *(_mean(rows[f"test_{metric}"]) for metric in shown),
        )
    return lines


def _differing(chosen: pd.DataFrame) -> list[str]:
    """The settings in which rows of one method, dataset and size differ: parts of an experiment may have their own."""
    groups = chosen.groupby(["dataset", "n", "method", "estimator", "samples", "parameterisation"], dropna=False)
    names = [name for name in SHARED if name in chosen and name not in ("dataset", "n", "parameterisation")]
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


def _range(betas: pd.Series) -> str:
    """The selected beta, or the smallest and the largest where seeds differ; '' for a method without beta."""
    low, high = betas.min(), betas.max()
    if pd.isna(low):
        return ""
    return f"{low:.3g}" if low == high else f"{low:.3g} - {high:.3g}"
