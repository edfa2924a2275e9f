"""What an experiment consists of, and that its data stays what it was."""

from dataclasses import replace

import pytest
from test_cell import PLAIN

from dlmexp.errors import UserError
from dlmexp.records.manifest import remember, remembered, same_data

CELLS = [replace(PLAIN, seed=seed) for seed in range(3)]


def test_cells_add_up_over_runs(tmp_path):
    remember(tmp_path, "one", CELLS[:2])
    remember(tmp_path, "one", CELLS[1::-1])
    assert len(list((tmp_path / "one" / "cells").iterdir())) == 1
    remember(tmp_path, "one", CELLS[1:])
    remember(tmp_path, "two", CELLS[:1])
    found = remembered(tmp_path)
    assert found["one"] == {cell.key: cell.describe() for cell in CELLS}
    assert found["two"].keys() == {CELLS[0].key}


def test_nothing_remembered(tmp_path):
    assert remembered(tmp_path) == {}


def test_changed_data_is_refused_with_both_checksums(tmp_path):
    same_data(tmp_path, "mine", "a" * 64)
    same_data(tmp_path, "mine", "a" * 64)
    same_data(tmp_path, "other", "b" * 64)
    with pytest.raises(UserError, match="'mine' has changed") as found:
        same_data(tmp_path, "mine", "b" * 64)
    assert "a" * 16 in str(found.value)
    assert "b" * 16 in str(found.value)
    assert str(tmp_path) in str(found.value)


def test_what_is_not_a_list_of_cells_is_skipped(tmp_path):
    remember(tmp_path, "one", CELLS)
    (tmp_path / "one" / "cells" / "notes.txt").write_bytes(b"\xff caf\xe9\n")
    (tmp_path / "one" / "cells" / "folder.txt").mkdir()
    (tmp_path / "foreign" / "cells").mkdir(parents=True)
    (tmp_path / "foreign" / "cells" / "a.txt").write_text("not a cell\n")
    assert remembered(tmp_path) == {"one": {cell.key: cell.describe() for cell in CELLS}}


def test_a_torn_list_of_cells_is_written_again(tmp_path):
    remember(tmp_path, "one", CELLS)
    (path,) = (tmp_path / "one" / "cells").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert remembered(tmp_path) == {}
    remember(tmp_path, "one", CELLS)
    assert remembered(tmp_path)["one"].keys() == {cell.key for cell in CELLS}


@pytest.mark.parametrize("content", [b"", b'{"dataset": "mi', b"[]", b"{}", b"\xff"])
def test_a_torn_checksum_is_named_and_left_alone(tmp_path, content):
    same_data(tmp_path, "mine", "a" * 64)
    path = tmp_path / "data" / "mine.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.json' is torn.*delete that file if it is, or give another folder"):
        same_data(tmp_path, "mine", "a" * 64)
    assert path.read_bytes() == content
