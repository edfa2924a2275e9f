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
from dlmexp.data.checksums import cached_sha256, mismatch
from dlmexp.data.folders import cache_folders
from dlmexp.data.parsers.registry import TEST, Loader, Parsed, loader_of
from dlmexp.data.raw_files import data_command, find_files, how_to_get
from dlmexp.data.schema import Schema, plain_schema
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
        return plain_schema(names if len(names) == self.X.shape[1] else self.X.shape[1], self.task)


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetSpec, a config node or a dict), from the data root `root`.

    Parsed and checked the first time, memory-mapped from the cache afterwards. Raises UserError if files are missing
    or fail a check.
    """
    spec = as_spec(spec)
    loader = loader_of(spec)
    if loader.drawn:
        return _draw(spec, loader)
    root = Path(root)
    files = verified_files(spec, root)
    if not loader.cached:
        parsed = parse(spec, loader, files)
        by = parsed.arrangement.by if parsed.arrangement else None
        checksum = cache.content_checksum(spec.task, parsed.X, parsed.y, by)
        return _read_only(spec, parsed.X, parsed.y, checksum, parsed.facts, parsed.arrangement)
    folders = cache_folders(next(iter(files.values())), root)
    entry = cache_entry_name(spec, loader, files, root)
    cached = cache.find(folders, entry)
    if cached is None:
        parsed = parse(spec, loader, files)
        facts = dict(parsed.facts)
        metadata = {"checksum": cache.content_checksum(spec.task, parsed.X, parsed.y), "facts": facts}
        cache.store(folders, entry, parsed.X, parsed.y, metadata)
        cached = cache.find(folders, entry) or (parsed.X, parsed.y, metadata)
    X, y, metadata = cached
    return _read_only(spec, X, y, metadata["checksum"], metadata["facts"])


def verified_files(spec: DatasetSpec, root: Path) -> dict[str, Path]:
    """The files to read, by name. Raises UserError if one is missing, or pinned and not the published one."""
    if spec.loader == "table" and not spec.files:
        return _user_table(spec)
    found = find_files(spec, root)
    if found.state != "ready":
        raise UserError(f"dataset '{spec.name}' is {found.state}: {how_to_get(spec, found, root)}")
    for entry in spec.files:
        path = found.files.get(entry.name)
        if path is not None and entry.pinned and (problem := mismatch(entry, path, cached_sha256(path, root))):
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")
    if spec.loader == "table" and spec.options.get("test"):
        return found.files | {TEST: _existing(root / str(spec.options["test"]), "test", spec.options["test"])}
    return found.files


def cache_entry_name(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path], root: Path) -> str:
    """Name of the cache entry: a hash of all that affects the parsed arrays, the raw files by their checksums."""
    options = {key: value for key, value in spec.options.items() if key not in ("path", "by_task")}
    identity = {
        "loader": [spec.loader, loader.version],
        "expected": [spec.task, spec.rows, spec.features],
        "options": options,
        "files": {name: cached_sha256(path, root) for name, path in files.items()},
    }
    return f"{Path(spec.name).name}-{cache.definition_checksum(identity)[:16]}"


def parse(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> Parsed:
    """Parses the raw files and checks the arrays."""
    parsed = loader.read(spec, files)
    check(parsed, spec)
    return parsed


def _draw(spec: DatasetSpec, loader: Loader) -> Dataset:
    parsed = parse(spec, loader, {})
    definition = {"name": spec.name, "loader": [spec.loader, loader.version], "options": dict(spec.options)}
    return _read_only(spec, parsed.X, parsed.y, cache.definition_checksum(definition), parsed.facts)


def _user_table(spec: DatasetSpec) -> dict[str, Path]:
    """The file that `csv.path` names, and the one with test rows that `csv.test` names."""
    if not spec.options.get("path"):
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=regression|binary|count")
    found = {}
    for name, option in ((str(spec.options["path"]), "path"), (TEST, "test")):
        given = spec.options.get(option)
        if not given:
            continue
        found[name] = _existing(Path(str(given)).expanduser(), option, given)
    return found


def _existing(path: Path, option: str, given: Any) -> Path:
    try:
        exists = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if not exists:
        raise UserError(f"csv.{option}={given}: there is no such file")
    return path


def _read_only(
    spec: DatasetSpec,
    X: np.ndarray,
    y: np.ndarray,
    checksum: str,
    facts: Mapping[str, Any],
    arrangement: Arrangement | None = None,
) -> Dataset:
    X, y = np.asarray(X), np.asarray(y)  # no np.memmap
    for array in (X, y):
        array.flags.writeable = False
    return Dataset(spec.name, spec.task, X, y, checksum, dict(facts), arrangement)
