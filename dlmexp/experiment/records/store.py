"""The records of a results folder: one small JSON file per cell, with arrays and models in files.

The store is safe with many writers and with damaged files. Readers (`read`, `cells`, `arrays`) skip
what is damaged and leave it alone. A run (`find`, `base`) moves it to `quarantine`, so that the
cell is trained again; a store that is `read_only` (of a plan) counts it as missing.
"""

import contextlib
import hashlib
import io
import logging
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlmexp.common.atomic import ABSENT, within, write_atomically
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import content, read_npz
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.records.columns import (
    ColumnFilter,
    chosen_names,
    every_column,
    names_with_role,
)
from dlmexp.experiment.records.packed import (
    NO_PACKS,
    PATTERN,
    Pack,
    arrow_table,
    concatenated,
    without_empty_columns,
)
from dlmexp.experiment.records.record import OtherFormat, Record, decoded, encoded, sealed

FAILED = ".failed.json"
MAX_RECORD = 16 << 20  # bytes
MODEL = ".model.npz"
CHECKSUM_DIGITS = 8  # of a checksum in the name of a file
READ_AT_ONCE = 2000  # records that become rows of a table together
# Prefixes of the names of arrays that figures draw: curves, draws of gradients, reliability.
DRAWN_ARRAYS = ("evaluated_at", "epochs", "error", "condition_", "test_", "reliability_")
# The same for all arrays that training leaves; all others are hyperparameters.
TRAINING_ARRAYS = (*DRAWN_ARRAYS, "objective")

log = logging.getLogger(__name__)


class RecordFile(NamedTuple):
    """The file of a record, the key in its name, and whether it is that of a failure."""

    path: Path
    key: str
    failed: bool


class OwnRecords(NamedTuple):
    """The folder's own records as a table, and the files that they were read from.

    A file is known by its size and by when it was last changed: another one of its name is read
    again.
    """

    table: pa.Table
    versions: dict[Path, tuple[int, int]]


class Store:
    """Records under `records/<dataset>/`.

    A done cell has `<key>.json`, a failed one `<key>.failed.json`. Arrays (`.npz`) and a trained
    model (`.model.npz`) have their checksum in their names: of two writers of one cell, neither
    changes what the other has written. Besides its own records a folder may have packs of records,
    which are never changed; its own come before theirs. `others` are folders whose packs are read
    after those of the folder itself.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        read_only: bool = False,
        others: Iterable[str | os.PathLike[str]] = (),
    ):
        self.root = Path(root)
        self.read_only = read_only
        self.others = [Path(other) for other in others]
        self.records = self.root / "records"
        self._own: OwnRecords | None = None

    @cached_property
    def packs(self) -> list[Pack]:
        """The packs of the folder, then those of the other folders."""
        packs: list[Pack] = []
        for folder in (self.root, *self.others):
            packs += [Pack(path) for path in _pack_paths(folder)]
        return packs

    @cached_property
    def packed(self) -> set[str]:
        """Keys of the done cells in packs."""
        keys: set[str] = set()
        for pack in self.packs:
            done, _ = pack.keys
            keys |= done
        return keys

    def path(
        self, dataset: str, key: str, suffix: str = ".json", checksum: str | None = None
    ) -> Path:
        """Return the path of a file of a cell.

        Args:
            dataset: Name of the dataset.
            key: Key of the cell.
            suffix: `.json`, `FAILED`, `.npz` or `MODEL`.
            checksum: SHA-256 of the content, for arrays and models.
        """
        stem = key
        if isinstance(checksum, str):  # a table has NaN where there is none
            stem = f"{key}-{checksum[:CHECKSUM_DIGITS]}"
        return self.records / dataset / f"{stem}{suffix}"

    def write(
        self,
        record: Record,
        arrays: dict[str, np.ndarray] | None = None,
        model: bytes | None = None,
    ) -> None:
        """Store a record; the JSON comes last and is what makes the cell done (or failed)."""
        dataset = record.cell.dataset
        key = record.key
        record = msgspec.structs.replace(record, arrays=None, model=None, sha256=None)
        if model is not None:
            record.model = hashlib.sha256(model).hexdigest()
            self._write(self.path(dataset, key, MODEL, record.model), model, durable=False)
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
            compressed = buffer.getvalue()
            record.arrays = hashlib.sha256(compressed).hexdigest()
            self._write(self.path(dataset, key, ".npz", record.arrays), compressed, durable=False)
        failed = self.path(dataset, key, FAILED)
        path = self.path(dataset, key) if record.done else failed
        self._write(path, sealed(encoded(record)) + b"\n")
        if record.done and failed.exists():
            self.quarantine(failed, "retried with success")

    def _write(self, path: Path, data: bytes, durable: bool = True) -> None:
        write_atomically(within(self.root, path), data, durable)

    def _files(self) -> Iterator[RecordFile]:
        """Yield the files of records."""
        for folder in sorted(self.records.glob("*")):
            if not folder.is_dir():
                continue
            for name in sorted(os.listdir(folder)):
                if name.endswith(".json") and not name.startswith("."):
                    yield RecordFile(folder / name, _key_in(name), name.endswith(FAILED))

    def keys(self) -> tuple[set[str], set[str]]:
        """Return the keys of done and of failed cells, packs included.

        They are taken from file names alone, since a folder may have 20 000 records.
        """
        done: set[str] = set()
        failed: set[str] = set()
        for file in self._files():
            keys = failed if file.failed else done
            keys.add(file.key)
        for pack in self.packs:
            done_in_pack, failed_in_pack = pack.keys
            done |= done_in_pack
            failed |= failed_in_pack
        return done, failed - done

    def read(self, path: Path) -> Record | None:
        """Return the record at `path`; None if there is none.

        Raises:
            Unreadable: The record is damaged.
        """
        try:
            record = decoded(content(path, MAX_RECORD).removesuffix(b"\n"))
        except ABSENT:
            return None
        if record.key != _key_in(path.name):
            raise Unreadable("its name is not its key")
        return record

    def find(self, dataset: str, key: str, base: bool = False) -> dict[str, np.ndarray] | None:
        """Return the arrays of a done cell from the folder's own record; None without a sound one.

        They are read for a `base` fit, for learning curves and for gradients; for other cells the
        result is empty. None means that the cell must be trained (again), or is only in packs. What
        is damaged is quarantined.

        Raises:
            UserError: Another version of dlmexp wrote the record.
        """
        path = self.path(dataset, key)
        try:
            record = self.read(path)
            if record is None:
                return None
            return self._arrays(record) if base or needs_arrays(record.cell) else {}
        except OtherFormat as why:
            raise UserError(f"'{path}': {why}; give another folder with results=DIR") from None
        except Unreadable as why:
            self.quarantine(path, str(why))
            return None

    def record(self, dataset: str, key: str) -> Record | None:
        """Return the folder's own record of a cell, done or failed; None without a sound one."""
        for suffix in (".json", FAILED):
            with contextlib.suppress(Unreadable):
                record = self.read(self.path(dataset, key, suffix))
                if record is not None:
                    return record
        return None

    def base(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """Return the hyperparameters of a done base fit, for fixed variants to start from.

        None means that it must be fitted again.
        """
        arrays = self.find(dataset, key, base=True) or {}
        if "Z" not in arrays:
            return None
        return {
            name: array for name, array in arrays.items() if not name.startswith(TRAINING_ARRAYS)
        }

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a done cell by name.

        They are its learning curve, its reliability diagram or its draws of gradients. There are
        none, and a warning is logged, if they are not those that the record was written with.
        """
        for path in self.records.glob(f"*/{key}.json"):
            try:
                if arrays := self._arrays(self.read(path)):
                    return arrays
            except Unreadable as why:
                log.warning("skipped the arrays of %s: %s", path, why)
                return {}
        return self._packed_arrays(key)

    def _packed_arrays(self, key: str) -> dict[str, np.ndarray]:
        for pack in self.packs:
            if arrays := pack.arrays(key):
                return arrays
        return {}

    def chosen_arrays(
        self, dataset: str, key: str, checksum: str | None, wanted: Callable[[str], bool]
    ) -> dict[str, np.ndarray]:
        """Return those arrays of a cell whose names are `wanted`, without its record.

        Args:
            dataset: The dataset of the cell.
            key: Its key.
            checksum: That of its arrays, as its record says; None if the record has none.
            wanted: Returns whether an array of this name is returned.
        """
        if checksum is None:
            packed = self._packed_arrays(key)
            return {name: array for name, array in packed.items() if wanted(name)}
        try:
            written = self.beside(dataset, key, ".npz", checksum)
            return read_npz(written, f"'{key}.npz'", only=wanted)
        except Unreadable as why:
            path = self.path(dataset, key)
            log.warning("skipped the arrays of %s: %s", path, why)
            return {}

    def _arrays(self, record: Record | None) -> dict[str, np.ndarray]:
        if record is None or record.arrays is None:
            return {}
        written = self.beside(record.cell.dataset, record.key, ".npz", record.arrays)
        return read_npz(written, f"'{record.key}.npz'")

    def beside(self, dataset: str, key: str, suffix: str, checksum: str | None) -> bytes:
        """Return the content of a file that belongs to a record (`MODEL`: the trained model).

        Raises:
            Unreadable: There is no such file, or it is not what was written.
        """
        try:
            written = content(self.path(dataset, key, suffix, checksum))
        except ABSENT:
            raise Unreadable("there is no such file") from None
        if hashlib.sha256(written).hexdigest() != checksum:
            raise Unreadable("its checksum does not match the record")
        return written

    def keys_with_models(self) -> dict[str, list[Path]]:
        """Return the model files in the folder by the key of their cell."""
        files: dict[str, list[Path]] = {}
        for path in sorted(self.records.glob(f"*/[!.]*{MODEL}")):
            key, _, _ = path.name.rpartition("-")
            files.setdefault(key, []).append(path)
        return files

    def own(self, keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield the folder's own sound records (of these `keys`), done and failed.

        A failed one is left out if the cell is done. A warning says how many files were skipped as
        damaged, and why the first of them was.
        """
        skipped: list[str] = []
        yield from self._sound(self._chosen(keys), skipped)
        _warn_of_skipped(skipped)

    def _chosen(self, keys: Collection[str] | None) -> list[RecordFile]:
        """Return the files of the cells with these keys, the failures of done cells left out."""
        files = list(self._files())
        done = {file.key for file in files if not file.failed}
        chosen: list[RecordFile] = []
        for file in files:
            is_retried = file.failed and (file.key in done or file.key in self.packed)
            if not is_retried and (keys is None or file.key in keys):
                chosen.append(file)
        return chosen

    def _sound(self, files: Iterable[RecordFile], skipped: list[str]) -> Iterator[Record]:
        """Yield the records of files; a line about each damaged one is added to `skipped`."""
        for file in files:
            try:
                record = self.read(file.path)
            except Unreadable as why:
                skipped.append(f"{file.path}: {why}")
                continue
            if record is not None:
                yield record

    def own_cells(self, keys: Collection[str] | None = None, warn: bool = True) -> pa.Table:
        """Return the folder's own sound records (of these `keys`) as rows (`record.columns_of`).

        They are kept, and read again only where files have changed.

        Args:
            keys: Of which cells.
            warn: Log a warning if files are damaged.
        """
        files = self._chosen(keys)
        versions = _versions(files)
        own = self._own
        if own is None or not versions.items() <= own.versions.items():
            skipped: list[str] = []
            tables = [arrow_table([])]
            records = self._sound(files, skipped)
            while chunk := list(islice(records, READ_AT_ONCE)):
                tables.append(arrow_table(chunk))
            own = OwnRecords(concatenated(tables), versions)
            self._own = own
            if warn:
                _warn_of_skipped(skipped)
        if len(versions) == len(own.versions):
            return own.table
        return without_empty_columns(_with_keys(own.table, [file.key for file in files]))

    def cells(
        self, keys: Collection[str] | None = None, columns: ColumnFilter = every_column
    ) -> pa.Table:
        """Return every sound record (of these `keys`) as a row of a table, packs included.

        Where a cell is in several places, the folder's own record is taken, then the first pack's;
        a warning says so where they are not the same.
        """
        own = self.own_cells(keys)
        tables = [own.select(chosen_names(own.column_names, columns))]
        tables += [pack.cells(columns) for pack in self.packs]
        cells = concatenated(tables)
        if keys is not None:
            cells = _with_keys(cells, keys)
        is_repeated = cells["key"].to_pandas().duplicated()
        if not is_repeated.any():
            return cells
        if count := _count_of_keys_with_two_results(cells):
            log.warning(
                "%d cells have two results in %s: its own are taken, or the first", count, self.root
            )
        return cells.filter(~is_repeated.to_numpy())

    def quarantine(self, path: Path, why: str) -> None:
        """Move a file out of the way; `status` counts the files in `quarantine`."""
        if self.read_only:
            return
        when = time.strftime("%Y%m%dT%H%M%S")
        name = f"{when}-{uuid.uuid4().hex[:8]}-{path.name}"
        target = within(self.root, self.root / "quarantine" / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(within(self.root, path), target)
            self._write(target.with_name(target.name + ".why"), f"{why}\n".encode())


def needs_arrays(cell: Cell) -> bool:
    """Return whether a record of the cell is of no use without its arrays."""
    return cell.kind != "fit" or cell.evaluate != "end"


def _pack_paths(folder: Path) -> list[Path]:
    """Return the packs of a folder."""
    paths = sorted(folder.glob(PATTERN))
    return [path for path in paths if path.name not in NO_PACKS and path.is_file()]


def check_has_packs(folder: Path) -> None:
    """Check that a folder named by `--with` has packs.

    Raises:
        UserError: There is no such folder, or it has none.
    """
    if not folder.is_dir():
        raise UserError(f"--with {folder}: there is no such folder; name one with packed records")
    if not _pack_paths(folder):
        command = f"dlmexp collect --results {folder} --pack {folder / 'records.parquet'}"
        raise UserError(f"--with {folder}: it has no packed records; `{command}` packs its own")


def _with_keys(cells: pa.Table, keys: Iterable[str]) -> pa.Table:
    return cells.filter(pc.field("key").isin(pa.array(list(keys), pa.string())))


def _versions(files: Iterable[RecordFile]) -> dict[Path, tuple[int, int]]:
    """Return the size and the time of the last change of each file."""
    versions: dict[Path, tuple[int, int]] = {}
    for file in files:
        with contextlib.suppress(*ABSENT):  # removed just now
            status = os.stat(file.path)
            versions[file.path] = (status.st_size, status.st_mtime_ns)
    return versions


def _warn_of_skipped(skipped: Sequence[str]) -> None:
    if skipped:
        log.warning(
            "skipped %d files that are no sound records, such as %s", len(skipped), skipped[0]
        )


def _key_in(file_name: str) -> str:
    """Return the key in the name of a record's file."""
    return file_name.removesuffix(FAILED).removesuffix(".json")


def _count_of_keys_with_two_results(cells: pa.Table) -> int:
    """Return how many keys have rows with different metrics."""
    metrics = names_with_role(cells.column_names, "test", "validation")
    results = cells.select(["key", *metrics]).to_pandas().drop_duplicates()
    return int(results["key"].duplicated().sum())
