"""The closing table of a run: what was selected, what failed, what is missing."""

from collections.abc import Sequence

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.console import wide_console
from dlmexp.plan.cell import Candidates
from dlmexp.records.manifest import manifest
from dlmexp.records.selection import choices, incomplete
from dlmexp.records.store import Store
from dlmexp.records.table import METRICS, selected_table, table

MOST_LINES = 60


def summary(candidates: Sequence[Candidates], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds of the selected betas); 1 if a cell failed."""
    console = wide_console()
    cells = {cell.key: cell for some in candidates for cell in some.cells}
    found = {key: record for key, cell in cells.items() if (record := store.find(cell.dataset, key)) is not None}
    done, failed = store.keys()
    for key in cells.keys() & failed:
        if (record := store.read_failure(cells[key].dataset, key)) is not None:
            found[key] = record
    several = [one for one in choices(manifest("", candidates).candidates, found) if one.cell.kind == "fit"]
    if several:
        lines = _lines(selected_table(several, table(found.values())))
        if 0 < lines.row_count <= MOST_LINES:
            console.print(lines)
        elif lines.row_count:
            console.print(f"{lines.row_count} results: 'dlmexp collect' writes them as a table", highlight=False)
    for sentence in incomplete(several):
        console.print(sentence, highlight=False)
    missing = len(cells.keys() - done - failed)
    console.print(
        f"{len(cells.keys() & done)} of {len(cells)} cells done, {len(cells.keys() & failed)} failed"
        + (f", {missing} without a record" if missing else "")
        + f"; records in {store.records}",
        highlight=False,
    )
    if cells.keys() & failed:
        console.print("see them with 'dlmexp status --failed', run them again with retry_failed=true", highlight=False)
    return 1 if cells.keys() & failed or missing else 0


def _lines(chosen: pd.DataFrame) -> Table:
    """Mean and deviation over seeds of the metrics there are."""
    if chosen.empty:
        return Table()
    shown = [metric for metric in METRICS if chosen[f"test_{metric}"].notna().any()]
    names = ("dataset", "n", "method", "estimator", "q", "seeds", "beta", *(f"test {m}" for m in shown))
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "method", "estimator", "samples", "sampler", "parameterisation"]
    by += ["betas"] if "betas" in chosen else []
    for _, rows in chosen.groupby(by, dropna=False):
        first = rows.iloc[0]
        lines.add_row(
            str(first["dataset"]),
            str(first["n"]),
            str(first["method"]),
            _estimator(first),
            str(first["parameterisation"]),
            str(len(rows)),
            "" if rows["beta"].isna().all() else f"{rows['beta'].median():.3g}",
            *(_mean(rows[f"test_{metric}"]) for metric in shown),
        )
    return lines


def _estimator(row: pd.Series) -> str:
    if pd.isna(row["samples"]):
        return str(row["estimator"])
    usual = pd.isna(row["sampler"]) or row["sampler"] == "auto"
    return f"{row['estimator']}-{row['samples']:g}" + ("" if usual else f" {row['sampler']}")


def _mean(values: pd.Series) -> str:
    if values.isna().all():
        return ""
    return f"{values.mean():.4f}" + (f"±{values.std():.4f}" if len(values) > 1 else "")
