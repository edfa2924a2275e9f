"""The records of each experiment as tables on disk, and all records as one pack."""

import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.errors import UserError, nearest
from dlmexp.paths import in_folder
from dlmexp.records.files import write_atomically
from dlmexp.records.keeping import REPORTED
from dlmexp.records.manifest import Asked, Manifest, merged, read_manifests
from dlmexp.records.pack import PATTERN, write_pack
from dlmexp.records.results import Results, read_results
from dlmexp.records.selection import choices
from dlmexp.records.settings import experiment_of
from dlmexp.records.table import selected_table, table


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
            write_atomically(within(root, path), content)
            yield path, len(rows)


def collect_pack(results: str, path: str, light: bool, new: bool = False, protocol: str | None = None) -> int:
    """All records of a folder, packs in it included, as one pack. `new`: only those that no pack in it has. `protocol`:
    only those of one protocol as it stands (or as an experiment of ours changes it), and what was asked for under it.
    """
    if not fnmatch(Path(path).name, PATTERN):
        raise UserError(f"--pack '{path}': a results folder finds packs by their name; choose one like records.tar.xz")
    if Path(path).is_dir():
        raise UserError(f"--pack '{path}' is a folder: name a file, such as {Path(path) / 'records.tar.xz'}")
    read = _read(results)
    manifests = read_manifests(Path(results)) + ([] if new else read.store.packs.manifests)
    kept = _of_protocol(read, protocol) if protocol else read
    packed = read.store.packs.records.keys() if new else ()
    records = [record for key, record in kept.records.items() if key not in packed]
    if protocol:
        asked = {*kept.asked}
        manifests = [_cut_down(one, asked) for one in manifests]
    if not records:
        raise UserError(f"--pack {path}: the packs in {results} have all records; there is nothing new")
    pairs = ((record, read.store.arrays(record)) for record in records)
    return write_pack(Path(path), pairs, manifests, light, known=packed, unselected=_unselected(kept))


def _unselected(read: Results) -> set[str]:
    """Keys of records of which no figure draws more than their metrics: all candidates are there, and another beta was
    selected."""
    complete = [one for one in read.choices if not one.missing]
    selected = {record.key for one in complete for metric in REPORTED if (record := one.selected(metric))}
    still_open = {record.key for one in read.choices if one.missing for record in one.records}
    return {record.key for one in complete for record in one.records} - selected - still_open


def _of_protocol(read: Results, protocol: str) -> Results:
    """The records of a protocol, without those made with other values than its file or an experiment's asks for."""
    protocols = list(dict.fromkeys(one.protocol for one in read.asked))
    if protocol not in protocols:
        raise UserError(f"--protocol {protocol}: no record was made under it; there are {', '.join(protocols)}")
    found = [
        one
        for at_hand in read.at_hand.values()
        for setting, several in at_hand.items()
        if setting.protocol == protocol and experiment_of(setting, several[0]) is not None
        for one in several
    ]
    if not found:
        raise UserError(f"--protocol {protocol}: every record under it was made with other values than its file has")
    return read.keeping(found)


def _cut_down(one: Manifest, asked: set[Asked]) -> Manifest:
    """A manifest with only some of the candidates, and their cells."""
    candidates = [some for some in one.candidates if some in asked]
    keys = {key for some in candidates for key in some.keys}
    cells = {key: words for key, words in one.cells.items() if key in keys}
    return Manifest(one.experiment, cells, candidates, one.keep)


def _read(results: str) -> Results:
    found = read_results(results)
    if not found.records:
        start = in_folder("dlmexp run", results)
        raise UserError(f"--results {shlex.quote(results)}: there are no records; `{start}` makes some")
    return found
