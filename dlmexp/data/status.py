"""Which datasets are available (`dlmexp data list`), and whether their files are sound (`dlmexp data check`)."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlmexp.catalogue import stand_ins
from dlmexp.console import counted
from dlmexp.data import cache
from dlmexp.data.dataset import cache_name, find_cached, load, parse, verify_pinned
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

    def row(state: Availability, *notes: str | None, shape: tuple[int | None, int | None]) -> DatasetStatus:
        places = (f"package {e.package}" if e.package else str((root / e.name).parent) for e in spec.files)
        detail = "; ".join(filter(None, notes))
        return DatasetStatus(spec.name, spec.task, *shape, spec.M, state, tuple(dict.fromkeys(places)), detail)

    expected, loader = (spec.rows, spec.features), loader_of(spec)
    if loader.drawn:
        return row("drawn", spec.note, shape=expected)
    found = find_files(spec, root)
    if found.state != "ready":
        others = stand_ins(spec.name)
        advice = f"{' and '.join(others)} may stand in" if others else None
        return row(found.state, how_to_get(spec, found, root), advice, shape=expected)
    try:
        if sum(path.stat().st_size for path in found.files.values()) <= MAX_PARSED_BYTES:
            data = load(spec, root)
            shape, facts = data.X.shape, data.facts
        elif cached := find_cached(spec, loader, found.files, root):
            shape, facts = cached[0].shape, cached[2].facts
        else:
            return row("ready", spec.note, "not read yet", shape=expected)
    except UserError as error:
        return row("partial", str(error), shape=expected)
    notes = [spec.note]
    if parts := facts.get("parts"):
        notes.append(f"{counted(len(parts), 'part')}: " + ", ".join(f"{name} {rows}" for name, rows in parts.items()))
    notes += [f"direction {facts['direction']}"] if "direction" in facts else []
    notes += [f"dirs: {', '.join(facts['dirs'])}"] if "dirs" in facts else []
    return row("ready", *notes, shape=(shape[0], shape[1]))


@dataclass(frozen=True)
class CheckResult:
    """`ok` is None if the dataset has no files to check."""

    name: str
    ok: bool | None
    detail: str


def verify(spec: DatasetSpec, root: Path) -> CheckResult:
    """Hashes every raw file, parses the dataset with all checks, and compares the cached arrays with the result."""
    loader = loader_of(spec)
    found = find_files(spec, root)
    if not loader.drawn and not found.present:
        return CheckResult(spec.name, None, "no files")
    try:
        verified = f"{counted(verify_pinned(spec, found.present, root), 'checksum')} verified"
        if not loader.drawn and found.state != "ready":
            return CheckResult(spec.name, True, f"{verified}; incomplete, so not parsed")
        parsed = parse(spec, loader, found.files)
    except UserError as error:
        return CheckResult(spec.name, False, str(error))
    shape = f"{parsed.X.shape[0]} x {parsed.X.shape[1]}"
    if loader.drawn:
        return CheckResult(spec.name, True, f"{shape} drawn, checks pass")
    name = cache_name(spec, loader, found.files)
    for folder in cache.cache_folders(next(iter(found.files.values())), root):
        if not (folder / name).exists():
            continue
        kept = cache.find([folder], name)
        same = kept and np.array_equal(kept[0], parsed.X, equal_nan=True) and np.array_equal(kept[1], parsed.y)
        if not same:
            shutil.rmtree(folder / name, ignore_errors=True)
            problem = f"{folder / name} differs from what the raw files contain"
            return CheckResult(spec.name, False, f"cached arrays were wrong and have been removed: {problem}")
    return CheckResult(spec.name, True, f"{verified}; {shape} parsed, checks pass")
