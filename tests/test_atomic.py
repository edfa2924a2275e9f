"""Files that appear under their name once all of them is written, and who wrote what is unfinished."""

import os

import pytest

from dlmexp import atomic
from dlmexp.atomic import is_dead, owner, replacing, write_atomically, writer_of


def test_the_file_appears_at_the_end_and_unfinished_ones_name_their_writer(tmp_path):
    path = tmp_path / "new" / "file.csv"
    write_atomically(path, b"old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert writer_of(temporary) == owner()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert writer_of(path) is None
    assert is_dead(owner()) is False
    assert is_dead(f"{atomic.machine()}-999999999") is True
    assert is_dead("elsewhere-1") is None


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
