"""A dataset in memory, and `load`, which reads one from raw files or from the cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.data import cache
from dlmexp.data.arrangement import Arrangement
from dlmexp.data.checks import check
from dlmexp.data.parsers.registry import TEST, Loader, Parsed, loader_of
from dlmexp.data.raw_files import data_command, find_files, how_to_get, mismatch
from dlmexp.data.schema import Schema
from dlmexp.data.spec import DatasetSpec, Task, as_spec
from dlmexp.errors import UserError


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation; the arrays are read-only.

    `checksum` identifies the values (for drawn data: the definition they are drawn from), whatever the file format.
    `facts` are extra information to show: names of features, parts that were read. `arrangement` says how a user wants
    the rows divided; None: as the task's split does.
    """

    name: str
    task: Task
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    checksum: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement | None = None

    @property
    def schema(self) -> Schema:
        """Its columns by name; x1, x2, ... and y where the files name none."""
        if (known := self.facts.get("schema")) is not None:
            return msgspec.convert(known, Schema)
        names = self.facts.get("features", ())
        return Schema.plain(names if len(names) == self.X.shape[1] else self.X.shape[1], self.task)


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetSpec, a config node or a dict), from the data root `root`.

    Parsed and checked the first time, memory-mapped from the cache afterwards. Raises UserError if files are missing
    or fail a check.
    """
    spec, root = as_spec(spec), Path(root)
    loader = loader_of(spec)
    if loader.drawn:
        definition = {"name": spec.name, "loader": [spec.loader, loader.version], "options": dict(spec.options)}
        return _dataset(spec, parse(spec, loader, {}), cache.definition_checksum(definition))
    files = present_files(spec, root)
    cached = find_cached(spec, loader, files, root) if loader.cached else None
    if cached is not None:
        X, y, about = cached
        return _dataset(spec, Parsed(X, y, about.facts), about.checksum)
    verify_pinned(spec, files, root)
    parsed = parse(spec, loader, files)
    checksum = cache.content_checksum(spec.task, parsed.X, parsed.y, parsed.arrangement and parsed.arrangement.by)
    if loader.cached:
        folders = cache.cache_folders(next(iter(files.values())), root)
        cache.store(folders, cache_name(spec, loader, files), parsed.X, parsed.y, checksum, parsed.facts)
    return _dataset(spec, parsed, checksum)


def find_cached(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path], root: Path) -> cache.Entry | None:
    """The arrays that were parsed from these very files before."""
    return cache.find(cache.cache_folders(next(iter(files.values())), root), cache_name(spec, loader, files))


def present_files(spec: DatasetSpec, root: Path) -> dict[str, Path]:
    """The files to read, by name; a user's own test rows as `TEST`. Raises UserError if one is missing."""
    if spec.loader == "table" and not spec.files:
        if not spec.options.get("path"):
            raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
        files = {str(spec.options["path"]): _own_file(Path(), "path", spec)}
        return files | ({TEST: _own_file(Path(), "test", spec)} if spec.options.get("test") else {})
    found = find_files(spec, root)
    if found.state != "ready":
        raise UserError(f"dataset '{spec.name}' is {found.state}: {how_to_get(spec, found, root)}")
    own_test = spec.loader == "table" and spec.options.get("test")
    return found.files | ({TEST: _own_file(root, "test", spec)} if own_test else {})


def _own_file(folder: Path, option: str, spec: DatasetSpec) -> Path:
    given = spec.options[option]
    path = folder / Path(str(given)).expanduser()
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # a name that no file can have
        pass
    raise UserError(f"csv.{option}={given}: there is no such file")


def verify_pinned(spec: DatasetSpec, files: Mapping[str, Path], root: Path) -> int:
    """How many files have a published checksum, which is compared. Raises UserError for a file that has another."""
    pinned = [e for e in spec.files if e.pinned and e.name in files and (e.sha256 or e.git_blob or e.size)]
    for entry in pinned:
        if problem := mismatch(entry, files[entry.name]):
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")
    return len(pinned)


def cache_name(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> str:
    """Name of the cache entry: a hash of all that affects the parsed arrays; raw files by size and time of change."""
    about = {name: path.stat() for name, path in files.items()}
    identity = {
        "loader": [spec.loader, loader.version],
        "expected": [spec.task, spec.rows, spec.features],
        "options": {key: value for key, value in spec.options.items() if key not in ("path", "by_task")},
        "files": {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in about.items()},
        "pinned": [[entry.name, entry.sha256, entry.git_blob] for entry in spec.files if entry.pinned],
    }
    return f"{Path(spec.name).name}-{cache.definition_checksum(identity)[:16]}"


def parse(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> Parsed:
    """Parses the raw files and checks the arrays."""
    parsed = loader.read(spec, files)
    check(parsed, spec)
    return parsed


def _dataset(spec: DatasetSpec, parsed: Parsed, checksum: str) -> Dataset:
    X, y = np.asarray(parsed.X), np.asarray(parsed.y)  # no np.memmap
    for array in (X, y):
        array.flags.writeable = False
    return Dataset(spec.name, spec.task, X, y, checksum, dict(parsed.facts), parsed.arrangement)
