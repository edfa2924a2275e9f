"""`dlmexp data check`: reads and parses all raw files again, without relying on any cached checksum or array."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from dlmexp.console import counted
from dlmexp.data import cache
from dlmexp.data.checksums import cached_sha256, mismatch
from dlmexp.data.dataset import cache_entry_name, parse
from dlmexp.data.folders import cache_folders
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.raw_files import find_files
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError


@dataclass(frozen=True)
class CheckResult:
    """`ok` is None if the dataset has no files to check."""

    name: str
    ok: bool | None
    detail: str


def verify(spec: DatasetSpec, root: Path) -> CheckResult:
    """Hashes every raw file, parses the dataset with all checks, and compares the cached arrays with the result."""
    loader = loader_of(spec)
    found = find_files(spec, root)
    if not loader.drawn and not found.present:
        return CheckResult(spec.name, None, "no files")
    try:
        checksums = {name: cached_sha256(path, root, reread=True) for name, path in found.present.items()}
        entries = [entry for entry in spec.files if entry.name in checksums]
        verified = sum(_verify_file(entry, found.present[entry.name], checksums[entry.name]) for entry in entries)
        if found.state in ("partial", "missing") and not loader.drawn:
            return CheckResult(spec.name, True, f"{counted(verified, 'checksum')} verified; incomplete, so not parsed")
        parsed = parse(spec, loader, found.files)
    except UserError as error:
        return CheckResult(spec.name, False, str(error))
    shape = f"{parsed.X.shape[0]} x {parsed.X.shape[1]}"
    if loader.drawn:
        return CheckResult(spec.name, True, f"{shape} drawn, checks pass")
    checksum = cache.content_checksum(spec.task, parsed.X, parsed.y)
    name = cache_entry_name(spec, loader, found.files, root)
    for folder in cache_folders(next(iter(found.files.values())), root):
        if (folder / name).exists() and (problem := _cache_problem(folder / name, checksum)):
            shutil.rmtree(folder / name, ignore_errors=True)
            return CheckResult(spec.name, False, f"cached arrays were wrong and have been removed: {problem}")
    return CheckResult(spec.name, True, f"{counted(verified, 'checksum')} verified; {shape} parsed, checks pass")


def _verify_file(entry: FileSpec, path: Path, sha256: str) -> bool:
    """Whether a published checksum was there to compare with; raises UserError if the file has another one."""
    if not entry.pinned or not (entry.sha256 or entry.git_blob or entry.size):
        return False
    if problem := mismatch(entry, path, sha256):
        raise UserError(problem)
    return True


def _cache_problem(folder: Path, checksum: str) -> str | None:
    if problem := cache.find_damage(folder):
        return problem
    cached = cache.find([folder.parent], folder.name)
    if cached is None or cached[2]["checksum"] != checksum:
        return f"{folder} differs from what the raw files contain"
    return None
