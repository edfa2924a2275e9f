"""The records of each experiment as tables on disk, and all records as one pack."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from dlmexp.errors import UserError, nearest
from dlmexp.records.files import write_atomically
from dlmexp.records.manifest import Manifest, merged, read_manifests
from dlmexp.records.pack import PATTERN, write_pack
from dlmexp.records.results import Results, read_results
from dlmexp.records.selection import choices
from dlmexp.records.table import selected_table, table

NO_RECORDS = "--results {results}: there are no records; start with 'dlmexp run'"


def collect(results: str, experiments: Sequence[str]) -> Iterator[tuple[Path, int]]:
    """Write and yield each table with its number of rows. What only packs hold is one table in the folder itself."""
    root, read = Path(results), _read(results)
    asked = {one.experiment: one for one in merged(read_manifests(root))}
    if not asked:
        asked = {".": Manifest(".", dict.fromkeys(read.records, ""), read.asked)}
    for name in experiments:
        if name not in asked:
            raise UserError(f"no experiment '{name}' in {results}: {nearest(name, list(asked))}")
    for name in experiments or asked:
        records = {key: record for key, record in read.records.items() if key in asked[name].cells}
        cells = table(records.values())
        chosen = selected_table(choices(asked[name].candidates, records), cells)
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
    read = _read(results)
    manifests = [*read_manifests(Path(results)), *read.store.packs.manifests]
    records = ((record, read.store.arrays(record)) for record in read.records.values())
    return write_pack(Path(path), records, manifests, light)


def _read(results: str) -> Results:
    found = read_results(results)
    if not found.records:
        raise UserError(NO_RECORDS.format(results=results))
    return found
