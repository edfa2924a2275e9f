"""Records on disk: one small JSON per cell, arrays beside it, safe with many writers and torn files."""

import contextlib
import hashlib
import os
import time
import uuid
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.sweep.pack import HYPERPARAMETERS, Packs
from dlmexp.sweep.sealed import pack, sealed, unpack, unsealed, write_atomically

FORMAT = 1
FAILED = ".failed.json"


class Store:
    """Records under `records/<dataset>/`: `<key>.json`, failures as `.failed.json`, arrays beside it as `.npz`. The
    arrays' name has their checksum in it: of two writers of one cell, neither changes the other's arrays."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)
        self.records = self.root / "records"

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
        for folder in os.scandir(self.records) if self.records.is_dir() else ():
            for name in os.listdir(folder.path) if folder.is_dir() else ():
                if name.startswith("."):
                    continue
                if name.endswith(FAILED):
                    failed.add(name.removesuffix(FAILED))
                elif name.endswith(".json"):
                    done.add(name.removesuffix(".json"))
        for key, record in self.packs.records.items():
            (failed if record["status"] == "failed" else done).add(key)
        return done, failed - done

    def read(self, path: Path) -> dict[str, Any] | None:
        """The record at `path`, or None after setting it aside because it is torn, foreign or edited."""
        try:
            record = unsealed(path.read_bytes().decode(errors="replace").removesuffix("\n"))
        except FileNotFoundError:
            return None
        name = path.name.removesuffix(FAILED).removesuffix(".json")
        if record is None or (record.get("format"), record.get("key")) != (FORMAT, name):
            self.set_aside(path, "its checksum, name or format does not fit")
            return None
        return record

    def find(self, dataset: str, key: str) -> dict[str, Any] | None:
        """The record of a done cell, or None."""
        record = self.read(self.path(dataset, key)) or self.packs.records.get(key)
        return record if record is not None and record["status"] == "done" else None

    def base(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """What a done ELBO fit leaves for fixed variants to start from; None if it must be fitted (again)."""
        record = self.find(dataset, key)
        arrays = self.arrays(record) if record else {}
        return {name: arrays[name] for name in HYPERPARAMETERS if name in arrays} if "Z" in arrays else None

    def arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray]:
        """The arrays beside a record; a file that does not match the record is set aside with it."""
        if "arrays" not in record:
            return {}
        path = self._arrays_path(record)
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == record["arrays"]:
                return unpack(content)
        except FileNotFoundError:
            if (packed := self.packs.arrays(record)) is not None:
                return packed
        except (ValueError, zipfile.BadZipFile):
            pass
        suffix = FAILED if record["status"] == "failed" else ".json"
        for victim in (path, self.path(record["cell"]["dataset"], record["key"], suffix)):
            self.set_aside(victim, "the arrays do not match the record")
        return {}

    def _arrays_path(self, record: dict[str, Any]) -> Path:
        return self.path(record["cell"]["dataset"], record["key"], f"-{record['arrays'][:8]}.npz")

    def all(self) -> Iterator[dict[str, Any]]:
        """Every sound record, done and failed, in a fixed order; a failed one only if the cell is not done."""
        own: set[str] = set()
        for folder in sorted(self.records.iterdir()) if self.records.is_dir() else ():
            names = sorted(n for n in os.listdir(folder) if n.endswith(".json") and not n.startswith("."))
            present = set(names)
            for name in names:
                if name.endswith(FAILED) and name.replace(FAILED, ".json") in present:
                    continue
                if (record := self.read(folder / name)) is not None and not self._overruled(record):
                    own.add(record["key"])
                    yield record
        yield from (record for key, record in sorted(self.packs.records.items()) if key not in own)

    def _overruled(self, record: dict[str, Any]) -> bool:
        """Whether a failed cell is done in a pack."""
        return record["status"] == "failed" and self.packs.records.get(record["key"], record)["status"] == "done"

    def set_aside(self, path: Path, why: str) -> None:
        """Move a file out of the way, never delete it; `status` counts what lies in `set-aside`."""
        target = self.root / "set-aside" / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}-{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, target)
            write_atomically(target.with_name(target.name + ".why"), f"{why}\n".encode())
