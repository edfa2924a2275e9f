"""Records on disk: one small JSON per cell, arrays beside it, safe with many writers and torn files.

Who reads records (`read`, `all`, `arrays`) skips what is unsound and leaves it alone. Who runs cells (`find`, `base`)
moves it to `set-aside`, so that the cell is run again; a store that `only_reads` (of a plan) just counts it as missing.
"""

import contextlib
import hashlib
import logging
import os
import time
import uuid
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.sweep.pack import HYPERPARAMETERS, Packs, is_record
from dlmexp.sweep.sealed import pack, sealed, unpack, unsealed, write_atomically

FORMAT = 1
FAILED = ".failed.json"
ABSENT = (FileNotFoundError, NotADirectoryError)
log = logging.getLogger(__name__)


class Unsound(Exception):
    """A file that is torn, foreign or edited; the words say what does not fit."""


class Store:
    """Records under `records/<dataset>/`: `<key>.json`, failures as `.failed.json`, arrays beside it as `.npz`. The
    arrays' name has their checksum in it: of two writers of one cell, neither changes the other's arrays."""

    def __init__(self, root: str | os.PathLike[str], only_reads: bool = False):
        self.root, self.only_reads = Path(root), only_reads
        self.records = self.root / "records"
        self._told: set[Path] = set()

    @cached_property
    def packs(self) -> Packs:
        """The read-only layer of packed records."""
        return Packs(self.root)

    def path(self, dataset: str, key: str, suffix: str = ".json") -> Path:
        return self.records / dataset / f"{key}{suffix}"

    def write(self, record: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> None:
        """Store a record; the JSON comes last and is what makes the cell done (or failed)."""
        record = {"format": FORMAT, **record}
        dataset, key, failed = record["cell"]["dataset"], record["key"], record["status"] == "failed"
        if arrays:
            content = pack(arrays)
            record["arrays"] = hashlib.sha256(content).hexdigest()
            write_atomically(self._arrays_path(record), content)
        write_atomically(self.path(dataset, key, FAILED if failed else ".json"), f"{sealed(record)}\n".encode())
        if not failed and (old := self.path(dataset, key, FAILED)).exists():
            self.set_aside(old, "retried with success")

    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells, from file names alone (20 000 of them in a moment)."""
        done, failed = set[str](), set[str]()
        for _, names in self._names():
            for name in names:
                if name.endswith(FAILED):
                    failed.add(name.removesuffix(FAILED))
                else:
                    done.add(name.removesuffix(".json"))
        for key, record in self.packs.records.items():
            (failed if record["status"] == "failed" else done).add(key)
        return done, failed - done

    def _names(self) -> Iterator[tuple[Path, list[str]]]:
        """Every dataset's folder with the names of its records; other files that lie about are none of ours."""
        for folder in sorted(self.records.iterdir()) if self.records.is_dir() else ():
            if folder.is_dir():
                yield folder, [n for n in os.listdir(folder) if n.endswith(".json") and not n.startswith(".")]

    def read(self, path: Path) -> dict[str, Any] | None:
        """The record at `path`; None if there is no sound one."""
        try:
            return self._read(path)
        except Unsound:
            return None

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            record = unsealed(path.read_bytes().decode(errors="replace").removesuffix("\n"))
        except ABSENT:
            return None
        except IsADirectoryError:
            raise Unsound("it is a folder") from None
        name = path.name.removesuffix(FAILED).removesuffix(".json")
        if record is None or not is_record(record) or (record.get("format"), record["key"]) != (FORMAT, name):
            raise Unsound("its checksum, name or format does not fit")
        return record

    def find(self, dataset: str, key: str) -> dict[str, Any] | None:
        """The record of a done cell, or None: then it must be run (again), and what was unsound is set aside."""
        path = self.path(dataset, key)
        try:
            record = self._read(path)
        except Unsound as why:
            self.set_aside(path, str(why))
            record = None
        if record is not None and _lives_by_its_arrays(record) and self._arrays_or_set_aside(record) is None:
            record = None
        record = record or self.packs.records.get(key)
        return record if record is not None and record["status"] == "done" else None

    def base(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """What a done ELBO fit leaves for fixed variants to start from; None if it must be fitted (again)."""
        record = self.find(dataset, key)
        arrays = (self._arrays_or_set_aside(record) if record else None) or {}
        names = ("Z", *record["result"].get("hyperparameters", HYPERPARAMETERS)) if record else ()
        return {name: arrays[name] for name in names if name in arrays} if "Z" in arrays else None

    def arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray]:
        """The arrays beside a record; none, with a warning, if they are not those that it was written with."""
        try:
            return self._arrays(record)
        except Unsound as why:
            path = self._arrays_path(record)
            if path not in self._told:
                self._told.add(path)
                log.warning("skipped %s: %s", path, why)
            return {}

    def _arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray]:
        if "arrays" not in record:
            return {}
        try:
            content = self._arrays_path(record).read_bytes()
            if hashlib.sha256(content).hexdigest() == record["arrays"]:
                return unpack(content)
        except ABSENT:
            if (packed := self.packs.arrays(record)) is not None:
                return packed
        except (ValueError, zipfile.BadZipFile):
            pass
        raise Unsound("the arrays do not match the record")

    def _arrays_or_set_aside(self, record: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """The arrays beside a record; None once they have been set aside, and the record with them."""
        try:
            return self._arrays(record)
        except Unsound as why:
            suffix = FAILED if record["status"] == "failed" else ".json"
            for victim in (self._arrays_path(record), self.path(record["cell"]["dataset"], record["key"], suffix)):
                self.set_aside(victim, str(why))
            return None

    def _arrays_path(self, record: dict[str, Any]) -> Path:
        return self.path(record["cell"]["dataset"], record["key"], f"-{record['arrays'][:8]}.npz")

    def all(self) -> Iterator[dict[str, Any]]:
        """Every sound record, done and failed, in a fixed order; a failed one only if the cell is not done.

        How many files were skipped as unsound is said in a warning.
        """
        own: set[str] = set()
        skipped: list[Path] = []
        for folder, names in self._names():
            present = set(names)
            for name in sorted(names):
                if name.endswith(FAILED) and name.replace(FAILED, ".json") in present:
                    continue
                try:
                    record = self._read(folder / name)
                except Unsound:
                    skipped.append(folder / name)
                    continue
                if record is not None and not self._overruled(record):
                    own.add(record["key"])
                    yield record
        yield from (record for key, record in sorted(self.packs.records.items()) if key not in own)
        if skipped:
            log.warning("skipped %d files that are torn or no records, such as %s", len(skipped), skipped[0])

    def _overruled(self, record: dict[str, Any]) -> bool:
        """Whether a failed cell is done in a pack."""
        return record["status"] == "failed" and self.packs.records.get(record["key"], record)["status"] == "done"

    def set_aside(self, path: Path, why: str) -> None:
        """Move a file out of the way, never delete it; `status` counts what lies in `set-aside`."""
        if self.only_reads:
            return
        target = self.root / "set-aside" / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}-{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, target)
            write_atomically(target.with_name(target.name + ".why"), f"{why}\n".encode())


def _lives_by_its_arrays(record: dict[str, Any]) -> bool:
    """Whether the arrays are what the cell was run for: learning curves, gradients."""
    return record["cell"].get("kind") == "gradient" or record["cell"].get("evaluate", "end") != "end"
