"""Many records as one file, to be carried from machine to machine or kept in a repository.

A pack in a results folder (`records*.tar.xz`) is a read-only layer under the folder's own records: readers of records
see both, and a run goes on from both. It also holds the manifests: which cells were asked for, and which betas are
candidates of one another.
"""

import hashlib
import io
import tarfile
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import MAX_PACK_MEMBERS, pack_members
from dlmexp.reading.arrays import unpack_arrays
from dlmexp.reading.files import MIB
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import is_sealed, sealed, write_atomically
from dlmexp.records.manifest import Manifest, merged
from dlmexp.records.provenance import portable_command
from dlmexp.records.schema import FORMAT, Record, decoded, encoded

PATTERN = "records*.tar.xz"
MAX_RECORD = 16 * MIB
RECORDS, MANIFESTS = "records.jsonl", "manifests.jsonl"
RELIABILITY = "reliability_"  # how the names of arrays of reliability diagrams begin


def read_record(line: bytes) -> Record:
    """The record of a sealed JSON object; `Unreadable` says what is wrong with one that is not sound."""
    if len(line) > MAX_RECORD:
        raise Unreadable(f"it has {len(line)} bytes, more than {MAX_RECORD}")
    record = decoded(line)
    if record.sha256 is None or not is_sealed(line, record.sha256):
        raise Unreadable("its checksum does not fit")
    return record


def hyperparameters(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of a fit's arrays, the hyperparameters: all but the course of training and reliability diagrams."""
    return {name: array for name, array in arrays.items() if not _for_figures(name)}


def _for_figures(name: str) -> bool:
    return name in ("objective", "evaluated_at", "epochs") or name.startswith(("test_", RELIABILITY))


def checked_arrays(content: bytes, record: Record) -> dict[str, np.ndarray]:
    """The arrays in `content`, if they are those that the record was written with."""
    if hashlib.sha256(content).hexdigest() != record.arrays:
        raise Unreadable("the arrays do not match the record")
    return unpack_arrays(content, f"the arrays of {record.key}")


class Content(NamedTuple):
    """What the packs of a folder hold."""

    records: dict[str, Record]
    arrays: dict[str, bytes]
    manifests: list[Manifest]
    skipped: list[str]  # a sentence for every line that is no sound record


class Packs:
    """The packs of a results folder, read when first asked for."""

    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def _content(self) -> Content:
        found = Content({}, {}, [], [])
        for path in filter(Path.is_file, sorted(self.root.glob(PATTERN))):
            for name, content in pack_members(path):
                if name == RECORDS:
                    for number, line in _numbered(content, path):
                        try:
                            record = read_record(line)
                            found.records[record.key] = record
                        except Unreadable as why:
                            found.skipped.append(f"{path}, line {number}: {why}")
                elif name == MANIFESTS:
                    for number, line in _numbered(content, path):
                        try:
                            found.manifests.append(typed_json(line, Manifest))
                        except Unreadable as why:
                            found.skipped.append(f"{path}, {name}, line {number}: {why}")
                else:
                    found.arrays[Path(name).stem] = content
        return found

    @property
    def records(self) -> dict[str, Record]:
        """By key; a record whose checksum does not fit is not among them."""
        return self._content.records

    @property
    def manifests(self) -> list[Manifest]:
        return self._content.manifests

    @property
    def skipped(self) -> list[str]:
        return self._content.skipped

    def arrays(self, record: Record) -> dict[str, np.ndarray] | None:
        """The arrays of a packed record; None if there are none. `Unreadable` if they are not what the record says."""
        content = self._content.arrays.get(record.key)
        return None if content is None else checked_arrays(content, record)


def write_pack(
    path: Path,
    records: Iterable[tuple[Record, dict[str, np.ndarray]]],
    manifests: Iterable[Manifest],
    light: bool,
    known: Collection[str] = (),
    unselected: Collection[str] = (),
) -> int:
    """Write records with their arrays, and count them. The objective of every iteration stays behind, except where the
    learning curve is what the cell is for. A `light` pack has what figures and claims need: no objectives at all, and
    no hyperparameters of ELBO fits, so that fixed variants that go on from it fit their ELBO again;
    nor reliability diagrams of the `unselected`, by their keys. `known`: keys of records in other packs, which describe
    them."""
    lines, members, packed = [], [], set(known)
    for record, arrays in records:
        kept = dict(arrays)
        if light or record.part == "fits":
            kept.pop("objective", None)
        if light and record.part != "gradients":
            kept = {name: array for name, array in kept.items() if _for_figures(name)}
            if record.key in unselected:
                kept = {name: array for name, array in kept.items() if not name.startswith(RELIABILITY)}
        command = portable_command(record.made.command)
        record = msgspec.structs.replace(
            record,
            format=FORMAT,
            arrays=None,
            sha256=None,
            made=msgspec.structs.replace(record.made, command=command),
        )
        if kept:
            buffer = io.BytesIO()
            np.savez(buffer, **kept)  # pyright: ignore[reportArgumentType]
            record.arrays = hashlib.sha256(buffer.getvalue()).hexdigest()
            members.append((f"arrays/{record.key}.npz", buffer.getvalue()))
        packed.add(record.key)
        lines.append(sealed(encoded(record)))
    asked = []
    for one in merged(manifests):
        one.cells = {key: words for key, words in one.cells.items() if key not in packed}  # records describe themselves
        asked.append(msgspec.json.encode(one))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for name, content in [(RECORDS, _lines(lines)), (MANIFESTS, _lines(asked)), *members]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    write_atomically(path, out.getvalue())
    return len(lines)


def _numbered(content: bytes, path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a member that has no more of them than a pack may have members."""
    if content.count(b"\n") > MAX_PACK_MEMBERS:
        raise Unreadable(f"{path} has more than {MAX_PACK_MEMBERS} lines: refused")
    for number, line in enumerate(io.BytesIO(content), 1):
        yield number, line.rstrip(b"\r\n")


def _lines(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
