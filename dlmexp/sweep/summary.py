"""The closing words of a run: what was selected, what failed."""

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.sweep.methods import methods
from dlmexp.sweep.plan import Plan
from dlmexp.sweep.show import wide_console
from dlmexp.sweep.store import Store
from dlmexp.sweep.table import METRICS, select, table

MOST_LINES = 60


def summary(plan: Plan, store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds of the selected betas); 1 if a cell failed."""
    console = wide_console()
    records = [store.find(cell.dataset, cell.key) for cell in plan.cells]
    sound = [record for record in records if record is not None and record["cell"]["kind"] == "fit"]
    if sound:
        lines = _lines(select(table(sound), methods()))
        if 0 < lines.row_count <= MOST_LINES:
            console.print(lines)
        elif lines.row_count:
            console.print(f"{lines.row_count} results: 'dlmexp collect' writes them as a table", highlight=False)
    done, failed = store.keys()
    ours = {cell.key for cell in plan.cells}
    missing = len(ours - done - failed)
    console.print(
        f"{len(ours & done)} of {len(ours)} cells done, {len(ours & failed)} failed"
        + (f", {missing} without a record" if missing else "")
        + f"; records in {store.records}",
        highlight=False,
    )
    if ours & failed:
        console.print("see them with 'dlmexp status --failed', run them again with retry_failed=true", highlight=False)
    return 1 if ours & failed or missing else 0


def _lines(chosen: pd.DataFrame) -> Table:
    """Mean and deviation over seeds of the metrics there are."""
    shown = [metric for metric in METRICS if chosen[f"test_{metric}"].notna().any()]
    names = ("dataset", "n", "method", "estimator", "q", "seeds", "beta", *(f"test {m}" for m in shown))
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "method", "estimator", "samples", "sampler", "parameterisation"]
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
