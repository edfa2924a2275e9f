"""Which raw files are found, and the message about missing ones."""

from pathlib import Path

import pytest

from dlmexp.data.raw_files import find_files, how_to_get
from dlmexp.data.spec import DatasetSpec, FileSpec


def spec(*files: FileSpec) -> DatasetSpec:
    return DatasetSpec("made_up", "none", "regression", "regression", files=files)


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_all_files_of_a_group_are_needed(tmp_path):
    both = spec(FileSpec("a/1"), FileSpec("a/2"))
    assert find_files(both, tmp_path).state == "missing"
    put(tmp_path, "a/1")
    found = find_files(both, tmp_path)
    assert (found.state, [e.name for e in found.missing], list(found.present)) == ("partial", ["a/2"], ["a/1"])
    put(tmp_path, "a/2")
    assert find_files(both, tmp_path).files == {"a/1": tmp_path / "a/1", "a/2": tmp_path / "a/2"}


def test_the_first_complete_group_is_read(tmp_path):
    either = spec(FileSpec("a/1", group="x"), FileSpec("a/2", group="y"))
    put(tmp_path, "a/2")
    assert list(find_files(either, tmp_path).files) == ["a/2"]
    put(tmp_path, "a/1")
    assert list(find_files(either, tmp_path).files) == ["a/1"]


def test_optional_files_and_patterns(tmp_path):
    parts = spec(FileSpec("a/1.npz", optional=True), FileSpec("a/*.npz", optional=True))
    assert find_files(parts, tmp_path).state == "missing"
    put(tmp_path, "a/2.npz", "a/1.npz", "a/notes.txt")
    assert sorted(find_files(parts, tmp_path).files) == ["a/1.npz", "a/2.npz"]


def test_files_of_an_installed_package(tmp_path):
    packaged = spec(FileSpec("errors.py", package="dlmexp"))
    assert find_files(packaged, tmp_path).files["errors.py"].name == "errors.py"
    absent = spec(FileSpec("x.csv", package="no_such_package_here"))
    assert find_files(absent, tmp_path).state == "missing"
    assert "pip install no_such_package_here" in how_to_get(absent, find_files(absent, tmp_path), tmp_path)


def test_how_to_get_names_files_commands_and_pages(tmp_path):
    fetched = spec(FileSpec("a/1", url="http://x/1"), FileSpec("a/2", url="http://x/2"))
    put(tmp_path, "a/1")
    text = how_to_get(fetched, find_files(fetched, tmp_path), tmp_path)
    assert "has a/1 but not a/2" in text
    assert f"`dlmexp data fetch made_up --data-root {tmp_path}`" in text
    by_hand = spec(FileSpec("b/1", page="http://page"))
    text = how_to_get(by_hand, find_files(by_hand, tmp_path), tmp_path)
    assert "fetch" not in text
    assert f"import made_up FILE... --data-root {tmp_path}` with files from http://page" in text


@pytest.mark.parametrize("name", ["a/1", "a/*.npz"])
def test_folders_are_not_files(tmp_path, name):
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "x.npz").mkdir()
    assert find_files(spec(FileSpec(name)), tmp_path).state == "missing"
