"""A dataset in memory, and how to get one: `load(spec, root)`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dlmexp.data import cache
from dlmexp.data.checks import check
from dlmexp.data.checksums import mismatch, remembered_sha256
from dlmexp.data.parsers.registry import Loader, Parsed, loader_of
from dlmexp.data.places import advice, cache_folders, locate
from dlmexp.data.spec import DatasetSpec, Task, as_spec
from dlmexp.errors import UserError


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation; the arrays are read-only.

    `checksum` identifies the values (or, for drawn data, the definition they were drawn from), not the file format.
    `facts` holds what is worth telling: names of features, parts that were read.
    """

    name: str
    task: Task
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    checksum: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetSpec, a config node or a dict), from the data root `root`.

    Parsed and checked the first time, mapped from a cache afterwards. Raises UserError when files are missing or are
    not what they should be.
    """
    spec = as_spec(spec)
    loader = loader_of(spec)
    if loader.drawn:
        return _drawn(spec, loader)
    root = Path(root)
    files = raw_files(spec, root)
    folders = cache_folders(next(iter(files.values())), root)
    entry = cache_entry(spec, loader, files, root)
    known = cache.find(folders, entry)
    if known is None:
        parsed = parse(spec, loader, files)
        facts = dict(parsed.facts)
        about = {"checksum": cache.content_checksum(spec.task, parsed.X, parsed.y), "facts": facts}
        cache.store(folders, entry, parsed.X, parsed.y, about)
        known = cache.find(folders, entry) or (parsed.X, parsed.y, about)
    X, y, about = known
    return _frozen(spec, X, y, about["checksum"], about["facts"])


def raw_files(spec: DatasetSpec, root: Path) -> dict[str, Path]:
    """The files to read, by name; a pinned file with another checksum than the published one is refused."""
    if spec.loader == "table":
        return _user_table(spec)
    found = locate(spec, root)
    if found.state != "ready":
        raise UserError(f"dataset '{spec.name}' is {found.state}: {advice(spec, found, root)}")
    for entry in spec.files:
        path = found.files.get(entry.name)
        if path is not None and entry.pinned and (problem := mismatch(entry, path, remembered_sha256(path, root))):
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run 'dlmexp data fetch {spec.name}'")
    return found.files


def cache_entry(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path], root: Path) -> str:
    """Name of the cache entry: everything that decides what parsing gives, the raw files by their checksums."""
    options = {key: value for key, value in spec.options.items() if key not in ("path", "by_task")}
    decides = {
        "loader": [spec.loader, loader.version],
        "expected": [spec.task, spec.rows, spec.features],
        "options": options,
        "files": {name: remembered_sha256(path, root) for name, path in files.items()},
    }
    return f"{Path(spec.name).name}-{cache.definition_checksum(decides)[:16]}"


def parse(spec: DatasetSpec, loader: Loader, files: Mapping[str, Path]) -> Parsed:
    """Reads the raw files and checks what came out."""
    parsed = loader.read(spec, files)
    check(parsed, spec)
    return parsed


def _drawn(spec: DatasetSpec, loader: Loader) -> Dataset:
    parsed = parse(spec, loader, {})
    definition = {"name": spec.name, "loader": [spec.loader, loader.version], "options": dict(spec.options)}
    return _frozen(spec, parsed.X, parsed.y, cache.definition_checksum(definition), parsed.facts)


def _user_table(spec: DatasetSpec) -> dict[str, Path]:
    given = spec.options.get("path")
    if not given:
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=regression|binary|count")
    path = Path(given).expanduser()
    if not path.is_file():
        raise UserError(f"csv.path={given}: there is no such file")
    return {path.name: path}


def _frozen(spec: DatasetSpec, X: np.ndarray, y: np.ndarray, checksum: str, facts: Mapping[str, Any]) -> Dataset:
    X, y = np.asarray(X), np.asarray(y)  # plain arrays, also where they are mapped from disk
    for array in (X, y):
        array.flags.writeable = False
    return Dataset(spec.name, spec.task, X, y, checksum, dict(facts))
