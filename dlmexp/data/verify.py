"""`dlmexp data check`: everything read again, nothing taken from memory."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from dlmexp.data import cache
from dlmexp.data.checksums import mismatch, remembered_sha256
from dlmexp.data.dataset import cache_entry, parse
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.places import cache_folders, locate
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError


@dataclass(frozen=True)
class Verdict:
    """`ok` is None where there was nothing to check."""

    name: str
    ok: bool | None
    detail: str


def verify(spec: DatasetSpec, root: Path) -> Verdict:
    """Hashes every raw file, parses it anew with all checks, and compares the cached arrays with the result."""
    loader = loader_of(spec)
    found = locate(spec, root)
    if not loader.drawn and not found.present:
        return Verdict(spec.name, None, "no files")
    try:
        sums = {name: remembered_sha256(path, root, afresh=True) for name, path in found.present.items()}
        known = [entry for entry in spec.files if entry.name in sums]
        hashed = sum(_verified(entry, found.present[entry.name], sums[entry.name]) for entry in known)
        if found.state in ("partial", "missing") and not loader.drawn:
            return Verdict(spec.name, True, f"{_checksums(hashed)}; incomplete, so not parsed")
        parsed = parse(spec, loader, found.files)
    except UserError as error:
        return Verdict(spec.name, False, str(error))
    shape = f"{parsed.X.shape[0]} x {parsed.X.shape[1]}"
    if loader.drawn:
        return Verdict(spec.name, True, f"{shape} drawn, checks pass")
    checksum = cache.content_checksum(spec.task, parsed.X, parsed.y)
    folders = cache_folders(next(iter(found.files.values())), root)
    entry = cache_entry(spec, loader, found.files, root)
    for folder in folders:
        if (folder / entry).exists() and (problem := _stale(folder / entry, checksum)):
            shutil.rmtree(folder / entry, ignore_errors=True)
            return Verdict(spec.name, False, f"cached arrays were wrong and have been removed: {problem}")
    return Verdict(spec.name, True, f"{_checksums(hashed)}; {shape} parsed, checks pass")


def _verified(entry: FileSpec, path: Path, found: str) -> int:
    """1 if the file's checksum is known and right, 0 if none is known."""
    if not entry.pinned or not (entry.sha256 or entry.git_blob or entry.size):
        return 0
    if problem := mismatch(entry, path, found):
        raise UserError(problem)
    return 1


def _checksums(number: int) -> str:
    return f"{number} checksum{'s' if number != 1 else ''} verified"


def _stale(folder: Path, checksum: str) -> str | None:
    if problem := cache.damaged(folder):
        return problem
    cached = cache.find([folder.parent], folder.name)
    if cached is None or cached[2]["checksum"] != checksum:
        return f"{folder} does not hold what the raw files say"
    return None
