"""New raw files for the data root, downloaded or copied: checked and parsed apart, and only then put in place."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from dlmexp.data.checksums import mismatch
from dlmexp.data.dataset import parse
from dlmexp.data.download import Report, download
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.places import advice, groups, locate, search, writable
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError

Reports = Callable[[str], Report]
"""Gives the progress report for a file name."""


def fetch(spec: DatasetSpec, root: Path, reports: Reports) -> list[Path]:
    """Downloads what a dataset lacks; returns the files put in place (none when it was all there and sound)."""
    if loader_of(spec).drawn:
        return []
    wanted = [entry for entry in _fetchable(spec, root) if not _sound(entry, root)]
    if not wanted:
        return []
    with _staging(root, spec.name) as folder:
        staged: dict[str, Path] = {}
        for entry in wanted:
            assert entry.url is not None
            part = folder / Path(entry.name).name
            download(entry.url, part, reports(entry.name), verified=bool(entry.sha256 or entry.git_blob))
            if problem := mismatch(entry, part):
                part.unlink()
                raise UserError(f"{entry.url} is not the file expected: {problem}; it was thrown away")
            staged[entry.name] = part
        return _put_in_place(spec, root, staged)


def import_files(spec: DatasetSpec, root: Path, given: Sequence[Path]) -> list[Path]:
    """Copies files that a user has; each is recognised by its name or its checksum."""
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
    with _staging(root, spec.name) as folder, tempfile.TemporaryDirectory(dir=folder) as copies:
        staged = {name: Path(copies) / Path(name).name for name in matched}
        for name, path in matched.items():
            shutil.copyfile(path, staged[name])
        return _put_in_place(spec, root, staged)


def _fetchable(spec: DatasetSpec, root: Path) -> list[FileSpec]:
    """The files of the group to download: the one in place already, else the first with an address for every file."""
    found = locate(spec, root)
    if found.state == "ready":
        return [entry for entry in spec.files if entry.name in found.files and entry.url]
    for entries in groups(spec):
        if all(entry.url for entry in entries):
            return entries
    raise UserError(f"dataset '{spec.name}' has no public address to fetch from: {advice(spec, found, root)}")


def _sound(entry: FileSpec, root: Path) -> bool:
    path = root / entry.name
    return path.is_file() and (not entry.pinned or mismatch(entry, path) is None)


def _recognise(spec: DatasetSpec, path: Path) -> tuple[str, FileSpec]:
    candidates = [entry for entry in spec.files if entry.package is None]
    for entry in candidates:
        if Path(entry.name).name == path.name:
            return entry.name, entry
    for entry in candidates:
        if (entry.sha256 or entry.git_blob) and mismatch(entry, path) is None:
            return entry.name, entry
    for entry in candidates:
        if "*" in entry.name and fnmatch(path.name, Path(entry.name).name):
            return str(Path(entry.name).parent / path.name), entry
    names = dict.fromkeys(Path(entry.name).name for entry in candidates)
    raise UserError(f"{path} is none of the files of dataset '{spec.name}': {', '.join(names)}")


def _put_in_place(spec: DatasetSpec, root: Path, staged: dict[str, Path]) -> list[Path]:
    """Parses the dataset from the new files, if that completes it, and renames them into the data root."""
    for entries in groups(spec):
        files, lacking = search(entries, root, instead=staged)
        if staged.keys() & files.keys() and not lacking:
            try:
                parse(spec, loader_of(spec), files)
            except UserError:
                for path in staged.values():
                    path.unlink()  # or the next fetch would take it for a finished download
                raise
    placed = []
    for name, path in staged.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)
        placed.append(target)
    return placed


@contextmanager
def _staging(root: Path, name: str) -> Iterator[Path]:
    """A folder for half-done files inside the data root, held by one process at a time, gone once it is empty."""
    folder = root / ".incoming" / name
    if not writable(root):
        raise UserError(f"the data root {root} is read-only: name another with --data-root or DLMEXP_DATA")
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is bringing '{name}' to {root} right now") from None
        try:
            yield folder
        finally:
            _tidy(folder)


def _tidy(folder: Path) -> None:
    """Removes notes that belong to no unfinished download, then the folders if nothing is left in them."""
    for note in folder.glob(".*.json"):
        if not (folder / note.name[1 : -len(".json")]).exists():
            note.unlink()
    if {path.name for path in folder.iterdir()} == {".lock"}:
        shutil.rmtree(folder)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()
