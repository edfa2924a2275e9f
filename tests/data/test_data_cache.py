"""The cache of parsed arrays: complete entries only, and never in a read-only folder."""

import json
import logging

import numpy as np

from dlmexp.data import cache

X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])


def test_stored_arrays_are_memory_mapped_read_only(tmp_path):
    assert cache.find([tmp_path], "e") is None
    cache.store([tmp_path], "e", X, Y, {"checksum": "c", "facts": {"a": 1}})
    found = cache.find([tmp_path], "e")
    assert found is not None
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], Y)
    assert isinstance(found[0], np.memmap)
    assert not found[0].flags.writeable
    assert found[2]["facts"] == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
    assert cache.find_damage(tmp_path / "e") is None


def test_a_second_writer_changes_nothing(tmp_path):
    cache.store([tmp_path], "e", X, Y, {"checksum": "first"})
    cache.store([tmp_path], "e", X, Y, {"checksum": "second"})
    found = cache.find([tmp_path], "e")
    assert found is not None
    assert found[2]["checksum"] == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_a_truncated_entry_is_ignored_and_replaced(tmp_path):
    cache.store([tmp_path], "e", X, Y, {"checksum": "first"})
    whole = (tmp_path / "e" / "X.npy").read_bytes()
    (tmp_path / "e" / "X.npy").write_bytes(whole[:-8])
    assert cache.find([tmp_path], "e") is None
    cache.store([tmp_path], "e", X, Y, {"checksum": "second"})
    found = cache.find([tmp_path], "e")
    assert found is not None
    assert found[2]["checksum"] == "second"


def test_find_damage_detects_a_flipped_bit(tmp_path):
    cache.store([tmp_path], "e", X, Y, {})
    data = bytearray((tmp_path / "e" / "y.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "e" / "y.npy").write_bytes(data)
    assert "y.npy changed" in str(cache.find_damage(tmp_path / "e"))
    (tmp_path / "e" / "about.json").write_text("{")
    assert "unreadable" in str(cache.find_damage(tmp_path / "e"))


def test_an_entry_of_pickled_objects_is_not_loaded(tmp_path):
    cache.store([tmp_path], "e", X, Y, {})
    np.save(tmp_path / "e" / "y.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert cache.find([tmp_path], "e") is None


def test_read_only_folders_are_skipped(tmp_path):
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir(mode=0o555)
    cache.store([closed / ".cache", open_], "e", X, Y, {})
    assert not (closed / ".cache").exists()
    assert cache.find([closed / ".cache", open_], "e") is not None
    cache.store([closed / ".cache"], "f", X, Y, {})
    assert cache.find([closed / ".cache"], "f") is None


def test_a_full_disk_is_only_a_warning(tmp_path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with caplog.at_level(logging.WARNING):
        cache.store([tmp_path], "e", X, Y, {})
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_checksums_depend_on_values_task_and_shape():
    sums = {
        cache.content_checksum("count", X, Y),
        cache.content_checksum("regression", X, Y),
        cache.content_checksum("count", X.reshape(2, 3), Y),
        cache.content_checksum("count", X, Y + 1),
    }
    assert len(sums) == 4
    assert cache.content_checksum("count", np.asfortranarray(X), Y) == cache.content_checksum("count", X, Y)
    assert cache.definition_checksum({"a": 1, "b": 2}) == cache.definition_checksum({"b": 2, "a": 1})


def test_metadata_is_json(tmp_path):
    cache.store([tmp_path], "e", X, Y, {"checksum": "c"})
    assert json.loads((tmp_path / "e" / "about.json").read_text())["shape"] == [3, 2]
