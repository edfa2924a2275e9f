"""Files that are whole or not there."""

import numpy as np
import pytest
from dlmexp.sweep import sealed as module
from hypothesis import assume, given
from hypothesis import strategies as st

from dlmexp.records.files import pack, sealed, unpack, unsealed, write_atomically


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
    content = pack(arrays)
    assert content == pack(arrays)
    back = unpack(content)
    assert back["a"].dtype == np.float32
    assert np.array_equal(back["b"], arrays["b"], equal_nan=True)


def test_pickles_are_refused():
    with pytest.raises(ValueError, match="allow_pickle"):
        unpack(pack({"a": np.array([{}])}))


RECORD = {"key": "k", "cell": {"beta": 0.1, "sha256": "of the data"}, "sha256": "old"}


def test_a_sealed_record_there_and_back():
    found = unsealed(sealed(RECORD))
    assert found is not None
    assert {**found, "sha256": "old"} == RECORD
    assert sealed(found) == sealed(RECORD)


@given(st.data())
def test_a_changed_letter_breaks_the_seal(data):
    line = sealed(RECORD)
    place, letter = data.draw(st.integers(0, len(line) - 1)), data.draw(st.characters(codec="utf-8"))
    assume(line[place] != letter)
    assert unsealed(line[:place] + letter + line[place + 1 :]) is None


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '{"key":"k"}', '{"key":"k","sha256":5}'])
def test_what_was_never_sealed(line):
    assert unsealed(line) is None
