"""What `plan=true` prints: a table of the cells of a sweep, how many are done, and in how many batches the rest run."""

from collections import Counter

from rich.table import Table

from dlmexp.console import counted, wide_console
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.running.sweep import Sweep


def show_plan(plan: Plan, sweep: Sweep) -> None:
    """Print one line per dataset, size, method and estimator; then the totals, and the missing datasets."""
    table = Table("dataset", "n", "method", "estimator", "q", "seeds", "betas", "cells", "done", "failed", "batches")
    batches = Counter(batch[0].group for batch in plan.batches)
    methods: dict[tuple, dict[str, None]] = {}
    for some in sweep.candidates:
        methods.setdefault(some.cells[0].group, {})[some.method] = None
    groups: dict[tuple, list[Cell]] = {}
    for cell in plan.cells:
        groups.setdefault(cell.group, []).append(cell)
    for group, cells in groups.items():
        first = cells[0]
        table.add_row(
            first.dataset,
            str(first.n),
            ", ".join(methods[group]),
            first.estimator_label,
            (first.parameterisation if first.form == "explicit" else "collapsed") + first.floor_label,
            str(len({cell.seed for cell in cells})),
            str(len({cell.beta for cell in cells})),
            str(len(cells)),
            str(sum(cell.key in plan.done for cell in cells)),
            str(sum(cell.key in plan.failed for cell in cells)),
            str(batches[group]),
        )
    console = wide_console()
    console.print(table)
    console.print(
        f"{counted(len(plan.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed, "
        f"{plan.pending} to run in {counted(len(plan.batches), 'batch')}",
        highlight=False,
    )
    for message in sweep.missing:
        console.print(f"left out: {message}", highlight=False)
