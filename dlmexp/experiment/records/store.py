"""The records of a results folder: a small JSON file per cell, with arrays and models in files.

The store is safe with many writers and with damaged files. Readers (`read`, `cells`, `arrays`) skip
a damaged file and leave it alone. A run (`find`, `base`) moves it to `quarantine`, so that the cell
is trained again. A plan, whose store is `read_only`, counts it as missing.
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
from operator import attrgetter
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
    NOT_PACKS,
    PACK_PATTERN,
    Pack,
    arrow_table,
    concatenated,
    without_empty_columns,
)
from dlmexp.experiment.records.record import (
    OtherFormat,
    Record,
    Result,
    decoded,
    encoded,
    with_checksum,
)

FAILED = ".failed.json"
MAX_RECORD = 16 << 20  # bytes
MODEL = ".model.npz"
CHECKSUM_DIGITS = 8  # of a checksum in the name of a file
READ_AT_ONCE = 2000  # records in memory at a time while they become rows of a table
# How the names of arrays begin that figures draw: curves, draws of gradients, reliability.
DRAWN_ARRAY_PREFIXES = ("evaluated_at", "epochs", "error", "condition_", "test_", "reliability_")
# How the names of all arrays begin that are not hyperparameters.
TRAINING_ARRAY_PREFIXES = (*DRAWN_ARRAY_PREFIXES, "objective")

log = logging.getLogger(__name__)


class RecordFile(NamedTuple):
    """The file of a record."""

    path: Path
    key: str  # of the cell, from the name of the file
    failed: bool  # whether it is the record of a failure


class OwnRecords(NamedTuple):
    """The folder's own records as a table, and the versions of the files that they were read from.

    The version of a file is its size and the time of its last change. A file with another version
    is read again.
    """

    table: pa.Table
    versions: dict[Path, tuple[int, int]]


class Store:
    """Records under `records/<dataset>/`, and in packs.

    A done cell has a file `<key>.json`, a failed one `<key>.failed.json`. The files of its arrays
    (`.npz`) and its trained model (`.model.npz`) have their checksum in their names. So two
    processes that write the same cell do not overwrite each other's files.

    Besides its own records a folder may have packs of records, which are never changed. Of a cell
    in both, the folder's own record is taken.

    Args:
        root: The folder.
        read_only: Whether damaged files stay where they are.
        pack_folders: Further folders, whose packs are read after those of this folder.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        read_only: bool = False,
        pack_folders: Iterable[str | os.PathLike[str]] = (),
    ):
        self.root = Path(root)
        self.read_only = read_only
        self.pack_folders = list(map(Path, pack_folders))
        self.records = self.root / "records"
        self._own: OwnRecords | None = None

    @cached_property
    def packs(self) -> list[Pack]:
        """The packs of the folder, then those of the other folders."""
        packs: list[Pack] = []
        for folder in (self.root, *self.pack_folders):
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
        if isinstance(checksum, str):  # in a table, a missing checksum is NaN
            stem = f"{key}-{checksum[:CHECKSUM_DIGITS]}"
        return self.records / dataset / f"{stem}{suffix}"

    def write(
        self,
        record: Record,
        arrays: dict[str, np.ndarray] | None = None,
        model: bytes | None = None,
    ) -> None:
        """Store a record. Its JSON is written last, as the cell counts as done when it is there."""
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
        self._write(path, with_checksum(encoded(record)) + b"\n")
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

    def verified_arrays(
        self, dataset: str, key: str, always: bool = False
    ) -> dict[str, np.ndarray] | None:
        """Check the folder's own record of a done cell, and return its arrays if they are needed.

        A damaged record is moved to the quarantine.

        Args:
            dataset: Name of the dataset.
            key: Key of the cell.
            base: Whether the arrays are needed because other cells start from this fit. They are
                also needed for learning curves and gradients (`needs_arrays`).

        Returns:
            The arrays, or an empty dictionary if they are not needed. None if there is no sound
            record here: then the cell must be trained, or is only in packs.

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
        """Return the folder's own record of a cell, done or failed; None if none is sound."""
        for suffix in (".json", FAILED):
            with contextlib.suppress(Unreadable):
                record = self.read(self.path(dataset, key, suffix))
                if record is not None:
                    return record
        return None

    def fold_result(self, dataset: str, key: str) -> Result | None:
        """Return the result of a done fold, the folder's own or that of a pack.

        None means that there is no sound record. A pack has what the fit to all rows needs of it
        (`Pack.fold`).
        """
        record = self.record(dataset, key)
        if record is not None:
            return record.result if record.done else None
        for pack in self.packs:
            result = pack.fold_result(key)
            if result is not None:
                return result
        return None

    def base_hyperparameters(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """Return the hyperparameters of a done base fit, for fixed variants to start from.

        None means that it must be fitted again.
        """
        arrays = self.verified_arrays(dataset, key, always=True) or {}
        if "Z" not in arrays:
            return None
        return {
            name: array
            for name, array in arrays.items()
            if not name.startswith(TRAINING_ARRAY_PREFIXES)
        }

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a done cell by name.

        They are its learning curve, its reliability diagram or its draws of gradients. If they are
        damaged, a warning is logged and the result is empty.
        """
        for path in self.records.glob(f"*/{key}.json"):
            try:
                arrays = self._arrays(self.read(path))
                if arrays:
                    return arrays
            except Unreadable as why:
                log.warning("skipped the arrays of %s: %s", path, why)
                return {}
        return self._packed_arrays(key)

    def _packed_arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a cell from the first pack that has them."""
        for pack in self.packs:
            arrays = pack.arrays(key)
            if arrays:
                return arrays
        return {}

    def chosen_arrays(
        self, dataset: str, key: str, checksum: str | None, wanted: Callable[[str], bool]
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a cell that are wanted; its record is not read.

        Args:
            dataset: The dataset of the cell.
            key: The key of the cell.
            checksum: The checksum of its arrays, which is in its record; None for a packed cell.
            wanted: Returns whether an array of this name is wanted.
        """
        if checksum is None:
            arrays = self._packed_arrays(key)
            names = list(filter(wanted, arrays))
            return {name: arrays[name] for name in names}
        try:
            written = self.attachment(dataset, key, ".npz", checksum)
            return read_npz(written, f"'{key}.npz'", only=wanted)
        except Unreadable as why:
            path = self.path(dataset, key)
            log.warning("skipped the arrays of %s: %s", path, why)
            return {}

    def _arrays(self, record: Record | None) -> dict[str, np.ndarray]:
        """Return the arrays that were written with a record.

        Raises:
            Unreadable: They are damaged.
        """
        if record is None or record.arrays is None:
            return {}
        written = self.attachment(record.cell.dataset, record.key, ".npz", record.arrays)
        return read_npz(written, f"'{record.key}.npz'")

    def attachment(self, dataset: str, key: str, suffix: str, checksum: str | None) -> bytes:
        """Return the content of the file with the arrays (`.npz`) or the model of a record.

        Raises:
            Unreadable: There is no such file, or its content has changed.
        """
        try:
            written = content(self.path(dataset, key, suffix, checksum))
        except ABSENT:
            raise Unreadable("there is no such file") from None
        if hashlib.sha256(written).hexdigest() != checksum:
            raise Unreadable("its checksum does not match the record")
        return written

    def model_files(self) -> dict[str, list[Path]]:
        """Return the model files in the folder by the key of their cell."""
        files: dict[str, list[Path]] = {}
        for path in sorted(self.records.glob(f"*/[!.]*{MODEL}")):
            key, _, _ = path.name.rpartition("-")
            files.setdefault(key, []).append(path)
        return files

    def own_records(self, keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield the folder's own sound records, done and failed; with `keys`, only of these cells.

        The failure of a cell that is done is left out. A warning is logged about damaged files.
        """
        skipped: list[str] = []
        yield from self._sound_records(self._files_of(keys), skipped)
        _warn_of_skipped(skipped)

    def _files_of(self, keys: Collection[str] | None) -> list[RecordFile]:
        """Return the files of these cells, or of all, without the failures of done cells."""
        files = list(self._files())
        done = {file.key for file in files if not file.failed}
        chosen: list[RecordFile] = []
        for file in files:
            is_wanted = keys is None or file.key in keys
            is_retried = file.failed and (file.key in done or file.key in self.packed)
            if is_wanted and not is_retried:
                chosen.append(file)
        return chosen

    def _sound_records(self, files: Iterable[RecordFile], skipped: list[str]) -> Iterator[Record]:
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
        """Return the folder's own sound records as rows of a table (`record.columns_of`).

        The table is kept in memory, and files are read again only if one of them has changed.

        Args:
            keys: The cells; None: all.
            warn: Whether a warning is logged about damaged files.
        """
        files = self._files_of(keys)
        versions = _versions(files)
        own = self._own
        if own is None or not versions.items() <= own.versions.items():
            skipped: list[str] = []
            tables = [arrow_table([])]
            records = self._sound_records(files, skipped)
            while chunk := list(islice(records, READ_AT_ONCE)):
                tables.append(arrow_table(chunk))
            own = OwnRecords(concatenated(tables), versions)
            self._own = own
            if warn:
                _warn_of_skipped(skipped)
        if len(versions) == len(own.versions):
            return own.table
        # Some of the records in memory were not asked for.
        return without_empty_columns(_with_keys(own.table, map(attrgetter("key"), files)))

    def cells(
        self, keys: Collection[str] | None = None, columns: ColumnFilter = every_column
    ) -> pa.Table:
        """Return every sound record as a row of a table, packs included.

        Of a cell in several places, the folder's own record is taken, else that of the first pack.
        A warning is logged if their results differ.

        Args:
            keys: The cells; None: all.
            columns: The columns to read.
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
        count = _count_of_keys_with_two_results(cells)
        if count:
            log.warning(
                "%d cells have two results in %s: its own are taken, or the first", count, self.root
            )
        return cells.filter(~is_repeated.to_numpy())

    def quarantine(self, path: Path, why: str) -> None:
        """Move a file to `quarantine`, and write beside it why."""
        if self.read_only:
            return
        timestamp = time.strftime("%Y%m%dT%H%M%S")
        name = f"{timestamp}-{uuid.uuid4().hex[:8]}-{path.name}"
        target = within(self.root, self.root / "quarantine" / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(within(self.root, path), target)
            self._write(target.with_name(target.name + ".why"), f"{why}\n".encode())


def needs_arrays(cell: Cell) -> bool:
    """Return whether a record of the cell is useless without its arrays."""
    return cell.kind != "fit" or cell.evaluate != "end"


def _pack_paths(folder: Path) -> list[Path]:
    """Return the packs of a folder."""
    paths = sorted(folder.glob(PACK_PATTERN))
    return [path for path in paths if path.name not in NOT_PACKS and path.is_file()]


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
    """Return the rows with these keys."""
    return cells.filter(pc.field("key").isin(pa.array(list(keys), pa.string())))


def _versions(files: Iterable[RecordFile]) -> dict[Path, tuple[int, int]]:
    """Return the version of each file: its size and the time of its last change."""
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
