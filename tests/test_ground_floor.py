"""The ground floor: atomic files, paths, cores, the end of an error sentence, and what is looked up in `conf/`."""

import os
from pathlib import Path

import pytest

from dlmexp import atomic, catalogue
from dlmexp.atomic import is_dead, owner, replacing, write_atomically, writer_of
from dlmexp.errors import UserError, nearest
from dlmexp.paths import conf_dir, cores, data_root, in_folder


def test_a_file_appears_at_the_end_and_unfinished_ones_name_their_writer(tmp_path):
    path = tmp_path / "new" / "file.csv"
    write_atomically(path, b"old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert writer_of(temporary) == owner()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert writer_of(path) is None
    dead = f"{atomic.machine()}-999999999"
    assert [is_dead(writer) for writer in (owner(), dead, "elsewhere-1")] == [False, True, None]


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


def test_where_things_lie(monkeypatch):
    assert (conf_dir() / "dataset" / "banana.yaml").is_file(), "the configuration travels with the package"
    monkeypatch.delenv("DLMEXP_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("DLMEXP_DATA", "/elsewhere")
    assert (data_root(), data_root("mine")) == (Path("/elsewhere"), Path("mine"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert cores() == 2


@pytest.mark.parametrize(
    ("command", "folder", "expected"),
    [
        ("dlmexp run experiment=bias", Path("./results"), "dlmexp run experiment=bias"),
        ("dlmexp run experiment=bias", "my own", "dlmexp run experiment=bias 'results=my own'"),
        ("dlmexp plot bias", Path("/a/b"), "dlmexp plot bias --results /a/b"),
        ("dlmexp --plugins own run", "elsewhere", "dlmexp --plugins own run results=elsewhere"),
        ("dlmexp data list", "elsewhere", "dlmexp data list"),
        ("unknown", "elsewhere", "unknown"),
    ],
)
def test_commands_go_on_with_a_folder(command, folder, expected):
    assert in_folder(command, folder) == expected


@pytest.mark.parametrize(
    ("word", "words", "hint"),
    [
        ("cadatta", ["pol", "cadata", "banana"], "did you mean cadata?"),
        ("fixed_dlm", ["fixed_sq_dlm", "fixed_log_dlm", "elbo"], "did you mean fixed_"),
        ("price", ["Price", "Size"], "did you mean Price?"),
        ("zzz", ["b", "a"], "valid: a, b"),
        ("zzz", [], "there are none"),
    ],
)
def test_the_nearest_word(word, words, hint):
    assert nearest(word, words).startswith(hint)


def test_stand_ins():
    assert set(catalogue.PAPER) <= set(catalogue.entries("dataset"))
    assert {catalogue.stands_for(name) for name in catalogue.PAPER} == {None}
    assert catalogue.stands_for("flights") == "airline"
    pairs = {"airline": "flights", "sarcos": "sarcos_test"} | {f"peds1_dir{k}": "peds1_left" for k in range(3)}
    assert all(other in catalogue.stand_ins(name) for name, other in pairs.items())
    assert catalogue.stand_ins("pol") == []


@pytest.mark.parametrize("text", ["a: [1", "- a\n- b\n"])
def test_a_settings_file_that_is_none(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        catalogue.read_settings(tmp_path / "mine.yaml")
