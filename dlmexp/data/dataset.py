"""A dataset in memory, read from raw files. Which datasets are available (`dlmexp data list`), and whether their files
are sound (`dlmexp data check`)."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dlmexp.catalogue import stand_ins
from dlmexp.config import DatasetConfig
from dlmexp.console import counted
from dlmexp.data.parsers.registry import Parsed, parse
from dlmexp.data.raw_files import data_command, find_files, how_to_get, mismatch
from dlmexp.data.spec import TEST, as_spec, is_drawn
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError

if TYPE_CHECKING:
    from dlmexp.data.schema import Schema

DRAWN_VERSION = 1  # part of the checksum of drawn data: increase it when other values are drawn than before


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation; the arrays are read-only."""

    name: str
    task: str
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    checksum: str  # of the values, whatever the file format, or of the definition they are drawn from
    facts: Mapping[str, Any] = field(default_factory=dict)  # to show: names of features, parts that were read
    arrangement: Arrangement | None = None  # how a user wants the rows divided; None: as the task's split does

    @property
    def schema(self) -> "Schema":
        """Its columns by name; x1, x2, ... and y where the files name none."""
        from dlmexp.data.schema import Schema  # which needs pandas, as the list of datasets does not

        return self.facts.get("schema") or Schema.plain(self.facts.get("features") or self.X.shape[1], self.task)


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetConfig, a config node or a dict), from the data root `root`, parsed
    and checked. UserError if files are missing or fail a check."""
    spec, root = as_spec(spec), Path(root)
    files = {} if is_drawn(spec) else _present_files(spec, root)
    _verify_pinned(spec, files, root)
    parsed = parse(spec, files)
    checksum = _definition_checksum(spec) if is_drawn(spec) else _content_checksum(spec.task, parsed)
    for array in (parsed.X, parsed.y):
        array.flags.writeable = False
    return Dataset(spec.name, spec.task, parsed.X, parsed.y, checksum, dict(parsed.facts), parsed.arrangement)


def _present_files(spec: DatasetConfig, root: Path) -> dict[str, Path]:
    """The files to read, by name; a user's own test rows as `TEST`. Raises UserError if one is missing."""
    own = {name: spec.options.get(name) for name in ("path", "test")} if spec.loader == "table" else {}
    files = dict[str, Path]()
    if spec.files:
        found = find_files(spec, root)
        if found.state != "ready":
            raise UserError(f"dataset '{spec.name}' is {found.state}: {how_to_get(spec, found, root)}")
        files, own["path"] = found.best.files, None
    elif not own["path"]:
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
    for option, typed in ((option, typed) for option, typed in own.items() if typed):
        path = (root if spec.files else Path()) / Path(str(typed)).expanduser()
        if not os.path.isfile(path):  # unlike `Path.is_file`, also of a name that no file can have
            raise UserError(f"csv.{option}={typed}: there is no such file")
        files = files | {TEST if option == "test" else path.name: path}
    return files


def _verify_pinned(spec: DatasetConfig, files: Mapping[str, Path], root: Path) -> int:
    """How many files have a published checksum, which is compared. Raises UserError for a file that has another."""
    pinned = [e for e in spec.files if e.pinned and e.name in files and (e.sha256 or e.git_blob)]
    for entry in pinned:
        if problem := mismatch(entry, files[entry.name]):
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")
    return len(pinned)


def _definition_checksum(spec: DatasetConfig) -> str:
    definition = {"name": spec.name, "loader": [spec.loader, DRAWN_VERSION], "options": spec.options}
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def _content_checksum(task: str, parsed: Parsed) -> str:
    """Hash of the task and the values, and of what rows are divided by: the same for every file format that a dataset
    can be read from."""
    digest = hashlib.sha256(json.dumps([task, parsed.X.shape]).encode())
    by = parsed.arrangement and parsed.arrangement.by
    for array in (parsed.X, parsed.y) if by is None else (parsed.X, parsed.y, by):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def dataset_status(spec: DatasetConfig, root: Path) -> dict[str, Any]:
    """A row of the list: what the dataset is, the `state` of its files, the `folders` where they are expected, and in
    `detail` notes, or what to do."""
    found, detail = find_files(spec, root), spec.note or ""
    if found.state in ("missing", "partial"):
        others = " and ".join(stand_ins(spec.name))
        detail = how_to_get(spec, found, root) + (f"; {others} may stand in" if others else "")
    places = (f"package {e.package}" if e.package else str((root / e.name).parent) for e in spec.files)
    about = {name: getattr(spec, name) for name in ("name", "task", "rows", "features", "M")}
    return about | {"state": found.state, "folders": list(dict.fromkeys(places)), "detail": detail}


def verify(spec: DatasetConfig, root: Path) -> tuple[bool | None, str]:
    """Hashes every raw file and parses the dataset with all checks: whether all is sound (None: there are no files to
    check), and what was seen."""
    found = find_files(spec, root)
    if found.state == "missing":
        return None, "no files"
    try:
        verified = f"{counted(_verify_pinned(spec, found.present, root), 'checksum')} verified; " * bool(found.present)
        if found.state == "partial":
            return True, f"{verified}incomplete, so not parsed"
        rows, features = parse(spec, found.best.files).X.shape
    except UserError as error:
        return False, str(error)
    return True, f"{verified}{rows} x {features} {'drawn' if found.state == 'drawn' else 'parsed'}, checks pass"
