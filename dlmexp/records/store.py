"""Records on disk: one small JSON file per cell, arrays beside it, safe with many writers and damaged files.

Readers of records (`read`, `all`, `arrays`) skip what is damaged and leave it alone. A run (`find`, `base`) moves it to
`quarantine`, so that the cell is trained again; a store that is `read_only` (of a plan) counts it as missing.
"""

import contextlib
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from dlmexp.errors import Unreadable, UserError
from dlmexp.reading.files import content
from dlmexp.records.files import ABSENT, pack_arrays, sealed, write_atomically
from dlmexp.records.pack import MAX_RECORD, Packs, checked_arrays, hyperparameters, read_record
from dlmexp.records.schema import FORMAT, Record, TooNew, encoded

FAILED = ".failed.json"
MODEL = ".model.npz"
log = logging.getLogger(__name__)


class Store:
    """Records under `records/<dataset>/`: `<key>.json`, failures as `.failed.json`, arrays beside it as `.npz`, a
    trained model as `.model.npz`. The names of arrays and models have their checksum in it: of two writers of one cell,
    neither changes what the other has written."""

    def __init__(self, root: str | os.PathLike[str], read_only: bool = False):
        self.root, self.read_only = Path(root), read_only
        self.records = self.root / "records"
        self._warned: set[Path] = set()

    @cached_property
    def packs(self) -> Packs:
        """The read-only layer of packed records."""
        return Packs(self.root)

    def path(self, dataset: str, key: str, suffix: str = ".json") -> Path:
        return self.records / dataset / f"{key}{suffix}"

    def write(self, record: Record, arrays: dict[str, np.ndarray] | None = None, model: bytes | None = None) -> None:
        """Store a record; the JSON comes last and is what makes the cell done (or failed)."""
        record = msgspec.structs.replace(record, format=FORMAT, arrays=None, model=None, sha256=None)
        if model is not None:
            record.model = hashlib.sha256(model).hexdigest()
            write_atomically(self.model_path(record), model, durable=False)
        if arrays:
            packed = pack_arrays(arrays)
            record.arrays = hashlib.sha256(packed).hexdigest()
            write_atomically(self._arrays_path(record), packed, durable=False)
        write_atomically(self._record_path(record), sealed(encoded(record)) + b"\n")
        if record.done and (old := self.path(record.cell.dataset, record.key, FAILED)).exists():
            self.quarantine(old, "retried with success")

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
            (done if record.done else failed).add(key)
        return done, failed - done

    def _names(self) -> Iterator[tuple[Path, list[str]]]:
        """The folder of each dataset with the file names of its records."""
        for folder in sorted(self.records.iterdir()) if self.records.is_dir() else ():
            if folder.is_dir():
                yield folder, [n for n in os.listdir(folder) if n.endswith(".json") and not n.startswith(".")]

    def read(self, path: Path) -> Record | None:
        """The record at `path`; None if there is no sound one."""
        try:
            return self._read(path)
        except Unreadable:
            return None

    def _read(self, path: Path) -> Record | None:
        try:
            record = read_record(content(path, MAX_RECORD).removesuffix(b"\n"))
        except IsADirectoryError:
            raise Unreadable("it is a folder") from None
        except ABSENT:
            return None
        if record.key != path.name.removesuffix(FAILED).removesuffix(".json"):
            raise Unreadable("its name is not its key")
        return record

    def find(self, dataset: str, key: str) -> Record | None:
        """The record of a done cell, or None: then it must be trained (again), and what was damaged is quarantined."""
        path = self.path(dataset, key)
        try:
            record = self._read(path)
        except TooNew as why:
            raise UserError(f"'{path}' can't be used: {why}, or give another folder with results=DIR") from None
        except Unreadable as why:
            self.quarantine(path, str(why))
            record = None
        if record is not None and record.part != "fits" and self._arrays_or_quarantine(record) is None:
            record = None  # learning curves and gradients: the arrays are what the cell was run for
        record = record or self.packs.records.get(key)
        return record if record is not None and record.done else None

    def read_failure(self, dataset: str, key: str) -> Record | None:
        """The record of a failed cell, from the folder or from a pack; None if there is no sound one."""
        return self.read(self.path(dataset, key, FAILED)) or self.packs.records.get(key)

    def base(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """The hyperparameters of a done ELBO fit, for fixed variants to start from; None if it must be fitted again."""
        record = self.find(dataset, key)
        arrays = (self._arrays_or_quarantine(record) if record else None) or {}
        return hyperparameters(arrays) if "Z" in arrays else None

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """The arrays beside a record; none, with a warning, if they are not those that it was written with."""
        try:
            return self._arrays(record)
        except Unreadable as why:
            path = self._arrays_path(record)
            if path not in self._warned:
                self._warned.add(path)
                log.warning("skipped %s: %s", path, why)
            return {}

    def _arrays(self, record: Record) -> dict[str, np.ndarray]:
        if record.arrays is None:
            return {}
        try:
            return checked_arrays(content(self._arrays_path(record)), record)
        except ABSENT:
            packed = self.packs.arrays(record)
        if packed is None:
            raise Unreadable("the arrays do not match the record: there are none")
        return packed

    def _arrays_or_quarantine(self, record: Record) -> dict[str, np.ndarray] | None:
        """The arrays beside a record; None once they have been quarantined, and the record with them."""
        try:
            return self._arrays(record)
        except Unreadable as why:
            for path in (self._arrays_path(record), self._record_path(record)):
                self.quarantine(path, str(why))
            return None

    def model_path(self, record: Record) -> Path:
        """The file of the model that was written with a record."""
        assert record.model is not None
        return self.path(record.cell.dataset, record.key, f"-{record.model[:8]}{MODEL}")

    def has_model(self, record: Record) -> bool:
        """Whether the model of a done cell is there, going by the name of its file."""
        return record.done and record.model is not None and self.model_path(record).is_file()

    def has_sound_model(self, record: Record) -> bool:
        """Whether the model of a done cell is there and is what was written; one that is not is quarantined."""
        try:
            return self.model(record) is not None
        except Unreadable as why:
            self.quarantine(self.model_path(record), str(why))
            return False

    def model(self, record: Record) -> bytes | None:
        """The content of a cell's model file; None if there is none, `Unreadable` if it is not what was written."""
        if not record.done or record.model is None:
            return None
        try:
            written = self.model_path(record).read_bytes()
        except ABSENT:
            return None
        if hashlib.sha256(written).hexdigest() != record.model:
            raise Unreadable("its checksum does not fit")
        return written

    def keys_with_models(self) -> dict[str, list[Path]]:
        """The model files in the folder by the key of their cell."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.records.glob(f"*/*{MODEL}")):
            if not path.name.startswith("."):
                found.setdefault(path.name.rpartition("-")[0], []).append(path)
        return found

    def _record_path(self, record: Record) -> Path:
        return self.path(record.cell.dataset, record.key, ".json" if record.done else FAILED)

    def _arrays_path(self, record: Record) -> Path:
        assert record.arrays is not None
        return self.path(record.cell.dataset, record.key, f"-{record.arrays[:8]}.npz")

    def all(self) -> Iterator[Record]:
        """Every sound record, done and failed, in a fixed order; a failed one only if the cell is not done.

        A warning says how many files were skipped as damaged, and why the first of them was.
        """
        own: set[str] = set()
        skipped: list[str] = []
        for folder, names in self._names():
            present = set(names)
            for name in sorted(names):
                if name.endswith(FAILED) and name.replace(FAILED, ".json") in present:
                    continue
                try:
                    record = self._read(folder / name)
                except Unreadable as why:
                    skipped.append(f"{folder / name}: {why}")
                    continue
                if record is not None and not self._done_in_pack(record):
                    own.add(record.key)
                    yield record
        yield from (record for key, record in sorted(self.packs.records.items()) if key not in own)
        skipped += self.packs.skipped
        if skipped:
            log.warning("skipped %d files or lines that are no sound records, such as %s", len(skipped), skipped[0])

    def _done_in_pack(self, record: Record) -> bool:
        """Whether a failed cell is done in a pack."""
        return not record.done and self.packs.records.get(record.key, record).done

    def quarantine(self, path: Path, why: str) -> None:
        """Move a file out of the way, never delete it; `status` counts the files in `quarantine`."""
        if self.read_only:
            return
        target = self.root / "quarantine" / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}-{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, target)
            write_atomically(target.with_name(target.name + ".why"), f"{why}\n".encode())
