"""Raw files of a dataset: which are there, whether they are the published ones, how to get others;
the dataset in them; downloads (by pooch) and imports. A file gets its final name in the data root
only after it was verified and parsed."""

import hashlib
import importlib.util
import json
import logging
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from dlmexp.common.atomic import is_writable
from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root
from dlmexp.common.reading.files import GIB, reading
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, FileSpec, as_spec, is_drawn, parse

MAX_BYTES = 8 * GIB
RETRIES, TIMEOUT = 3, 30.0  # further attempts; seconds without a byte
# the name under which a user's own file of test rows is given to the loader of tables
TEST = "test rows"
DRAWN_VERSION = (
    1  # part of the checksum of drawn data: increase it when other values are drawn than before
)


class FileGroup(NamedTuple):
    """Files that are read together. A dataset's groups are alternatives: any complete one is
    enough."""

    entries: list[FileSpec]
    files: dict[str, Path]  # present, by name
    missing: list[FileSpec]


class FoundFiles(NamedTuple):
    """The files of a dataset by group, and the group closest to complete, which is read if it
    is."""

    state: Literal[
        "ready", "partial", "missing", "drawn"
    ]  # all files present, some, none; or it needs none
    best: FileGroup
    groups: list[FileGroup]


def find_files(spec: DatasetConfig, *roots: Path) -> FoundFiles:
    """Which files of a dataset are in the data root; those in a further folder stand for others
    there."""
    groups, drawn = [], is_drawn(spec)
    for group in dict.fromkeys(entry.group for entry in spec.files):
        entries = [entry for entry in spec.files if entry.group == group]
        matches = [_matching_paths(entry, roots) for entry in entries]
        files = {name: path for match in matches for name, path in sorted(match.items())}
        groups.append(
            FileGroup(
                entries, files, [e for e, match in zip(entries, matches, strict=True) if not match]
            )
        )
    best = min(groups, key=lambda group: len(group.missing), default=FileGroup([], {}, []))
    some = "partial" if any(group.files for group in groups) else "missing"
    return FoundFiles(
        "drawn" if drawn else "ready" if groups and not best.missing else some, best, groups
    )


def _matching_paths(entry: FileSpec, roots: Sequence[Path]) -> dict[str, Path]:
    if entry.package:
        package = importlib.util.find_spec(entry.package)
        roots = [Path(str(package.origin)).parent] if package else []
    if "*" in entry.name:
        found = ((root, path) for root in roots for path in root.glob(entry.name) if path.is_file())
        return {path.relative_to(root).as_posix(): path for root, path in found}
    files = [root / entry.name for root in roots if (root / entry.name).is_file()]
    return {entry.name: files[-1]} if files else {}


def how_to_get(spec: DatasetConfig, found: FoundFiles, root: Path) -> str:
    """What a dataset that is not ready lacks, and the commands and web pages to get it."""
    commands = [
        f"pip install {package}" for package in sorted({e.package for e in spec.files if e.package})
    ]
    if any(all(entry.url for entry in group.entries) for group in found.groups):
        commands.append(f"run `{data_command(f'fetch {spec.name}', root)}`")
    pages = sorted({entry.page for entry in spec.files if entry.page})
    source = f" with files from {', '.join(pages)}" if pages else ""
    commands.append(f"`{data_command(f'import {spec.name} FILE...', root)}`{source}")
    return f"{root} has no {' and no '.join(e.name for e in found.best.missing)}: {', or '.join(commands)}"


def data_command(words: str, root: Path) -> str:
    """`dlmexp data fetch NAME`, with the data root where it is not the one that commands use
    anyway."""
    return f"dlmexp data {words}" + (
        "" if root == data_root() else f" --data-root {shlex.quote(root.as_posix())}"
    )


def mismatch(entry: FileSpec, path: Path) -> str | None:
    """How a file differs from its spec, by checksum; None if it does not."""
    blob = hashlib.sha1(
        f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False
    )  # git hashes it with the bytes
    for name, wanted, digest in (
        ("SHA-256", entry.sha256, hashlib.sha256()),
        ("git blob hash", entry.git_blob, blob),
    ):
        if wanted is not None:
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, lambda digest=digest: digest).hexdigest()
            if actual != wanted:
                return f"{path} has {name} {actual}, the published file has {wanted}"
    return None


def load(spec: Any, root: str | Path) -> Dataset:
    """The dataset that `spec` describes (a DatasetConfig, a config node or a dict), from the data
    root `root`, parsed and checked; its arrays are read-only. UserError if files are missing or
    fail a check."""
    spec, root = as_spec(spec), Path(root)
    files = {} if is_drawn(spec) else _present_files(spec, root)
    _verify_pinned(spec, files, root)
    parsed = parse(spec, files)
    for array in (parsed.X, parsed.y):
        array.flags.writeable = False
    return replace(parsed, name=spec.name, task=spec.task, checksum=_checksum(spec, parsed))


def _present_files(spec: DatasetConfig, root: Path) -> dict[str, Path]:
    """The files to read, by name; a user's own test rows as `TEST`. Raises UserError if one is
    missing."""
    files, typed = dict[str, Path](), spec.options if spec.loader == "table" else {}
    if spec.files:
        found = find_files(spec, root)
        if found.state != "ready":
            raise UserError(
                f"dataset '{spec.name}' is {found.state}: {how_to_get(spec, found, root)}"
            )
        files |= found.best.files
    elif not typed["path"]:
        raise UserError("dataset=csv needs a file: csv.path=FILE csv.target=COLUMN csv.task=TASK")
    for option in ("test",) if spec.files else ("path", "test"):
        if name := typed.get(option):
            path = (root if spec.files else Path()) / os.path.expanduser(str(name))
            if not os.path.isfile(
                path
            ):  # unlike `Path.is_file`, also of a name that no file can have
                raise UserError(f"csv.{option}={name}: there is no such file")
            files[TEST if option == "test" else path.name] = path
    return files


def _verify_pinned(spec: DatasetConfig, files: Mapping[str, Path], root: Path) -> None:
    """Raises UserError for a file that has another checksum than the published one."""
    for entry in (entry for entry in spec.files if entry.pinned and entry.name in files):
        if problem := mismatch(entry, files[entry.name]):
            fetch = data_command(f"fetch {spec.name}", root)
            raise UserError(f"dataset '{spec.name}': {problem}; remove it and run `{fetch}`")


def _checksum(spec: DatasetConfig, data: Dataset) -> str:
    """Hash of the task and the values, and of what rows are divided by: the same for every file
    format that a dataset can be read from. Of drawn data, that of the definition."""
    if is_drawn(spec):
        definition = {
            "name": spec.name,
            "loader": [spec.loader, DRAWN_VERSION],
            "options": spec.options,
        }
        return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
    digest = hashlib.sha256(json.dumps([spec.task, data.X.shape]).encode())
    by = data.arrangement.by
    for array in (data.X, data.y) if by is None else (data.X, data.y, by):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def verify(spec: DatasetConfig, root: Path) -> tuple[bool | None, str]:
    """Hashes every raw file and parses the dataset with all checks: whether all is sound (None:
    there are no files to check), and what was seen."""
    found = find_files(spec, root)
    if found.state == "missing":
        return None, "no files"
    try:
        _verify_pinned(
            spec, {name: path for group in found.groups for name, path in group.files.items()}, root
        )
        if found.state == "partial":
            return True, "incomplete, so not parsed"
        rows, features = parse(spec, found.best.files).X.shape
    except UserError as error:
        return False, str(error)
    return (
        True,
        f"{rows} x {features} {'drawn' if found.state == 'drawn' else 'parsed'}, checks pass",
    )


class _Bar:
    """A bar of rich's, that pooch moves; a download that does not end is refused."""

    def __init__(self, bars: Any, name: str):
        self.bars, self.task, self.total, self.done = bars, bars.add_task(name, total=None), 0, 0

    def update(self, amount: int) -> None:
        self.done += amount
        if max(self.done, self.total) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes: refused")
        self.bars.update(self.task, completed=self.done, total=self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


def fetch(spec: DatasetConfig, root: Path, bars: Any) -> list[Path]:
    """Downloads the files of a dataset that are missing or damaged; returns their paths (none if
    all were valid). Of files that are alternatives, the first that can be had. `bars` is rich's
    `Progress`."""
    found = find_files(spec, root)
    groups = [group.entries for group in found.groups if all(entry.url for entry in group.entries)]
    if found.state in ("ready", "drawn"):
        groups = [[entry for entry in found.best.entries if entry.url]]
    if not groups:
        raise UserError(
            f"dataset '{spec.name}' has no public address to fetch from: {how_to_get(spec, found, root)}"
        )
    problems = []
    for entries in groups:
        wanted = [
            e
            for e in entries
            if not (root / e.name).is_file() or (e.pinned and mismatch(e, root / e.name))
        ]
        if not wanted:
            return []
        try:
            with _incoming(spec, root) as folder:
                for entry in wanted:
                    _download(entry, folder, bars)
            return [root / entry.name for entry in wanted]
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def _download(entry: FileSpec, folder: Path, bars: Any) -> None:
    """Downloads a file from the first of its addresses that has it; errors that may pass are tried
    again after seconds. The file appears when it is complete and has its checksum."""
    import pooch  # noqa: TID251

    logging.getLogger("pooch").setLevel(logging.WARNING)
    known, problems = {entry.name: entry.sha256 and f"sha256:{entry.sha256}"}, []
    for url in filter(None, (entry.url, *entry.mirrors)):
        files = pooch.create(
            folder, "", registry=known, urls={entry.name: url}, retry_if_failed=RETRIES
        )
        by_http: Any = pooch.HTTPDownloader(
            progressbar=cast(Any, _Bar(bars, entry.name)), timeout=TIMEOUT
        )
        try:
            with reading(
                url, "could not be downloaded; is the address right, and is there a network here?"
            ):
                files.fetch(entry.name, downloader=by_http)
                if problem := mismatch(entry, folder / entry.name):
                    (folder / entry.name).unlink()
                    raise ValueError(f"not the expected file: {problem}")
            return
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def import_files(spec: DatasetConfig, root: Path, given: Sequence[Path]) -> list[Path]:
    """Copies a user's files to the data root; each is recognised by its name or checksum. Returns
    the copies."""
    if is_drawn(spec):
        raise UserError(f"dataset '{spec.name}' is drawn from its definition and needs no file")
    names = [_recognise(spec, path) for path in given]
    with _incoming(spec, root) as folder:
        for path, name in zip(given, names, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    return [root / name for name in names]


def _recognise(spec: DatasetConfig, path: Path) -> str:
    """The name in the spec of the file that `path` is, by its name, a pattern of names, or its
    checksum."""
    entries = [entry for entry in spec.files if entry.package is None]
    for entry in entries:
        if fnmatch(path.name, Path(entry.name).name):
            if entry.pinned and (problem := mismatch(entry, path)):
                raise UserError(f"dataset '{spec.name}': {problem}")
            return str(Path(entry.name).parent / path.name)
    for entry in entries:
        if (entry.sha256 or entry.git_blob) and mismatch(entry, path) is None:
            return entry.name
    names = ", ".join(dict.fromkeys(Path(entry.name).name for entry in entries))
    raise UserError(
        f"{path} is none of the files of dataset '{spec.name}', by its name or checksum: {names}"
    )


@contextmanager
def _incoming(spec: DatasetConfig, root: Path) -> Iterator[Path]:
    """A folder in the data root for files that arrive, removed with what is left in it. At the end
    the files are parsed, if they complete the dataset, and moved to the data root."""
    if not is_writable(root):
        raise UserError(
            f"the data root {root} is read-only: choose another with --data-root or DLMEXP_DATA"
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".incoming-") as name:
        folder = Path(name)
        yield folder
        for group in find_files(spec, root, folder).groups:
            if not group.missing and any(
                path.is_relative_to(folder) for path in group.files.values()
            ):
                parse(spec, group.files)
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            target = root / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
