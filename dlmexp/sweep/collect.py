"""The records of each experiment as tables on disk."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from dlmexp.errors import UserError, nearest
from dlmexp.sweep.manifest import remembered
from dlmexp.sweep.methods import methods
from dlmexp.sweep.pack import PATTERN, write_pack
from dlmexp.sweep.sealed import write_atomically
from dlmexp.sweep.store import Store
from dlmexp.sweep.table import select, table

NO_RECORDS = "--results {results}: there are no records; start with 'dlmexp run'"


def collect(results: str, experiments: Sequence[str]) -> Iterator[tuple[Path, int]]:
    """Write and yield each table with its number of rows."""
    root = Path(results)
    everything = table(Store(root).all())
    if everything.empty:
        raise UserError(NO_RECORDS.format(results=results))
    known = remembered(root) or {".": dict.fromkeys(everything["key"], "")}  # packs alone know of no experiments
    for name in experiments:
        if name not in known:
            raise UserError(f"no experiment '{name}' in {results}: {nearest(name, list(known))}")
    for name in experiments or known:
        cells = everything[everything["key"].isin(known[name].keys())]
        fits = cells[cells["kind"] == "fit"]
        chosen = select(fits, methods()) if len(fits) else fits
        for file, rows in (("all.parquet", cells), ("table.parquet", chosen), ("table.csv", chosen)):
            path = root / name / file
            content = rows.to_parquet(index=False) if file.endswith("parquet") else rows.to_csv(index=False).encode()
            write_atomically(path, content)
            yield path, len(rows)


def collect_pack(results: str, path: str, light: bool) -> int:
    """All records of a folder, packs in it included, as one pack."""
    if not fnmatch(Path(path).name, PATTERN):
        raise UserError(f"--pack '{path}': a results folder finds packs by their name; choose one like records.tar.xz")
    if Path(path).is_dir():
        raise UserError(f"--pack '{path}' is a folder: name a file, such as {Path(path) / 'records.tar.xz'}")
    store = Store(results)
    records = list(store.all())
    if not records:
        raise UserError(NO_RECORDS.format(results=results))
    return write_pack(Path(path), ((record, store.arrays(record)) for record in records), light)
