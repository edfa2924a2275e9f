"""What an experiment consists of, and that its data stays what it was."""

from dataclasses import replace

import pytest
from test_cell import PLAIN

from dlmexp.errors import UserError
from dlmexp.sweep.manifest import remember, remembered, same_data

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
