"""Adds raw files to the data root, downloaded (by pooch) or copied. They get their final names only after they were
verified and parsed."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from dlmexp.data.dataset import parse
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.raw_files import file_groups, find_files, find_group, how_to_get, is_writable, mismatch
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError
from dlmexp.reading.files import GIB, reading

T = TypeVar("T")
R = TypeVar("R")
MAX_BYTES = 8 * GIB
RETRIES, TIMEOUT = 3, 30.0  # further attempts; seconds without a byte
ProgressCallback = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in total if known)."""


class _Bar:
    """What pooch tells the progress of a download; one that does not end is refused."""

    def __init__(self, report: ProgressCallback):
        self.report, self.total, self.done = report, 0, 0

    def update(self, amount: int) -> None:
        self.done += amount
        if max(self.done, self.total) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes: refused")
        self.report(self.done, self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


def download(url: str, target: Path, progress: ProgressCallback, sha256: str | None = None) -> None:
    """Downloads `url` to the file `target`, which appears when it is complete and has the checksum. Errors that may
    pass are tried again after some seconds."""
    import pooch

    if not url.startswith(("http://", "https://")):
        raise UserError(f"'{url}' is no address of a file: it should begin with https:// and a host")
    logging.getLogger("pooch").setLevel(logging.WARNING)
    known = {target.name: sha256 and f"sha256:{sha256}"}
    files = pooch.create(target.parent, "", registry=known, urls={target.name: url}, retry_if_failed=RETRIES)
    by_http: Any = pooch.HTTPDownloader(progressbar=cast(Any, _Bar(progress)), timeout=TIMEOUT)
    with reading(url, "could not be downloaded"):
        try:
            files.fetch(target.name, downloader=by_http)
        except OSError as error:  # requests' errors are such, without a number
            raise UserError(f"{url}: {error}; is the address right, and is there a network here?") from error


def fetch(spec: DatasetSpec, root: Path, progress: Callable[[str], ProgressCallback]) -> list[Path]:
    """Downloads the files of a dataset that are missing or damaged; returns their paths (none if all were valid).
    `progress` gives the callback for a file by its name. Of files that are alternatives, the first that can be had."""
    if loader_of(spec).drawn:
        return []
    found, groups = find_files(spec, root), file_groups(spec)
    if found.state == "ready":
        groups = [[entry for entry in spec.files if entry.name in found.files and entry.url]]
    groups = [entries for entries in groups if all(entry.url for entry in entries)]
    if not groups:
        raise UserError(f"dataset '{spec.name}' has no public address to fetch from: {how_to_get(spec, found, root)}")

    def from_address(entry: FileSpec, target: Path, url: str) -> Path:
        download(url, target, progress(entry.name), entry.sha256)
        if problem := mismatch(entry, target):
            target.unlink()
            raise UserError(f"{url} is not the expected file: {problem}; the download was deleted")
        return target

    def group(entries: list[FileSpec]) -> list[Path]:
        wanted = [entry for entry in entries if not _is_valid(entry, root / entry.name)]
        staged: dict[str, Path] = {}
        with _staging_folder(root) if wanted else nullcontext(root) as folder:
            for entry in wanted:
                download_from = partial(from_address, entry, folder / Path(entry.name).name)
                staged[entry.name] = _first_success(download_from, filter(None, (entry.url, *entry.mirrors)))
            return _parse_and_move(spec, root, staged)

    return _first_success(group, groups)


def import_files(spec: DatasetSpec, root: Path, given: Sequence[Path]) -> list[Path]:
    """Copies a user's files to the data root; each is recognised by its name or checksum. Returns the copies."""
    if loader_of(spec).drawn:
        raise UserError(f"dataset '{spec.name}' is drawn from its definition and needs no file")
    if absent := [path for path in given if not path.is_file()]:
        raise UserError(f"{absent[0]}: there is no such file")
    names = [_recognise(spec, path) for path in given]
    with _staging_folder(root) as folder:
        staged = {name: folder / Path(name).name for name in names}
        for path, copy in zip(given, staged.values(), strict=True):
            shutil.copyfile(path, copy)
        return _parse_and_move(spec, root, staged)


def _first_success(attempt: Callable[[T], R], choices: Iterable[T]) -> R:
    """What `attempt` returns for the first choice without a UserError; the errors of all, if there is none."""
    problems = []
    for choice in choices:
        try:
            return attempt(choice)
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def _is_valid(entry: FileSpec, path: Path) -> bool:
    return path.is_file() and (not entry.pinned or mismatch(entry, path) is None)


def _recognise(spec: DatasetSpec, path: Path) -> str:
    """The name in the spec of the file that `path` is: by its name, its checksum, or a pattern of names."""
    entries = [entry for entry in spec.files if entry.package is None]
    for entry in entries:
        if Path(entry.name).name == path.name:
            if entry.pinned and (problem := mismatch(entry, path)):
                raise UserError(f"dataset '{spec.name}': {problem}")
            return entry.name
    for entry in entries:
        if (entry.sha256 or entry.git_blob) and mismatch(entry, path) is None:
            return entry.name
        if "*" in entry.name and fnmatch(path.name, Path(entry.name).name):
            return str(Path(entry.name).parent / path.name)
    names = ", ".join(dict.fromkeys(Path(entry.name).name for entry in entries))
    raise UserError(f"{path} is none of the files of dataset '{spec.name}', by its name or checksum: {names}")


def _parse_and_move(spec: DatasetSpec, root: Path, staged: Mapping[str, Path]) -> list[Path]:
    """Parses the dataset with the staged files, if they complete it, then moves them to the data root."""
    for entries in file_groups(spec):
        files, missing = find_group(entries, root, staged)
        if staged.keys() & files.keys() and not missing:
            parse(spec, loader_of(spec), files)
    for name, path in staged.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, root / name)
    return [root / name for name in staged]


@contextmanager
def _staging_folder(root: Path) -> Iterator[Path]:
    """A folder in the data root for unfinished files, removed with what is left in it."""
    if not is_writable(root):
        raise UserError(f"the data root {root} is read-only: choose another with --data-root or DLMEXP_DATA")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".incoming-") as folder:
        yield Path(folder)
