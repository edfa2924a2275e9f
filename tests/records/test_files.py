"""Files that are whole or not there."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlmexp import atomic as module
from dlmexp.atomic import write_atomically
from dlmexp.errors import Unreadable
from dlmexp.reading.arrays import unpack_arrays
from dlmexp.records.record import decoded, is_sealed, sealed
from dlmexp.records.store import npz_bytes


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

    monkeypatch.setattr(module.os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_there_and_back_and_the_same_bytes_every_time():
    arrays = {"a": np.arange(5, dtype=np.float32), "b": np.array([np.nan, 1.0])}
    content = npz_bytes(arrays)
    assert content == npz_bytes(arrays)
    back = unpack_arrays(content)
    assert back["a"].dtype == np.float32
    assert np.array_equal(back["b"], arrays["b"], equal_nan=True)


def test_pickles_are_refused():
    with pytest.raises(Unreadable, match="Python objects"):
        unpack_arrays(npz_bytes({"a": np.array([{}])}))


OBJECT = b'{"key":"k","cell":{"beta":0.1,"sha256":"of the data"}}'


def _holds(line: bytes) -> bool:
    """As readers of records see it: the checksum is the one that the object itself names."""
    try:
        digest = json.loads(line)["sha256"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(digest, str) and is_sealed(line, digest)


def test_a_sealed_object_is_the_object_with_its_checksum():
    line = sealed(OBJECT)
    found = json.loads(line)
    assert found.pop("sha256") == hashlib.sha256(OBJECT).hexdigest()
    assert found == json.loads(OBJECT)
    assert _holds(line)


@given(st.data())
def test_a_changed_letter_breaks_the_seal(data):
    line = sealed(OBJECT).decode()
    place, letter = data.draw(st.integers(0, len(line) - 1)), data.draw(st.characters(codec="utf-8"))
    assume(line[place] != letter)
    assert not _holds((line[:place] + letter + line[place + 1 :]).encode())


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"3", b'{"key":"k"}', b'{"key":"k","sha256":5}'])
def test_what_was_never_sealed(line):
    assert not _holds(line)
    with pytest.raises(Unreadable):
        decoded(line)
