"""`dlmexp data check` does not rely on cached values."""

import os

import numpy as np
import pytest
from dlmexp.data.checksums import sha256
from dlmexp.data.verify import verify

from dlmexp.data import cache
from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec, read_spec


def toy(root, **file) -> DatasetSpec:
    path = root / "toy" / "toy.dat"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text("1,0\n2,1\n")
    return DatasetSpec("toy", "label_last", "binary", "counts", features=1, files=(FileSpec("toy/toy.dat", **file),))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DLMEXP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_valid_data_passes(root):
    spec = toy(root, sha256=sha256(toy(root) and root / "toy" / "toy.dat"))
    load(spec, root)
    result = verify(spec, root)
    assert result.ok
    assert result.detail == "1 checksum verified; 2 x 1 parsed, checks pass"


def test_a_change_that_keeps_size_and_time_is_found(root):
    path = root / "toy" / "toy.dat"
    spec = toy(root, sha256=sha256(toy(root) and path))
    load(spec, root)
    stat = path.stat()
    with path.open("r+") as file:
        file.write("3")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    load(spec, root)  # does not detect the change: only the check does
    result = verify(spec, root)
    assert result.ok is False
    assert "published file" in result.detail


def test_a_damaged_cache_is_found_and_removed(root):
    spec = toy(root)
    load(spec, root)
    (array,) = (root / "cache").rglob("X.npy")
    data = bytearray(array.read_bytes())
    data[-1] ^= 1
    array.write_bytes(data)
    result = verify(spec, root)
    assert result.ok is False
    assert "removed" in result.detail
    assert verify(spec, root).ok
    assert load(spec, root).X.tolist() == [[1], [2]]


def test_a_cache_that_differs_from_the_raw_file_is_found(root):
    spec = toy(root)
    load(spec, root)
    (array,) = (root / "cache").rglob("X.npy")
    folder = array.parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    cache.store([folder.parent], folder.name, np.ones((2, 1)), np.ones(2), {"checksum": "forged", "facts": {}})
    assert "differs from what the raw files contain" in verify(spec, root).detail


def test_results_of_invalid_missing_and_drawn_data(root):
    (root / "toy").mkdir()
    (root / "toy" / "toy.dat").write_text("1,7\n")
    assert "check 'labels' failed" in verify(toy(root), root).detail
    assert verify(read_spec("song"), root).ok is None
    assert verify(read_spec("ringnorm_drawn"), root).ok


def test_the_files_of_partial_data_are_verified(data_root):
    result = verify(read_spec("sarcos"), data_root)
    assert result.ok
    assert "1 checksum verified" in result.detail or "2 checksums" in result.detail
