"""A dataset in memory: `load` reads one from raw files or from the cache. Which datasets are available (`dlmexp data
list`), and whether their files are sound (`dlmexp data check`)."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.atomic import replacing
from dlmexp.catalogue import stand_ins
from dlmexp.console import counted
from dlmexp.data.checks import check
from dlmexp.data.parsers.registry import Loader, Parsed, loader_of
from dlmexp.data.raw_files import Availability, data_command, find_files, how_to_get, mismatch
from dlmexp.data.schema import Schema
from dlmexp.data.spec import TEST, DatasetSpec, Task, as_spec
from dlmexp.data.splits import Arrangement
from dlmexp.errors import Unreadable, UserError
from dlmexp.paths import user_cache
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.json_text import json_value

log = logging.getLogger(__name__)
MAX_PARSED_BYTES = 1 << 25  # of raw files that are parsed to list them; larger ones are not


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation; the arrays are read-only."""

    name: str
    task: Task
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    checksum: str  # of the values, whatever the file format, or of the definition they are drawn from
    facts: Mapping[str, Any] = field(default_factory=dict)  # to show: names of features, parts that were read
    arrangement: Arrangement | None = None  # how a user wants the rows divided; None: as the task's split does

    @property
    def schema(self) -> Schema:
        """Its columns by name; x1, x2, ... and y where the files name none."""
        if (known := self.facts.get("schema")) is not None:
            return msgspec.convert(known, Schema)
        names = self.facts.get("features", ())
        return Schema.plain(names if len(names) == self.X.shape[1] else self.X.shape[1], self.task)


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetSpec, a config node or a dict), from the data root `root`; parsed and
    checked the first time, read from the cache afterwards. UserError if files are missing or fail a check."""
    spec, root = as_spec(spec), Path(root)
    loader = loader_of(spec)
    if loader.drawn:
        definition = {"name": spec.name, "loader": [spec.loader, loader.version], "options": dict(spec.options)}
        return _dataset(spec, parse(spec, loader, {}), _json_checksum(definition))
    files = present_files(spec, root)
    cached = cache_path(spec, loader, files) if loader.cached else None
    if cached and (data := read_cache(spec, cached)) is not None:
        return data
    verify_pinned(spec, files, root)
    parsed = parse(spec, loader, files)
    data = _dataset(spec, parsed, content_checksum(spec.task, parsed))
    if cached:
        _write_cache(data, cached)
    return data


def parse(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> Parsed:
    """Parses the raw files and checks the arrays."""
    parsed = loader.read(spec, files)
    check(parsed, spec)
    return parsed


def present_files(spec: DatasetSpec, root: Path) -> dict[str, Path]:
    """The files to read, by name; a user's own test rows as `TEST`. Raises UserError if one is missing."""
    options = spec.options if spec.loader == "table" else {}
    if spec.loader == "table" and not spec.files:
        if not options.get("path"):
            raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
        files, root = {str(options["path"]): _own_file(Path(), "path", options)}, Path()
    else:
        found = find_files(spec, root)
        if found.state != "ready":
            raise UserError(f"dataset '{spec.name}' is {found.state}: {how_to_get(spec, found, root)}")
        files = found.files
    return files | ({TEST: _own_file(root, "test", options)} if options.get("test") else {})


def _own_file(folder: Path, option: str, options: Mapping[str, Any]) -> Path:
    path = folder / Path(str(options[option])).expanduser()
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # a name that no file can have
        pass
    raise UserError(f"csv.{option}={options[option]}: there is no such file")


def verify_pinned(spec: DatasetSpec, files: Mapping[str, Path], root: Path) -> int:
    """How many files have a published checksum, which is compared. Raises UserError for a file that has another."""
    pinned = [e for e in spec.files if e.pinned and e.name in files and (e.sha256 or e.git_blob or e.size)]
    for entry in pinned:
        if problem := mismatch(entry, files[entry.name]):
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")
    return len(pinned)


def content_checksum(task: str, parsed: Parsed) -> str:
    """Hash of the task and the values, and of what rows are divided by: the same for every file format that a dataset
    can be read from."""
    digest = hashlib.sha256(json.dumps([task, parsed.X.shape]).encode())
    by = parsed.arrangement and parsed.arrangement.by
    for array in (parsed.X, parsed.y) if by is None else (parsed.X, parsed.y, by):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def _json_checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def cache_path(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> Path:
    """The file in the user's cache for what these files contain, named by a hash of all that affects the parsed arrays;
    raw files by size and time of change."""
    about = {path.resolve().as_posix(): path.stat() for path in files.values()}
    identity = {
        "loader": [spec.loader, loader.version],
        "expected": [spec.task, spec.rows, spec.features],
        "options": {key: value for key, value in spec.options.items() if key not in ("path", "by_task")},
        "files": {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in about.items()},
        "pinned": [[entry.name, entry.sha256, entry.git_blob] for entry in spec.files if entry.pinned],
    }
    return user_cache() / "data" / f"{Path(spec.name).name}-{_json_checksum(identity)[:16]}.npz"


def read_cache(spec: DatasetSpec, path: Path) -> Dataset | None:
    """The dataset that was kept in a file of the cache; None if there is none, or if it is damaged."""
    try:
        arrays = read_npz(path)
        about = json_value(arrays["about"].tobytes())
        return _dataset(spec, Parsed(arrays["X"], arrays["y"], about["facts"]), about["checksum"])
    except (OSError, Unreadable, KeyError, TypeError):
        return None


def _write_cache(data: Dataset, path: Path) -> None:
    """Keeps parsed arrays for the next time; where that can't be done, parsing is repeated."""
    about = json.dumps({"checksum": data.checksum, "facts": dict(data.facts)}).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, X=data.X, y=data.y, about=np.frombuffer(about, dtype=np.uint8))
    except OSError as error:
        log.warning("could not cache parsed arrays in %s (%s); parsing will be repeated", path.parent, error)


def _dataset(spec: DatasetSpec, parsed: Parsed, checksum: str) -> Dataset:
    for array in (parsed.X, parsed.y):
        array.flags.writeable = False
    return Dataset(spec.name, spec.task, parsed.X, parsed.y, checksum, dict(parsed.facts), parsed.arrangement)


@dataclass(frozen=True)
class DatasetStatus:
    """One row of the list. `folders`: where the files are expected. `detail`: notes, or what to do."""

    name: str
    task: str
    rows: int | None
    features: int | None
    M: int | None
    state: Availability
    folders: tuple[str, ...]
    detail: str


def dataset_status(spec: DatasetSpec, root: Path) -> DatasetStatus:
    """Searches for a dataset's files, and parses them if they are small."""
    rows, features, notes = spec.rows, spec.features, [spec.note]
    loader, found = loader_of(spec), find_files(spec, root)
    state: Availability = "drawn" if loader.drawn else found.state
    if state == "ready":
        try:
            small = sum(path.stat().st_size for path in found.files.values()) <= MAX_PARSED_BYTES
            data = load(spec, root) if small else read_cache(spec, cache_path(spec, loader, found.files))
            rows, features = (rows, features) if data is None else data.X.shape
            notes += ["not read yet"] if data is None else _notes(data.facts)
        except UserError as error:
            state, notes = "partial", [str(error)]
    elif state != "drawn":
        others = " and ".join(stand_ins(spec.name))
        notes = [how_to_get(spec, found, root), f"{others} may stand in" if others else None]
    places = (f"package {e.package}" if e.package else str((root / e.name).parent) for e in spec.files)
    detail = "; ".join(filter(None, notes))
    return DatasetStatus(spec.name, spec.task, rows, features, spec.M, state, tuple(dict.fromkeys(places)), detail)


def _notes(facts: Mapping[str, Any]) -> list[str]:
    parts = facts.get("parts", {})
    said = [f"{counted(len(parts), 'part')}: " + ", ".join(f"{k} {v}" for k, v in parts.items())] if parts else []
    said += [f"direction {facts['direction']}"] if "direction" in facts else []
    return said + ([f"dirs: {', '.join(facts['dirs'])}"] if "dirs" in facts else [])


def verify(spec: DatasetSpec, root: Path) -> tuple[bool | None, str]:
    """Hashes every raw file, parses the dataset with all checks, and compares what the cache has of it: whether all is
    sound (None: there are no files to check), and what was seen."""
    loader, found = loader_of(spec), find_files(spec, root)
    if not loader.drawn and not found.present:
        return None, "no files"
    try:
        verified = f"{counted(verify_pinned(spec, found.present, root), 'checksum')} verified"
        if not loader.drawn and found.state != "ready":
            return True, f"{verified}; incomplete, so not parsed"
        parsed = parse(spec, loader, found.files)
    except UserError as error:
        return False, str(error)
    shape = f"{parsed.X.shape[0]} x {parsed.X.shape[1]}"
    if loader.drawn:
        return True, f"{shape} drawn, checks pass"
    path = cache_path(spec, loader, found.files)
    kept = read_cache(spec, path)
    expected = content_checksum(spec.task, parsed)
    if path.exists() and (kept is None or content_checksum(spec.task, Parsed(kept.X, kept.y)) != expected):
        path.unlink()
        return False, f"cached arrays were wrong and have been removed: {path} differs from what the raw files contain"
    return True, f"{verified}; {shape} parsed, checks pass"
