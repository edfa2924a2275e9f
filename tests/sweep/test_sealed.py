"""Files that are whole or not there."""

import numpy as np
import pytest

from dlmexp.sweep import sealed
from dlmexp.sweep.sealed import checksum, pack, unpack, write_atomically


def test_written_whole_and_alone(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sealed.os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_there_and_back_and_the_same_bytes_every_time():
    arrays = {"a": np.arange(5, dtype=np.float32), "b": np.array([np.nan, 1.0])}
    content = pack(arrays)
    assert content == pack(arrays)
    back = unpack(content)
    assert back["a"].dtype == np.float32
    assert np.array_equal(back["b"], arrays["b"], equal_nan=True)


def test_pickles_are_refused():
    with pytest.raises(ValueError, match="allow_pickle"):
        unpack(pack({"a": np.array([{}])}))


def test_the_checksum_does_not_depend_on_the_order_of_keys_and_leaves_itself_out():
    assert checksum({"a": 1, "b": [1.5]}) == checksum({"b": [1.5], "a": 1, "sha256": "x"})
    assert checksum({"a": 1}) != checksum({"a": 2})
