"""Raw files of a dataset: which are present, whether they are the published ones, and how a user can get the others."""

import hashlib
import importlib.util
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.paths import data_root

Availability = Literal["ready", "partial", "missing", "drawn"]
"""All files present, some present, none present; or drawn from a definition, without files."""


@dataclass(frozen=True)
class FoundFiles:
    """Files of a dataset, paths by name: `files` of the first complete group, which is the one to read; all that are
    `present`; and those `missing` in the group closest to complete."""

    state: Availability
    files: dict[str, Path]
    present: dict[str, Path]
    missing: tuple[FileSpec, ...]


def find_files(spec: DatasetSpec, root: Path) -> FoundFiles:
    """Searches the data root for a dataset's files, one group after another in the order of the spec."""
    groups = [find_group(entries, root) for entries in file_groups(spec)]
    present = {name: path for found, _ in groups for name, path in found.items()}
    for found, missing in groups:
        if not missing:
            return FoundFiles("ready", found, present, ())
    closest = min((missing for _, missing in groups), key=len, default=())
    return FoundFiles("partial" if present else "missing", {}, present, closest)


def file_groups(spec: DatasetSpec) -> list[list[FileSpec]]:
    """The files of a spec by group. Groups are alternatives: any complete one is enough."""
    names = dict.fromkeys(entry.group for entry in spec.files)
    return [[entry for entry in spec.files if entry.group == name] for name in names]


def find_group(
    entries: list[FileSpec], root: Path, staged: Mapping[str, Path] | None = None
) -> tuple[dict[str, Path], tuple[FileSpec, ...]]:
    """The files of one group that are present, and those that are missing. Files in `staged` (by name) are used instead
    of those in the data root."""
    matches = [_matching_paths(entry, root, staged or {}) for entry in entries]
    found = {name: path for match in matches for name, path in sorted(match.items())}
    if not found:
        return {}, tuple(entries)
    return found, tuple(e for e, match in zip(entries, matches, strict=True) if not match and not e.optional)


def how_to_get(spec: DatasetSpec, found: FoundFiles, root: Path) -> str:
    """A message for a dataset that is not ready: what is missing, and the commands and web pages to get it."""
    named = [[e for e in entries if e.package is None and "*" not in e.name] for entries in file_groups(spec)]
    in_root = [entries for entries in named if entries]
    joined = [(" or " if entries[0].optional else " + ").join(e.name for e in entries) for entries in in_root]
    missing = [entry for entry in found.missing if entry.package is None and "*" not in entry.name]
    commands = [f"pip install {package}" for package in sorted({e.package for e in spec.files if e.package})]
    if any(all(entry.url for entry in entries) for entries in in_root):
        commands.append(f"run `{data_command(f'fetch {spec.name}', root)}`")
    pages = sorted({entry.page for entries in in_root for entry in entries if entry.page})
    source = f" with files from {', '.join(pages)}" if pages else ""
    commands.append(f"`{data_command(f'import {spec.name} FILE...', root)}`{source}")
    if found.present:
        problem = f"has {', '.join(found.present)} but not {', '.join(entry.name for entry in missing)}"
    else:
        problem = f"has no {' or '.join(joined)}"
    return f"{root} {problem}: {', or '.join(commands)}"


def data_command(words: str, root: Path) -> str:
    """`dlmexp data fetch NAME`, with the data root where it is not the one that commands use anyway."""
    return f"dlmexp data {words}" + ("" if root == data_root() else f" --data-root {shlex.quote(root.as_posix())}")


def mismatch(entry: FileSpec, path: Path) -> str | None:
    """How a file differs from its spec, by size or checksum; None if it does not."""
    size = path.stat().st_size
    if entry.size is not None and size != entry.size:
        return f"{path} has {size} bytes, the published file has {entry.size}"
    if entry.sha256 is not None and (found := _digest(path, "sha256")) != entry.sha256:
        return f"{path} has SHA-256 {found}, the published file has {entry.sha256}"
    # git hashes a header with the size, then the bytes.
    if entry.git_blob is not None and (found := _digest(path, "sha1", f"blob {size}\0".encode())) != entry.git_blob:
        return f"{path} has git blob hash {found}, the published file has {entry.git_blob}"
    return None


def is_writable(folder: Path) -> bool:
    """Whether `folder` can be written to, or created. A folder without any write bit is read-only for root too."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return existing.is_dir() and os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def _digest(path: Path, name: str, header: bytes = b"") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(name, header, usedforsecurity=False)).hexdigest()


def _matching_paths(entry: FileSpec, root: Path, staged: Mapping[str, Path]) -> dict[str, Path]:
    if "*" in entry.name:
        found = {path.relative_to(root).as_posix(): path for path in root.glob(entry.name) if path.is_file()}
        return found | {name: path for name, path in staged.items() if fnmatch(name, entry.name)}
    folder = root
    if entry.package is not None:
        package = importlib.util.find_spec(entry.package)
        folder = Path(str(package.origin)).parent if package else Path("/none")
    path = staged.get(entry.name, folder / entry.name)
    return {entry.name: path} if path.is_file() else {}
