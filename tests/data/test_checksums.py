"""Checksums and their cache."""

import os
import subprocess

from dlmexp.data.checksums import cached_sha256, git_blob, mismatch, sha256

from dlmexp.data import checksums
from dlmexp.data.spec import FileSpec

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_checksums_agree_with_known_values_and_git(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"")
    assert sha256(path) == EMPTY
    path.write_bytes(b"x" * 3_000_000)
    git = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True)
    assert git_blob(path) == git.stdout.strip()


def test_a_file_is_read_again_only_after_a_change(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    first = cached_sha256(path, tmp_path)
    monkeypatch.setattr(checksums, "sha256", lambda path: "read again")
    assert cached_sha256(path, tmp_path) == first
    assert cached_sha256(path, tmp_path, reread=True) == "read again"
    monkeypatch.undo()
    path.write_bytes(b"two")  # same size, another time
    os.utime(path, ns=(1, 1))
    assert cached_sha256(path, tmp_path) == sha256(path) != first


def test_a_truncated_cache_file_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("DLMEXP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "f"
    path.write_bytes(b"one")
    cached_sha256(path, tmp_path)
    (cached,) = (tmp_path / "cache").rglob("f.sha256.json")
    cached.write_text(cached.read_text()[:10])
    assert cached_sha256(path, tmp_path) == sha256(path)


def test_mismatch_names_both_values(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    assert mismatch(FileSpec("f", sha256=sha256(path), git_blob=git_blob(path), size=3), path) is None
    assert "3 bytes, the published file has 4" in str(mismatch(FileSpec("f", size=4), path))
    assert f"SHA-256 {sha256(path)}, the published file has {EMPTY}" in str(mismatch(FileSpec("f", sha256=EMPTY), path))
    assert "git blob hash" in str(mismatch(FileSpec("f", git_blob="0" * 40), path))
