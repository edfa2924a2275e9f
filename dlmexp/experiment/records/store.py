"""The records of a results folder: a small JSON file per cell, with arrays and models in files.

Many processes may write to a folder at once, and any file may be damaged. For a damaged record
`read` raises `Unreadable`. Methods for tables and figures (`cells`, `own_records`, `arrays`) leave
it out and log a warning. Methods for runs (`verified_arrays`, `base_hyperparameters`) move it to
the folder `quarantine`, so that the cell is trained again; the store of a plan is `read_only`, and
moves nothing.
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

from dlmexp.common.atomic import ABSENT, path_inside, write_atomically
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import read_content, read_npz
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

FAILED = ".failed.json"  # the ending of the record of a failed cell
MODEL = ".model.npz"  # the ending of the file of a trained model
MAX_RECORD_BYTES = 16 << 20
CHECKSUM_DIGITS = 8  # of a checksum in the name of a file
RECORDS_PER_CHUNK = 2000  # records in memory at a time while they become rows of a table
# Names of arrays that figures draw begin with these: curves, draws of gradients, reliability
# diagrams.
DRAWN_ARRAY_PREFIXES = ("evaluated_at", "epochs", "error", "condition_", "test_", "reliability_")
# Names of all arrays other than hyperparameters begin with these.
TRAINING_ARRAY_PREFIXES = (*DRAWN_ARRAY_PREFIXES, "objective")

log = logging.getLogger(__name__)


class RecordFile(NamedTuple):
    """The file of a record."""

    path: Path
    key: str  # of the cell, from the name of the file
    is_failure: bool  # whether the cell failed, from the name of the file


class CachedRecords(NamedTuple):
    """The folder's own records as a table, and the versions of the files that they were read from.

    The version of a file is its size and the time of its last change. Once a file has another
    version, the table is outdated.
    """

    table: pa.Table
    versions: dict[Path, tuple[int, int]]


class Store:
    """Records under `records/<dataset>/`, and in packs.

    A done cell has a file `<key>.json`, a failed one `<key>.failed.json`. The files of its arrays
    (`.npz`) and its trained model (`.model.npz`) have their checksum in their names. So two
    processes that write the same cell do not overwrite each other's files.

    Besides its own records, which are these files, a folder may have packs of records, which are
    never changed. If a cell is in both, its own record is taken.

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
        self._cached: CachedRecords | None = None

    @cached_property
    def packs(self) -> list[Pack]:
        """The packs of the folder, then those of `pack_folders`."""
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
        stem = key if checksum is None else f"{key}-{checksum[:CHECKSUM_DIGITS]}"
        return self.records / dataset / f"{stem}{suffix}"

    def write(
        self,
        record: Record,
        arrays: dict[str, np.ndarray] | None = None,
        model: bytes | None = None,
    ) -> None:
        """Store a record with its arrays and the bytes of its model.

        The JSON is written last: a cell counts as done once its JSON exists. Only the JSON has to
        survive a loss of power (`durable`). If arrays or a model do not, their checksums in the
        JSON tell.
        """
        dataset = record.cell.dataset
        key = record.key
        # The fields `arrays` and `model` of a record are the checksums of its files.
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
        failure_path = self.path(dataset, key, FAILED)
        path = self.path(dataset, key) if record.done else failure_path
        self._write(path, with_checksum(encoded(record)) + b"\n")
        if record.done and failure_path.exists():
            self.quarantine(failure_path, "retried with success")

    def _write(self, path: Path, data: bytes, durable: bool = True) -> None:
        write_atomically(path_inside(self.root, path), data, durable)

    def _record_files(self) -> Iterator[RecordFile]:
        """Yield the files of the folder's own records, sorted by dataset and name."""
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
        for file in self._record_files():
            keys_of_status = failed if file.is_failure else done
            keys_of_status.add(file.key)
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
            record = decoded(read_content(path, MAX_RECORD_BYTES).removesuffix(b"\n"))
        except ABSENT:
            return None
        if record.key != _key_in(path.name):
            raise Unreadable("its name is not its key")
        return record

    def verified_arrays(
        self, dataset: str, key: str, always: bool = False
    ) -> dict[str, np.ndarray] | None:
        """Check the folder's own record of a done cell, and return its arrays if they are needed.

        A damaged record is moved to the quarantine. Arrays are needed if the record is useless
        without them (`needs_arrays`).

        Args:
            dataset: Name of the dataset.
            key: Key of the cell.
            always: Return the arrays of any cell.

        Returns:
            The arrays, or an empty dictionary if they are not needed. None if the folder has no
            sound record of its own: then the cell must be trained, or is only in packs.

        Raises:
            UserError: Another version of dlmexp wrote the record.
        """
        path = self.path(dataset, key)
        try:
            record = self.read(path)
            if record is None:
                return None
            return self._arrays(record) if always or needs_arrays(record.cell) else {}
        except OtherFormat as error:
            raise UserError(f"'{path}': {error}; give another folder with results=DIR") from None
        except Unreadable as error:
            self.quarantine(path, str(error))
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
        """Return the result of a fit that leaves out a fold, from its own record or from a pack.

        None means that the fit failed, or that there is no sound record. A pack keeps only those
        parts of the result that the fit to all rows needs (`Pack.fold_result`).
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
        """Return the hyperparameters of a done base fit, from which fixed variants start.

        None means that the base must be fitted again.
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
        # The dataset, which names the folder of the record, is not known here.
        for path in self.records.glob(f"*/{key}.json"):
            try:
                arrays = self._arrays(self.read(path))
                if arrays:
                    return arrays
            except Unreadable as error:
                log.warning("skipped the arrays of %s: %s", path, error)
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
        self, dataset: str, key: str, checksum: str | None, is_wanted: Callable[[str], bool]
    ) -> dict[str, np.ndarray]:
        """Return the wanted arrays of a cell, without reading its record.

        Args:
            dataset: The dataset of the cell.
            key: The key of the cell.
            checksum: The checksum of its arrays, which is in its record; None for a packed cell.
            is_wanted: Returns whether an array with a name is wanted.
        """
        if checksum is None:
            arrays = self._packed_arrays(key)
            return {name: array for name, array in arrays.items() if is_wanted(name)}
        try:
            npz = self.attachment(dataset, key, ".npz", checksum)
            return read_npz(npz, f"'{key}.npz'", only=is_wanted)
        except Unreadable as error:
            path = self.path(dataset, key)
            log.warning("skipped the arrays of %s: %s", path, error)
            return {}

    def _arrays(self, record: Record | None) -> dict[str, np.ndarray]:
        """Return the arrays that were written with a record.

        Raises:
            Unreadable: They are damaged.
        """
        if record is None or record.arrays is None:
            return {}
        npz = self.attachment(record.cell.dataset, record.key, ".npz", record.arrays)
        return read_npz(npz, f"'{record.key}.npz'")

    def attachment(self, dataset: str, key: str, suffix: str, checksum: str | None) -> bytes:
        """Return the content of the file with the arrays (`.npz`) or the model of a record.

        Raises:
            Unreadable: There is no such file, or its content has changed.
        """
        try:
            attached = read_content(self.path(dataset, key, suffix, checksum))
        except ABSENT:
            raise Unreadable("there is no such file") from None
        if hashlib.sha256(attached).hexdigest() != checksum:
            raise Unreadable("its checksum does not match the record")
        return attached

    def model_files(self) -> dict[str, list[Path]]:
        """Return the model files in the folder by the key of their cell.

        A cell has several files if it was trained more than once.
        """
        files: dict[str, list[Path]] = {}
        for path in sorted(self.records.glob(f"*/[!.]*{MODEL}")):
            key, _, _ = path.name.rpartition("-")  # what follows is the checksum
            files.setdefault(key, []).append(path)
        return files

    def own_records(self, keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield the folder's own sound records, done and failed; with `keys`, only of these cells.

        Failures of cells that are done by now are left out. A warning is logged about damaged
        files.
        """
        skipped: list[str] = []
        yield from self._sound_records(self._files_of(keys), skipped)
        _warn_of_skipped(skipped)

    def _files_of(self, keys: Collection[str] | None) -> list[RecordFile]:
        """Return the files of these cells, or of all, without the failures of done cells."""
        files = list(self._record_files())
        done = {file.key for file in files if not file.is_failure}
        chosen: list[RecordFile] = []
        for file in files:
            is_wanted = keys is None or file.key in keys
            is_done_by_now = file.key in done or file.key in self.packed
            is_outdated = file.is_failure and is_done_by_now
            if is_wanted and not is_outdated:
                chosen.append(file)
        return chosen

    def _sound_records(self, files: Iterable[RecordFile], skipped: list[str]) -> Iterator[Record]:
        """Yield the sound records of files; add a line about each damaged file to `skipped`."""
        for file in files:
            try:
                record = self.read(file.path)
            except Unreadable as error:
                skipped.append(f"{file.path}: {error}")
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
        cached = self._cached
        # The table in memory serves if it has all of these files in their present versions.
        if cached is None or not versions.items() <= cached.versions.items():
            skipped: list[str] = []
            cached = CachedRecords(self._table_of(files, skipped), versions)
            self._cached = cached
            if warn:
                _warn_of_skipped(skipped)
        if len(versions) == len(cached.versions):
            return cached.table
        # The table in memory also has records of other cells.
        return without_empty_columns(_with_keys(cached.table, map(attrgetter("key"), files)))

    def _table_of(self, files: Iterable[RecordFile], skipped: list[str]) -> pa.Table:
        """Return the sound records of files as rows, and add a line per damaged file to `skipped`.

        Records become rows in chunks, as rows take less memory than records.
        """
        tables = [arrow_table([])]  # so that the table has its columns even without any records
        records = self._sound_records(files, skipped)
        while chunk := list(islice(records, RECORDS_PER_CHUNK)):
            tables.append(arrow_table(chunk))
        return concatenated(tables)

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
                "%d cells have different results in the records and packs of %s: "
                "records come before packs, and earlier packs before later ones",
                count,
                self.root,
            )
        return cells.filter(~is_repeated.to_numpy())

    def quarantine(self, path: Path, reason: str) -> None:
        """Move a file to the folder `quarantine`, with a file beside it that gives the reason."""
        if self.read_only:
            return
        timestamp = time.strftime("%Y%m%dT%H%M%S")
        name = f"{timestamp}-{uuid.uuid4().hex[:8]}-{path.name}"
        target = path_inside(self.root, self.root / "quarantine" / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has moved the file
            os.replace(path_inside(self.root, path), target)
            self._write(target.with_name(target.name + ".why"), f"{reason}\n".encode())


def needs_arrays(cell: Cell) -> bool:
    """Return whether a record of the cell is useless without its arrays.

    The arrays of gradient measurements and learning curves are the result itself.
    """
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
        with contextlib.suppress(*ABSENT):  # another process has just removed the file
            status = os.stat(file.path)
            versions[file.path] = (status.st_size, status.st_mtime_ns)
    return versions


def _warn_of_skipped(skipped: Sequence[str]) -> None:
    if skipped:
        log.warning(
            "skipped %d files that are not sound records, such as %s", len(skipped), skipped[0]
        )


def _key_in(file_name: str) -> str:
    """Return the key in the name of a record's file."""
    return file_name.removesuffix(FAILED).removesuffix(".json")


def _count_of_keys_with_two_results(cells: pa.Table) -> int:
    """Return how many keys have rows with different metrics."""
    metrics = names_with_role(cells.column_names, "test", "validation")
    results = cells.select(["key", *metrics]).to_pandas().drop_duplicates()
    return int(results["key"].duplicated().sum())
