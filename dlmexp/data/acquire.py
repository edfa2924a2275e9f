"""Adds raw files to the data root, downloaded (by pooch) or copied. They get their final names only after they were
verified and parsed."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from dlmexp.data.dataset import parse
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.raw_files import file_groups, find_files, find_group, how_to_get, is_writable, mismatch
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError
from dlmexp.reading.files import GIB, reading

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
    files = pooch.create(
        target.parent, "", registry={target.name: sha256 and f"sha256:{sha256}"}, urls={target.name: url},
        retry_if_failed=RETRIES,
    )  # fmt: skip
    by_http: Any = pooch.HTTPDownloader(progressbar=cast(Any, _Bar(progress)), timeout=TIMEOUT)
    with reading(url, "could not be downloaded"):
        try:
            files.fetch(target.name, downloader=by_http)
        except OSError as error:  # requests' errors are such, without a number
            raise UserError(f"{url}: {error}; is the address right, and is there a network here?") from error


def fetch(spec: DatasetSpec, root: Path, progress: Callable[[str], ProgressCallback]) -> list[Path]:
    """Downloads the files of a dataset that are missing or damaged; returns their paths (none if all were valid).
    `progress` gives the callback for a file by its name."""
    if loader_of(spec).drawn:
        return []
    problems: list[str] = []
    for entries in _fetchable(spec, root):
        wanted = [entry for entry in entries if not _is_valid(entry, root)]
        if not wanted:
            return []
        try:
            with _staging_folder(root) as folder:
                staged = {entry.name: _downloaded(entry, folder, progress) for entry in wanted}
                return _parse_and_move(spec, root, staged)
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def _downloaded(entry: FileSpec, folder: Path, progress: Callable[[str], ProgressCallback]) -> Path:
    """The file from the first of its addresses that has it."""
    target, problems = folder / Path(entry.name).name, []
    for address in filter(None, (entry.url, *entry.mirrors)):
        try:
            download(address, target, progress(entry.name), entry.sha256)
            if problem := mismatch(entry, target):
                target.unlink()
                raise UserError(f"{address} is not the expected file: {problem}; the download was deleted")
            return target
        except UserError as error:
            problems.append(str(error))
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
    with _staging_folder(root) as folder:
        staged = {name: folder / Path(name).name for name in matched}
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
    checks = bool(spec.options.get("checks"))  # which tell the data from any other
    if checks and (found := _by_content(spec, path)) is not None:
        return found
    names = ", ".join(dict.fromkeys(Path(entry.name).name for entry in entries))
    how = "its name, checksum and content" if checks else "its name and checksum"
    raise UserError(f"{path} is none of the files of dataset '{spec.name}', by {how}: {names}")


def _by_content(spec: DatasetSpec, path: Path) -> tuple[str, FileSpec] | None:
    """The format in which `path`, whatever its name, holds the data of the spec; None if it does in none."""
    single = [entry for (entry, *others) in file_groups(spec) if not others and entry.package is None]
    for entry in sorted(single, key=lambda entry: not path.suffix or not entry.name.endswith(path.suffix)):
        name = entry.name.replace("*", path.stem, 1).replace("*", "")
        if entry.pinned and mismatch(entry, path) is not None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            named = Path(folder) / Path(name).name  # formats are told by the ends of names
            named.symlink_to(path.resolve())
            try:
                parse(spec, loader_of(spec), {name: named})
                return name, entry
            except UserError:
                continue
    return None


def _parse_and_move(spec: DatasetSpec, root: Path, staged: dict[str, Path]) -> list[Path]:
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
