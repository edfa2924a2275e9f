"""What `plan=true` prints: a table of the cells of a sweep, how many are done, and in how many batches the rest run."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.table import Table

from dlmexp import catalogue
from dlmexp.config import RunConfig
from dlmexp.console import counted, wide_console
from dlmexp.errors import UserError
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.records.manifest import Asked, manifest
from dlmexp.running.sweep import Sweep, prepare_sweep

MOST_COMPARED = 5000  # cells whose plan under other protocols is made: about a second for each


def show_plan(plan: Plan, sweep: Sweep, asked: Iterable[Asked] = (), planned: Sequence[Asked] = ()) -> None:
    """Print one line per dataset, size, method and estimator; then the totals, what other protocols ask for as well
    (`asked` in the results folder; `planned`: by the same run under them), and the missing
    datasets."""
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
    counts = shared(plan, sweep, [*asked, *planned])
    for name, count in sorted(counts.items()):
        if count:
            console.print(f"{counted(count, 'cell')} of them also belong to protocol {name}", highlight=False)
    own = any(spec.loader == "table" for spec, _ in sweep.datasets.values())  # whose owner may not know of protocols
    if planned and not own and not any(counts.values()):
        console.print(f"none of them belongs to protocol {' or '.join(sorted(counts))}", highlight=False)
    if len(plan.cells) > MOST_COMPARED:
        smaller = f"of plans with at most {MOST_COMPARED} cells, all that other protocols share is counted"
        console.print(smaller, highlight=False)
    for message in sweep.missing:
        console.print(f"left out: {message}", highlight=False)


def shared(plan: Plan, sweep: Sweep, others: Iterable[Asked]) -> dict[str, int]:
    """How many of the cells each other protocol asks for as well."""
    ours = {some.setting.protocol for some in sweep.candidates}
    keys, common = {cell.key for cell in plan.cells}, dict[str, set[str]]()
    for asked in others:
        if asked.setting.protocol not in ours:
            common.setdefault(asked.setting.protocol, set()).update(keys.intersection(asked.keys))
    return {name: len(shared) for name, shared in common.items()}


def planned_under_others(sweep: Sweep, under: Callable[[str], RunConfig]) -> list[Asked]:
    """What the same run asks for under each other protocol that it can be run under; nothing for one of many cells.
    `under`: its config under a protocol."""
    if len(sweep.cells) > MOST_COMPARED:
        return []
    found = []
    for name in catalogue.protocols():
        if name != sweep.cfg.protocol:
            try:
                other = prepare_sweep(under(name), sweep.loaded)
            except UserError:  # such as a limit of iterations that leaves no room for its decay
                continue
            found += manifest(other.cfg.name, other.candidates).candidates
    return found
