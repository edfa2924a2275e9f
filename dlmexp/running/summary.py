"""The closing table of a run: what was selected, what failed, what is missing."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.console import counted, wide_console
from dlmexp.paths import in_folder
from dlmexp.plan.cell import SHARED, Candidates, Cell
from dlmexp.records.manifest import manifest
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, choices
from dlmexp.records.store import Store
from dlmexp.records.table import METRICS, selected_table, table

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
    cells = {cell.key: cell for some in candidates for cell in some.cells}
    records = _records(cells, store)
    selections = _selections(candidates, records)
    collect = in_folder("dlmexp collect", store.root)
    if selections:
        chosen = selected_table(selections, table(records.values()))
        lines = _lines(chosen)
        if 0 < lines.row_count <= MOST_LINES:
            wide_console().print(lines)
            _print(*_units(chosen, collect))
        elif lines.row_count:
            _print(f"{counted(lines.row_count, 'result')}: `{collect}` writes them as a table")
    _print_incomplete(candidates, records)
    done = sum(record.done for record in records.values())
    failed, missing = len(records) - done, len(cells) - len(records)
    counts = f"{done} of {counted(len(cells), 'cell')} done, {failed} failed"
    counts += f", {missing} without a record" if missing else ""
    _print(*filter(None, [_stopped_at_limit(candidates, records)]), f"{counts}; records in {store.records}")
    if failed:
        see = in_folder("dlmexp status --failed", store.root)
        _print(f"`{see}` lists them, retry_failed=true runs them again")
    return 1 if failed or missing else 0


def _print(*lines: str) -> None:
    console = wide_console()
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


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
    _print(*lines[:MOST_INCOMPLETE])
    if (more := len(lines) - MOST_INCOMPLETE) > 0:
        _print(f"... and {counted(more, 'more incomplete grid')}")


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
    shown = _metrics(chosen)
    differing = _differing(chosen)
    names = ("dataset", "n", "M", "method", "estimator", "q", "seeds", *differing, *grids, "beta")
    names += tuple(f"test {metric}" for metric in shown)
    lines = Table(*names, box=SIMPLE, pad_edge=False)
    by = ["dataset", "n", "M", "method", "estimator", "samples", "sampler", "parameterisation", *differing]
    by += ["betas"] if grids else []
    for _, rows in chosen.groupby(by, dropna=False):
        first = rows.iloc[0]
        q = first["parameterisation"] if first["form"] == "explicit" else "collapsed"  # which has no coordinates
        cells = [*first[["dataset", "n", "M", "method"]], _estimator(first), q, len(rows)]
        cells += ["" if pd.isna(first[name]) else first[name] for name in differing] + [first["betas"] for _ in grids]
        lines.add_row(*map(str, cells), _betas(rows), *(_mean(rows[f"test_{metric}"]) for metric in shown))
    return lines


def _differing(chosen: pd.DataFrame) -> list[str]:
    """The settings in which rows of one method, dataset and size differ: parts of an experiment may have their own."""
    groups = chosen.groupby(["dataset", "n", "method", "estimator", "samples", "parameterisation"], dropna=False)
    names = [name for name in SHARED if name in chosen and name not in ("dataset", "n", "M", "parameterisation")]
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
    return [metric for metric in METRICS if chosen[f"test_{metric}"].notna().any()]


def _units(chosen: pd.DataFrame, collect: str) -> list[str]:
    """What the numbers of the table are, and of which data they are on a normalised scale. `collect`: the command that
    writes them with their scale."""
    what = "; ".join(UNITS[metric] for metric in _metrics(chosen))
    by = " or ".join(str(name).replace("_", " ") for name in dict.fromkeys(chosen["selected_by"]))
    said = [f"mean±standard deviation over seeds; beta: selected by {by}, of each seed where they differ; {what}"]
    scaled = sorted(chosen.loc[chosen["task"] == "regression", "dataset"].unique())
    return said + ([NORMALISED.format(datasets=", ".join(scaled), collect=collect)] if scaled else [])


def _stopped_at_limit(candidates: Sequence[Candidates], records: Mapping[str, Record]) -> str:
    """How many fits were to converge and reached their limit of iterations first, by method; '' if none did. A fit that
    methods share, as ELBO and β-ELBO do, counts once: for the first of them."""
    method = {cell.key: some.method for some in reversed(candidates) for cell in some.cells}
    rule = [key for key in method if key in records and records[key].done and records[key].cell.has_stopping_rule]
    limit = [key for key in rule if records[key].result.converged is False]
    if not limit:
        return ""
    of, reached = Counter(method[key] for key in rule), Counter(method[key] for key in limit)
    names = dict.fromkeys(some.method for some in candidates)
    parts = [f"{name} {reached[name]} of {of[name]}" for name in names if reached[name]]
    return (
        f"{len(limit)} of {counted(len(rule), 'fit')} stopped at the limit of iterations and had not converged: "
        f"{', '.join(parts)}; training.max_iterations=N trains longer, as other cells"
    )
