"""Which datasets are available: one row per dataset for `dlmexp data list`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlmexp.catalogue import stand_ins
from dlmexp.console import counted
from dlmexp.data import cache
from dlmexp.data.dataset import cache_entry_name, load, verified_files
from dlmexp.data.folders import cache_folders
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.raw_files import Availability, find_files, how_to_get
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError

MAX_PARSED_BYTES = 1 << 25
"""Raw files of at most this size in total are parsed to list them; larger ones are not."""


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
    if loader_of(spec).drawn:
        return _row(spec, "drawn", (), f"{spec.note}")
    found = find_files(spec, root)
    folders = tuple(dict.fromkeys(_folder(entry.name, entry.package, root) for entry in spec.files))
    if found.state != "ready":
        available = stand_ins(spec.name)
        suggestion = f"; {' and '.join(available)} may stand in" if available else ""
        return _row(spec, found.state, folders, how_to_get(spec, found, root) + suggestion)
    try:
        known = _shape_and_facts(spec, root)
    except UserError as error:
        return _row(spec, "partial", folders, str(error))
    if known is None:
        return _row(spec, "ready", folders, "; ".join(filter(None, [spec.note, "not read yet"])))
    shape, facts = known
    detail = "; ".join(filter(None, [spec.note, *_describe(facts)]))
    return _row(spec, "ready", folders, detail, rows=shape[0], features=shape[1])


def _shape_and_facts(spec: DatasetSpec, root: Path) -> tuple[tuple[int, int], Mapping[str, Any]] | None:
    """(rows, features) and facts, parsed from small files or read from the cache; None for large files not cached."""
    files = verified_files(spec, root)
    if sum(path.stat().st_size for path in files.values()) <= MAX_PARSED_BYTES:
        dataset = load(spec, root)
        return dataset.X.shape, dataset.facts
    folders = cache_folders(next(iter(files.values())), root)
    cached = cache.find(folders, cache_entry_name(spec, loader_of(spec), files, root))
    return None if cached is None else (cached[0].shape, cached[2]["facts"])


def _describe(facts: Mapping[str, Any]) -> list[str]:
    texts = []
    if parts := facts.get("parts"):
        texts.append(f"{counted(len(parts), 'part')}: " + ", ".join(f"{name} {rows}" for name, rows in parts.items()))
    if "direction" in facts:
        texts.append(f"direction {facts['direction']}")
    if "dirs" in facts:
        texts.append(f"dirs: {', '.join(facts['dirs'])}")
    return texts


def _folder(name: str, package: str | None, root: Path) -> str:
    return f"package {package}" if package else str((root / name).parent)


def _row(
    spec: DatasetSpec,
    state: Availability,
    folders: tuple[str, ...],
    detail: str,
    rows: int | None = None,
    features: int | None = None,
) -> DatasetStatus:
    rows, features = rows or spec.rows, features or spec.features
    return DatasetStatus(spec.name, spec.task, rows, features, spec.M, state, folders, detail)
