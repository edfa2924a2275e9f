"""A results folder on disk: what was asked for, written before anything is trained (`Manifest`),
and one small JSON file per cell with arrays beside it (`Store`); safe with many writers and damaged
files.

`status` knows from manifests what is missing, and the tidy table takes its groups of candidates and
their settings from them. Neither is ever concluded from the records that happen to be there.

Readers (`read`, `cells`, `arrays`) skip what is damaged and leave it alone. A run (`find`, `base`)
moves it to `quarantine`, so that the cell is trained again; a store that is `read_only` (of a plan)
counts it as missing."""

import contextlib
import hashlib
import io
import json
import logging
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlmexp.common.atomic import ABSENT, within, write_atomically
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import content, json_value, read_npz
from dlmexp.experiment.plan.cell import Asked, Name
from dlmexp.experiment.records.packed import PATTERN, TABLE, Packed, arrow_table
from dlmexp.experiment.records.record import OtherFormat, Record, decoded, encoded, flat, sealed

FAILED = ".failed.json"
MAX_RECORD = 16 << 20  # bytes
MODEL = ".model.npz"
FIGURES = (
    "evaluated_at",
    "epochs",
    "error",
    "condition_",
    "test_",
    "reliability_",
)  # how names of drawn arrays begin
log = logging.getLogger(__name__)


class Store:
    """Records under `records/<dataset>/`: `<key>.json`, failures as `.failed.json`, arrays beside
    it as `.npz`, a trained model as `.model.npz`. The names of arrays and models have their
    checksum in it: of two writers of one cell, neither changes what the other has written. Below
    them lie packed records, which are never changed."""

    def __init__(self, root: str | os.PathLike[str], read_only: bool = False):
        self.root, self.read_only = Path(root), read_only
        self.records = self.root / "records"

    @cached_property
    def packs(self) -> list[Packed]:
        """The folder's packed records."""
        paths = sorted(self.root.glob(PATTERN))
        return [Packed(path) for path in paths if path.name != TABLE and path.is_file()]

    @cached_property
    def packed(self) -> set[str]:
        """Keys of the done cells in packed records."""
        return {key for pack in self.packs for key in pack.keys[0]}

    def path(
        self, dataset: str, key: str, suffix: str = ".json", checksum: str | None = None
    ) -> Path:
        """A file of a cell; those beside its record have the start of their checksum in their
        name."""
        return (
            self.records
            / dataset
            / f"{key}{f'-{checksum[:8]}' if isinstance(checksum, str) else ''}{suffix}"
        )

    def write(
        self,
        record: Record,
        arrays: dict[str, np.ndarray] | None = None,
        model: bytes | None = None,
    ) -> None:
        """Store a record; the JSON comes last and is what makes the cell done (or failed)."""
        dataset, key = record.cell.dataset, record.key
        record = msgspec.structs.replace(record, arrays=None, model=None, sha256=None)
        if model is not None:
            record.model = hashlib.sha256(model).hexdigest()
            self._write(self.path(dataset, key, MODEL, record.model), model, durable=False)
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
            written = buffer.getvalue()
            record.arrays = hashlib.sha256(written).hexdigest()
            self._write(self.path(dataset, key, ".npz", record.arrays), written, durable=False)
        failed = self.path(dataset, key, FAILED)
        self._write(
            self.path(dataset, key) if record.done else failed, sealed(encoded(record)) + b"\n"
        )
        if record.done and failed.exists():
            self.quarantine(failed, "retried with success")

    def _write(self, path: Path, content: bytes, durable: bool = True) -> None:
        write_atomically(within(self.root, path), content, durable)

    def _files(self) -> Iterator[tuple[Path, str, bool]]:
        """The files of records, the key in each name, and whether it is that of a failure."""
        for folder in sorted(self.records.glob("*")):
            for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
                if name.endswith(".json") and not name.startswith("."):
                    yield (
                        folder / name,
                        name.removesuffix(FAILED).removesuffix(".json"),
                        name.endswith(FAILED),
                    )

    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells, from file names alone (20 000 of them in a moment) and
        from packs."""
        files, packs = list(self._files()), [pack.keys for pack in self.packs]
        done = {key for _, key, failed in files if not failed}.union(*(keys for keys, _ in packs))
        return done, {key for _, key, failed in files if failed}.union(
            *(keys for _, keys in packs)
        ) - done

    def read(self, path: Path) -> Record | None:
        """The record at `path`; None if there is none, `Unreadable` if it is not sound."""
        try:
            record = decoded(content(path, MAX_RECORD).removesuffix(b"\n"))
        except ABSENT:
            return None
        if record.key != path.name.removesuffix(FAILED).removesuffix(".json"):
            raise Unreadable("its name is not its key")
        return record

    def find(self, dataset: str, key: str, base: bool = False) -> dict[str, np.ndarray] | None:
        """The arrays of the folder's own record of a done cell, as far as it is of no use without
        them: of a `base` fit, of curves and of gradients. None where the cell must be trained
        (again), or is only in packed records. What was damaged is quarantined."""
        path = self.path(dataset, key)
        try:
            if record := self.read(path):
                needed = base or record.cell.kind != "fit" or record.cell.evaluate != "end"
                return self._arrays(record) if needed else {}
        except OtherFormat as why:
            raise UserError(f"'{path}': {why}; give another folder with results=DIR") from None
        except Unreadable as why:
            self.quarantine(path, str(why))
        return None

    def base(self, dataset: str, key: str) -> dict[str, np.ndarray] | None:
        """The hyperparameters of a done base fit, for fixed variants to start from; None if it must
        be fitted again."""
        arrays, drawn = self.find(dataset, key, base=True) or {}, (*FIGURES, "objective")
        return (
            {name: array for name, array in arrays.items() if not name.startswith(drawn)}
            if "Z" in arrays
            else None
        )

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of a done cell by name: its learning curve, reliability diagram or draws of
        gradients. None at all, with a warning, if they are not those that the record was written
        with."""
        for path in self.records.glob(f"*/{key}.json"):
            try:
                if arrays := self._arrays(self.read(path)):
                    return arrays
            except Unreadable as why:
                log.warning("skipped the arrays of %s: %s", path, why)
                return {}
        return next((arrays for pack in self.packs if (arrays := pack.arrays(key))), {})

    def _arrays(self, record: Record | None) -> dict[str, np.ndarray]:
        if record is None or record.arrays is None:
            return {}
        return read_npz(
            self.beside(record.cell.dataset, record.key, ".npz", record.arrays),
            f"'{record.key}.npz'",
        )

    def beside(self, dataset: str, key: str, suffix: str, checksum: str | None) -> bytes:
        """The content of a file beside a record (`MODEL`: the trained model); `Unreadable` if it is
        not there, or not what was written."""
        try:
            written = content(self.path(dataset, key, suffix, checksum))
        except ABSENT:
            raise Unreadable("there is no such file") from None
        if hashlib.sha256(written).hexdigest() != checksum:
            raise Unreadable("its checksum does not match the record")
        return written

    def keys_with_models(self) -> dict[str, list[Path]]:
        """The model files in the folder by the key of their cell."""
        files: dict[str, list[Path]] = {}
        for path in sorted(self.records.glob(f"*/[!.]*{MODEL}")):
            files.setdefault(path.name.rpartition("-")[0], []).append(path)
        return files

    def own(self, keys: Collection[str] | None = None) -> Iterator[Record]:
        """The folder's own sound records (of these `keys`), done and failed; a failed one only if
        the cell is not done. A warning says how many files were skipped as damaged, and why the
        first of them was."""
        files, skipped = list(self._files()), []
        done = {key for _, key, failed in files if not failed}
        for path, key, failed in files:
            if (keys is None or key in keys) and not (
                failed and (key in done or key in self.packed)
            ):
                try:
                    if record := self.read(path):
                        yield record
                except Unreadable as why:
                    skipped.append(f"{path}: {why}")
        if skipped:
            log.warning(
                "skipped %d files that are no sound records, such as %s", len(skipped), skipped[0]
            )

    def cells(
        self, keys: Collection[str] | None = None, columns: tuple[str, ...] = ("",)
    ) -> pa.Table:
        """Every sound record (of these `keys`) as a row of `record.flat`, those in packed records
        included. Where a cell is in several places, the folder's own record is taken, then the
        first pack's; a warning says so where they are not the same. `columns`: how the names of
        those begin that are read."""
        own = arrow_table([flat(record) for record in self.own(keys)])
        own = own.select([name for name in own.column_names if name.startswith(columns)])
        cells = pa.concat_tables(
            [own, *(pack.cells(columns) for pack in self.packs)], promote_options="permissive"
        )
        if keys is not None:
            cells = cells.filter(pc.field("key").isin(list(keys)))
        again = cells["key"].to_pandas().duplicated()
        if again.any():
            metrics = [
                name
                for name in cells.column_names
                if name.startswith(("key", "test_", "validation_"))
            ]
            if (
                differing := cells.select(metrics)
                .to_pandas()
                .drop_duplicates()["key"]
                .duplicated()
                .sum()
            ):
                log.warning(
                    "%d cells have two results in %s: its own are taken, or the first",
                    differing,
                    self.root,
                )
            cells = cells.filter(~again.to_numpy())
        return cells

    def quarantine(self, path: Path, why: str) -> None:
        """Move a file out of the way, never delete it; `status` counts the files in
        `quarantine`."""
        if self.read_only:
            return
        target = (
            self.root
            / "quarantine"
            / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}-{path.name}"
        )
        within(self.root, target).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(within(self.root, path), target)
            self._write(target.with_name(target.name + ".why"), f"{why}\n".encode())


class Manifest(msgspec.Struct, omit_defaults=True):
    """What one run asked for, and whose trained models are kept (`none | selected | all`)."""

    experiment: Name
    candidates: Sequence[Asked]
    keep: str = "none"


def distinct(asked: Iterable[Asked]) -> list[Asked]:
    """All that was asked for, each of it once."""
    return list({each.identity: each for each in asked}.values())


def write_manifest(root: Path, asked: Manifest) -> None:
    """Add it to the experiment's folder: one file per content, named by it, so that no two
    collide."""
    text = msgspec.json.encode(
        msgspec.structs.replace(asked, candidates=distinct(asked.candidates))
    )
    path = root / asked.experiment / "cells" / _name(text)
    if not path.exists() or path.read_bytes() != text:
        write_atomically(within(root, path), text)


def _name(text: bytes) -> str:
    return f"{hashlib.sha256(text).hexdigest()[:16]}.json"


def read_manifests(root: Path) -> list[Manifest]:
    """All manifests in a results folder; a file that is not what its name says is torn or foreign,
    and skipped."""
    manifests = []
    for path in sorted(root.glob("*/cells/*.json")):
        try:
            text = content(path)
            if (
                _name(text) == path.name
                and (read := json_value(text, Manifest)).experiment == path.parent.parent.name
            ):
                manifests.append(
                    read
                )  # tables are written, and files removed, in the folder that it names
        except (Unreadable, *ABSENT):
            continue
    return manifests


def check_same_data(root: Path, dataset: str, checksum: str) -> None:
    """Refuse to mix results of different contents under one dataset's name."""
    path = root / "data" / f"{dataset}.json"
    text = json.dumps({"dataset": dataset, "checksum": checksum}).encode()
    if not path.exists():
        write_atomically(within(root, path), text)
    elif content(path) != text:
        raise UserError(
            f"dataset '{dataset}' has changed: its checksum is {checksum[:16]}, and '{path}' has another; restore the "
            "data, give another folder with results=DIR, or name a table of your own with csv.name=NAME"
        )
