"""Adds raw files to the data root, downloaded or copied. They get their final names only after they were verified and
parsed in a staging folder."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import IO

from dlmexp.data.checksums import mismatch
from dlmexp.data.dataset import parse
from dlmexp.data.download import ProgressCallback, download
from dlmexp.data.folders import is_writable
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.raw_files import file_groups, find_files, find_group, how_to_get
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError

ATTEMPTS = 100  # at making a folder that another process removes meanwhile
ProgressFactory = Callable[[str], ProgressCallback]
"""Name of a file -> the callback for the progress of its download."""


def fetch(spec: DatasetSpec, root: Path, progress: ProgressFactory) -> list[Path]:
    """Downloads the files of a dataset that are missing or damaged; returns their paths (none if all were valid)."""
    if loader_of(spec).drawn:
        return []
    problems: list[str] = []
    for entries in _fetchable(spec, root):
        wanted = [entry for entry in entries if not _is_valid(entry, root)]
        if not wanted:
            return []
        try:
            with _staging_folder(root, spec.name) as folder:
                staged = {entry.name: _downloaded(entry, folder, progress) for entry in wanted}
                return _parse_and_move(spec, root, staged)
        except Busy:
            raise
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


class Busy(UserError):
    """Another process has the staging folder."""


def _downloaded(entry: FileSpec, folder: Path, progress: ProgressFactory) -> Path:
    """The file from the first of its addresses that has it."""
    part, problems = folder / Path(entry.name).name, []
    for address in filter(None, (entry.url, *entry.mirrors)):
        try:
            download(address, part, progress(entry.name), will_verify=bool(entry.sha256 or entry.git_blob))
        except UserError as error:
            problems.append(str(error))
            continue
        if (problem := mismatch(entry, part)) is None:
            return part
        part.unlink()
        problems.append(f"{address} is not the expected file: {problem}; the download was deleted")
    raise UserError("; then ".join(problems))


def import_files(spec: DatasetSpec, root: Path, given: Sequence[Path]) -> list[Path]:
    """Copies a user's files to the data root; each is recognised by its name, checksum or content. Returns the
    copies."""
    if loader_of(spec).drawn:
        raise UserError(f"dataset '{spec.name}' is drawn from its definition and needs no file")
    matched = {}
    for path in given:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
        name, entry = _recognise(spec, path)
        if entry.pinned and (problem := mismatch(entry, path)):
            raise UserError(f"dataset '{spec.name}': {problem}")
        matched[name] = path
    with _staging_folder(root, spec.name) as folder, tempfile.TemporaryDirectory(dir=folder) as copies:
        staged = {name: Path(copies) / Path(name).name for name in matched}
        for name, path in matched.items():
            shutil.copyfile(path, staged[name])
        return _parse_and_move(spec, root, staged)


def _fetchable(spec: DatasetSpec, root: Path) -> list[list[FileSpec]]:
    """The files to download: those of the group that is present already, else the groups with all URLs, to be tried in
    this order."""
    found = find_files(spec, root)
    if found.state == "ready":
        return [[entry for entry in spec.files if entry.name in found.files and entry.url]]
    if groups := [entries for entries in file_groups(spec) if all(entry.url for entry in entries)]:
        return groups
    raise UserError(f"dataset '{spec.name}' has no public address to fetch from: {how_to_get(spec, found, root)}")


def _is_valid(entry: FileSpec, root: Path) -> bool:
    path = root / entry.name
    return path.is_file() and (not entry.pinned or mismatch(entry, path) is None)


def _recognise(spec: DatasetSpec, path: Path) -> tuple[str, FileSpec]:
    """The file of the spec that `path` is: by its name, else by its checksum, a pattern of names, or its content."""
    entries = [entry for entry in spec.files if entry.package is None]
    for entry in entries:
        if Path(entry.name).name == path.name:
            return entry.name, entry
    for entry in entries:
        if (entry.sha256 or entry.git_blob) and mismatch(entry, path) is None:
            return entry.name, entry
    for entry in entries:
        if "*" in entry.name and fnmatch(path.name, Path(entry.name).name):
            return str(Path(entry.name).parent / path.name), entry
    if (found := _by_content(spec, path)) is not None:
        return found
    names = ", ".join(dict.fromkeys(Path(entry.name).name for entry in entries))
    how = "its name, checksum and content" if spec.options.get("checks") else "its name and checksum"
    raise UserError(f"{path} is none of the files of dataset '{spec.name}', by {how}: {names}")


def _by_content(spec: DatasetSpec, path: Path) -> tuple[str, FileSpec] | None:
    """The format in which `path`, whatever its name, holds the data of the spec; None if it does in none, or if the
    spec has no checks that would tell."""
    if not spec.options.get("checks"):
        return None
    single = [one for (one, *others) in file_groups(spec) if not others and one.package is None]
    for entry in sorted(single, key=lambda one: not path.suffix or not one.name.endswith(path.suffix)):
        name = entry.name.replace("*", path.stem, 1).replace("*", "")
        if entry.pinned and mismatch(entry, path) is not None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            named = Path(folder) / Path(name).name  # formats are told by the ends of names
            named.symlink_to(path.resolve())
            try:
                parse(spec, loader_of(spec), {name: named})
            except UserError:
                continue
        return name, entry
    return None


def _parse_and_move(spec: DatasetSpec, root: Path, staged: dict[str, Path]) -> list[Path]:
    """Parses the dataset with the staged files, if they complete it, then moves them to the data root."""
    for entries in file_groups(spec):
        files, missing = find_group(entries, root, staged)
        if staged.keys() & files.keys() and not missing:
            try:
                parse(spec, loader_of(spec), files)
            except UserError:
                for path in staged.values():
                    path.unlink()  # otherwise the next fetch would take it for a finished download
                raise
    moved = []
    for name, path in staged.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)
        moved.append(target)
    return moved


@contextmanager
def _staging_folder(root: Path, name: str) -> Iterator[Path]:
    """A folder in the data root for unfinished files, locked by one process at a time, removed when it is empty."""
    folder = root / ".incoming" / name
    if not is_writable(root):
        raise UserError(f"the data root {root} is read-only: choose another with --data-root or DLMEXP_DATA")
    lock = _locked(folder)
    if lock is None:
        raise Busy(f"another process is fetching or importing '{name}' into {root} right now")
    with lock:
        try:
            yield folder
        finally:
            _clean_up(folder)


def _locked(folder: Path) -> IO[str] | None:
    """The locked lock file of a folder, which is made; None if another process has it. That one may remove file and
    folder at any moment: a lock counts only on the file that is there afterwards."""
    path = folder / ".lock"
    for attempt in count(1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        except (FileNotFoundError, FileExistsError):  # a folder that was there a moment ago, or that was not
            if attempt == ATTEMPTS:
                raise
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        lock.close()


def _clean_up(folder: Path) -> None:
    """Removes the download metadata that belongs to no unfinished file, then the folders that are empty. Another
    process may use them again before they are gone: then they stay."""
    for metadata in folder.glob(".*.json"):
        if not (folder / metadata.name[1 : -len(".json")]).exists():
            metadata.unlink()
    if {path.name for path in folder.iterdir()} != {".lock"}:
        return
    (folder / ".lock").unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()
