"""Downloads (by pooch) and imports of raw files.

A file gets its final name in the data root only after it has been verified and parsed.
"""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from dlmexp.common.atomic import is_dead, is_writable, this_process
from dlmexp.common.errors import UserError
from dlmexp.common.reading.files import GIB, check_plain, reading
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import FileSpec, is_drawn, parse
from dlmexp.data.raw_files import fetchable_groups, find_files, how_to_get, mismatch

MAX_BYTES = 8 * GIB
"""Larger downloads are refused."""
RETRIES = 3
"""The number of further attempts after an error that may be temporary."""
TIMEOUT = 30.0
"""An attempt fails if no byte arrives for this number of seconds."""
INCOMING = ".incoming-"
"""Names of folders for incoming files begin with this, followed by the process as MACHINE-PID."""
QUIET_SECONDS = 24 * 3600.0
"""A folder of another machine's process is deleted if it has not changed for this time."""


class _DownloadBar:
    """A progress bar for pooch, drawn by rich, that ends downloads which are too large.

    Pooch sets the attribute `total`, the expected number of bytes, and calls all methods.
    """

    def __init__(self, bars: Any, name: str):
        self.total = 0
        self._bars = bars
        self._task = bars.add_task(name, total=None)
        self._received = 0

    def update(self, amount: int) -> None:
        self._received += amount
        if max(self._received, self.total) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes: refused")
        self._bars.update(self._task, completed=self._received, total=self.total or None)

    def reset(self) -> None:
        self._received = 0

    def close(self) -> None:
        pass  # the bar stays visible


def fetch(spec: DatasetConfig, root: Path, bars: Any) -> list[Path]:
    """Download the files of a dataset that are missing or damaged.

    A dataset may have several groups of files, which are alternatives: download the first group for
    which that succeeds.

    Args:
        spec: The dataset.
        root: The data root.
        bars: A `Progress` of rich.

    Returns:
        The paths of the downloaded files; none if all files were valid.
    """
    problems = []
    for entries in _groups_to_fetch(spec, root):
        to_download = [entry for entry in entries if not is_valid(entry, root / entry.name)]
        if not to_download:
            return []
        try:
            return _fetch_group(spec, to_download, root, bars)
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def _fetch_group(
    spec: DatasetConfig, entries: Sequence[FileSpec], root: Path, bars: Any
) -> list[Path]:
    """Download these files of a group, and return their paths in the data root."""
    with _incoming(spec, root) as folder:
        for entry in entries:
            download(entry, folder, bars)
    return [root / entry.name for entry in entries]


def _groups_to_fetch(spec: DatasetConfig, root: Path) -> list[list[FileSpec]]:
    """Return groups of files to download, one of which is enough, in the order to try them.

    Raises:
        UserError: no group has an address for all of its files.
    """
    inventory = find_files(spec, root)
    if inventory.state in ("ready", "drawn"):
        # No file is missing, but one may be damaged. A drawn dataset has no files.
        with_address = [entry for entry in inventory.best.entries if entry.url]
        return [with_address]
    groups = fetchable_groups(inventory)
    if not groups:
        advice = how_to_get(spec, inventory, root)
        raise UserError(f"dataset '{spec.name}' has no public address to fetch from: {advice}")
    return groups


def is_valid(entry: FileSpec, path: Path) -> bool:
    """Return whether a file is present, and has its checksum if it must have one."""
    if not path.is_file():
        return False
    return not entry.pinned or mismatch(entry, path) is None


def download(entry: FileSpec, folder: Path, bars: Any) -> None:
    """Download a file to a folder, from the first of its addresses for which that succeeds.

    After errors that may be temporary, pooch waits some seconds and tries again. The file appears
    in the folder once it is complete and has its checksum.
    """
    problems = []
    for url in (entry.url, *entry.mirrors):
        if not url:
            continue
        try:
            _download_from(url, entry, folder, bars)
            return
        except UserError as error:
            problems.append(str(error))
    raise UserError("; then ".join(problems))


def _download_from(url: str, entry: FileSpec, folder: Path, bars: Any) -> None:
    """Download a file from one address.

    Raises:
        UserError: the file can't be downloaded, or has another checksum.
    """
    import pooch  # noqa: TID251 - it downloads within `reading`

    logging.getLogger("pooch").setLevel(logging.WARNING)
    checksum = f"sha256:{entry.sha256}" if entry.sha256 else None
    files = pooch.create(
        folder,
        base_url="",  # `urls` has the whole address
        registry={entry.name: checksum},
        urls={entry.name: url},
        retry_if_failed=RETRIES,
    )
    bar = cast(Any, _DownloadBar(bars, entry.name))  # pooch declares its own type of bar
    downloader: Any = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)
    problem = "could not be downloaded; is the address right, and is there a network here?"
    with reading(url, problem):
        files.fetch(entry.name, downloader=downloader)
        # Pooch has verified the SHA-256; `mismatch` verifies the checksum of git as well.
        difference = mismatch(entry, folder / entry.name)
        if difference:
            (folder / entry.name).unlink()
            raise ValueError(f"not the expected file: {difference}")


def import_files(spec: DatasetConfig, root: Path, paths: Sequence[Path]) -> list[Path]:
    """Copy a user's files to the data root, each under its name in the spec of the dataset.

    Returns:
        The paths of the copies.

    Raises:
        UserError: the dataset needs no files, or a file is none of its files.
    """
    if is_drawn(spec):
        raise UserError(f"dataset '{spec.name}' is drawn from its definition and needs no file")
    for path in paths:
        check_plain(path, MAX_BYTES)
    names = [_recognised_name(spec, path) for path in paths]
    with _incoming(spec, root) as folder:
        for path, name in zip(paths, names, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    return [root / name for name in names]


def _recognised_name(spec: DatasetConfig, path: Path) -> str:
    """Return the name that a user's file has in the spec of a dataset.

    Raises:
        UserError: the file has neither the name nor the checksum of a file of the dataset, or it
            has the name, but not the checksum that goes with it.
    """
    entries = [entry for entry in spec.files if entry.package is None]
    for entry in entries:
        if fnmatch(path.name, _name_without_folder(entry)):
            _check_if_pinned(spec, entry, path)
            folder = Path(entry.name).parent
            return str(folder / path.name)
    for entry in entries:
        if _has_checksum_of(entry, path):
            return entry.name
    names = dict.fromkeys(map(_name_without_folder, entries))
    problem = f"none of the files of dataset '{spec.name}', by its name or checksum"
    raise UserError(f"{path} is {problem}: {', '.join(names)}")


def _check_if_pinned(spec: DatasetConfig, entry: FileSpec, path: Path) -> None:
    """Raise UserError if the spec requires a checksum that the file does not have."""
    problem = mismatch(entry, path) if entry.pinned else None
    if problem:
        raise UserError(f"dataset '{spec.name}': {problem}")


def _name_without_folder(entry: FileSpec) -> str:
    """Return the name of a file, or a pattern of names, without its folder in the data root."""
    return Path(entry.name).name


def _has_checksum_of(entry: FileSpec, path: Path) -> bool:
    """Return whether an entry of the spec has a checksum, and the file has the same one."""
    if entry.sha256 is None and entry.git_blob is None:
        return False
    return mismatch(entry, path) is None


@contextmanager
def _incoming(spec: DatasetConfig, root: Path) -> Iterator[Path]:
    """Provide a folder for incoming files, inside the data root.

    At the end of the context, the files are parsed if no file of their group is missing any more,
    and then moved to the data root. After an error, the folder is removed with its files.
    """
    if not is_writable(root):
        raise UserError(
            f"the data root {root} is read-only: choose another with --data-root or DLMEXP_DATA"
        )
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{INCOMING}{this_process()}.") as name:
        folder = Path(name)
        yield folder
        _parse_completed_groups(spec, root, folder)
        arrivals = [path for path in folder.rglob("*") if path.is_file()]
        for path in arrivals:
            target = root / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)


def remove_leftovers(root: Path) -> None:
    """Remove the folders of incoming files that processes have left when they were killed."""
    for folder in root.glob(f"{INCOMING}*"):
        process = folder.name.removeprefix(INCOMING).partition(".")[0]
        has_ended = is_dead(process)
        if has_ended is None:  # a process of another machine
            seconds_since_change = time.time() - folder.stat().st_mtime
            has_ended = seconds_since_change > QUIET_SECONDS
        if has_ended and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def _parse_completed_groups(spec: DatasetConfig, root: Path, folder: Path) -> None:
    """Parse each group that has incoming files, in `folder`, and now misses no file.

    Raises:
        UserError: a file fails a check.
    """
    for group in find_files(spec, root, folder).groups:
        has_arrivals = any(path.is_relative_to(folder) for path in group.files.values())
        if has_arrivals and not group.missing:
            parse(spec, group.files)
