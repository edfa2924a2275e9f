"""Which files are found, and where caches may live."""

from pathlib import Path

import pytest

from dlmexp.data.places import advice, cache_folders, locate, writable
from dlmexp.data.spec import DatasetSpec, FileSpec


def spec(*files: FileSpec) -> DatasetSpec:
    return DatasetSpec("made_up", "none", "regression", "regression", files=files)


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_files_of_a_group_belong_together(tmp_path):
    both = spec(FileSpec("a/1"), FileSpec("a/2"))
    assert locate(both, tmp_path).state == "missing"
    put(tmp_path, "a/1")
    found = locate(both, tmp_path)
    assert (found.state, [e.name for e in found.absent], list(found.present)) == ("partial", ["a/2"], ["a/1"])
    put(tmp_path, "a/2")
    assert locate(both, tmp_path).files == {"a/1": tmp_path / "a/1", "a/2": tmp_path / "a/2"}


def test_the_first_complete_group_is_read(tmp_path):
    either = spec(FileSpec("a/1", group="x"), FileSpec("a/2", group="y"))
    put(tmp_path, "a/2")
    assert list(locate(either, tmp_path).files) == ["a/2"]
    put(tmp_path, "a/1")
    assert list(locate(either, tmp_path).files) == ["a/1"]


def test_optional_files_and_patterns(tmp_path):
    parts = spec(FileSpec("a/1.npz", optional=True), FileSpec("a/*.npz", optional=True))
    assert locate(parts, tmp_path).state == "missing"
    put(tmp_path, "a/2.npz", "a/1.npz", "a/notes.txt")
    assert sorted(locate(parts, tmp_path).files) == ["a/1.npz", "a/2.npz"]


def test_files_of_a_package(tmp_path):
    packaged = spec(FileSpec("errors.py", package="dlmexp"))
    assert locate(packaged, tmp_path).files["errors.py"].name == "errors.py"
    absent = spec(FileSpec("x.csv", package="no_such_package_here"))
    assert locate(absent, tmp_path).state == "missing"
    assert "pip install no_such_package_here" in advice(absent, locate(absent, tmp_path), tmp_path)


def test_advice_names_files_commands_and_pages(tmp_path):
    fetched = spec(FileSpec("a/1", url="http://x/1"), FileSpec("a/2", url="http://x/2"))
    put(tmp_path, "a/1")
    text = advice(fetched, locate(fetched, tmp_path), tmp_path)
    assert "has a/1 but not a/2" in text
    assert "dlmexp data fetch made_up" in text
    by_hand = spec(FileSpec("b/1", page="http://page"))
    text = advice(by_hand, locate(by_hand, tmp_path), tmp_path)
    assert "fetch" not in text
    assert "import made_up FILE...' with files from http://page" in text


def test_cache_is_beside_the_file_or_in_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DLMEXP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    root = tmp_path / "root"
    inside, outside = cache_folders(root / "a" / "f", root), cache_folders(tmp_path / "elsewhere" / "f", root)
    assert inside[0] == root / "a" / ".cache"
    assert [folder.parent for folder in (inside[1], *outside)] == [tmp_path / "xdg" / "dlmexp"] * 2
    assert inside[1] != outside[0]
    monkeypatch.setenv("DLMEXP_CACHE", str(tmp_path / "own"))
    assert [folder.parent for folder in cache_folders(root / "a" / "f", root)] == [tmp_path / "own"]


def test_writable(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    assert writable(tmp_path / "not" / "yet" / "there")
    assert not writable(tmp_path / "closed" / "inner")
    (tmp_path / "file").touch()
    assert not writable(tmp_path / "file" / "inner")


@pytest.mark.parametrize("name", ["a/1", "a/*.npz"])
def test_folders_are_not_files(tmp_path, name):
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "x.npz").mkdir()
    assert locate(spec(FileSpec(name)), tmp_path).state == "missing"
