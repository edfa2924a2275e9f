"""The closing words of a run: what was selected, what failed."""

from rich.console import Console
from rich.table import Table

from dlmexp.sweep.plan import Plan
from dlmexp.sweep.store import Store
from dlmexp.sweep.table import METRICS, select, table


def summary(plan: Plan, store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds of the selected betas); 1 if a cell failed."""
    from dlmexp.sweep.methods import methods

    console = Console()
    records = [store.find(cell.dataset, cell.key) for cell in plan.cells]
    sound = [record for record in records if record is not None and record["cell"]["kind"] == "fit"]
    if sound:
        chosen = select(table(sound), methods())
        shown = [
            metric
            for metric in METRICS
            if chosen.get(f"test_{metric}") is not None and chosen[f"test_{metric}"].notna().any()
        ]
        lines = Table("dataset", "n", "method", "estimator", "q", "seeds", "beta", *(f"test {m}" for m in shown))
        by = ["dataset", "n", "method", "estimator", "samples", "parameterisation"]
        for names, rows in chosen.groupby(by, dropna=False):
            dataset, n, method, estimator, samples, q = names
            metrics = [f"{rows[f'test_{m}'].mean():.4f} ± {rows[f'test_{m}'].std():.4f}" for m in shown]
            label = estimator if samples != samples or samples is None else f"{estimator}-{samples:g}"
            lines.add_row(dataset, str(n), method, label, q, str(len(rows)), f"{rows['beta'].median():.3g}", *metrics)
        console.print(lines)
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
