"""What there is: one row per dataset for `dlmexp data list`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlmexp.catalogue import stand_ins
from dlmexp.data import cache
from dlmexp.data.dataset import cache_entry, load, raw_files
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.places import State, advice, cache_folders, locate
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError

QUICK = 1 << 25
"""Raw files up to this many bytes in all are parsed to see whether they are sound, larger ones are not."""


@dataclass(frozen=True)
class Status:
    """State of one dataset; `looked_in` lists the folders, `detail` says what is there or what to do."""

    name: str
    task: str
    rows: int | None
    features: int | None
    M: int | None
    state: State
    looked_in: tuple[str, ...]
    detail: str


def status(spec: DatasetSpec, root: Path) -> Status:
    """Looks for a dataset's files, and reads them where that is quick."""
    if loader_of(spec).drawn:
        return _row(spec, "drawn", (), f"{spec.note}")
    found = locate(spec, root)
    looked_in = tuple(dict.fromkeys(_folder(entry.name, entry.package, root) for entry in spec.files))
    if found.state != "ready":
        instead = stand_ins(spec.name)
        also = f"; {' and '.join(instead)} may stand in" if instead else ""
        return _row(spec, found.state, looked_in, advice(spec, found, root) + also)
    try:
        known = _quick_look(spec, root)
    except UserError as error:
        return _row(spec, "partial", looked_in, str(error))
    if known is None:
        return _row(spec, "ready", looked_in, "; ".join(filter(None, [spec.note, "not read yet"])))
    shape, facts = known
    detail = "; ".join(filter(None, [spec.note, *_told(facts)]))
    return _row(spec, "ready", looked_in, detail, rows=shape[0], features=shape[1])


def _quick_look(spec: DatasetSpec, root: Path) -> tuple[tuple[int, int], Mapping[str, Any]] | None:
    files = raw_files(spec, root)
    if sum(path.stat().st_size for path in files.values()) <= QUICK:
        dataset = load(spec, root)
        return dataset.X.shape, dataset.facts
    folders = cache_folders(next(iter(files.values())), root)
    cached = cache.find(folders, cache_entry(spec, loader_of(spec), files, root))
    return None if cached is None else (cached[0].shape, cached[2]["facts"])


def _told(facts: Mapping[str, Any]) -> list[str]:
    told = []
    if parts := facts.get("parts"):
        told.append(f"{len(parts)} parts: " + ", ".join(f"{name} {rows}" for name, rows in parts.items()))
    if "direction" in facts:
        told.append(f"direction {facts['direction']}")
    if "dirs" in facts:
        told.append(f"dirs: {', '.join(facts['dirs'])}")
    return told


def _folder(name: str, package: str | None, root: Path) -> str:
    return f"package {package}" if package else str((root / name).parent)


def _row(
    spec: DatasetSpec,
    state: State,
    looked_in: tuple[str, ...],
    detail: str,
    rows: int | None = None,
    features: int | None = None,
) -> Status:
    return Status(spec.name, spec.task, rows or spec.rows, features or spec.features, spec.M, state, looked_in, detail)
