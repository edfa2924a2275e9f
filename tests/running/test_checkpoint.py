"""Checkpoints: there and back, and what becomes of damaged ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from tests.support.banana import PLAIN

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
ARRAYS = {"values/m": np.linspace(0, 1, 40), "iteration": np.array(7)}
NOTES = checkpoint.Notes(open=[0, 2], cells=[0, 2], seconds=[1.0, 2.0], curves=[{}, {}], iteration=7)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def _saved(store):
    path = checkpoint.path_of(store, CELLS)
    checkpoint.save(path, CELLS, NOTES, ARRAYS)
    return path


def test_there_and_back(store):
    path = _saved(store)
    (found,) = checkpoint.find(store)
    assert found.path == path
    assert found.cells == CELLS
    assert found.open == [CELLS[0], CELLS[2]]
    assert found.notes == NOTES
    arrays = found.arrays()
    assert arrays.keys() == ARRAYS.keys()
    assert np.array_equal(arrays["values/m"], ARRAYS["values/m"])


def test_named_by_the_set_of_cells(store):
    assert checkpoint.path_of(store, CELLS) == checkpoint.path_of(store, CELLS[::-1])
    assert checkpoint.path_of(store, CELLS) != checkpoint.path_of(store, CELLS[:2])


def test_discarding(store):
    path = _saved(store)
    checkpoint.discard(path)
    checkpoint.discard(path)
    assert checkpoint.find(store) == []


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_flipped_bit_is_noticed_when_it_matters(tmp_path_factory, data):
    """It is never an error, and never another number than was written."""
    store = Store(tmp_path_factory.mktemp("flip"))
    path = _saved(store)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    found = checkpoint.find(store)
    assert len(found) == path.exists()
    if not found:
        assert len(list((store.root / "quarantine").glob("*.npz"))) == 1
        return
    assert found[0].cells == CELLS
    try:
        arrays = found[0].arrays()
    except Exception:
        return  # what the engine sets aside
    for name, array in arrays.items():
        if name in ARRAYS:
            assert np.array_equal(array, ARRAYS[name])


@pytest.mark.parametrize("content", [b"", b"PK", b"something else"])
def test_foreign_files_are_quarantined(store, content):
    path = _saved(store)
    path.write_bytes(content)
    assert checkpoint.find(store) == []
    assert not path.exists()
    assert [p.read_bytes() for p in (store.root / "quarantine").glob("*.npz")] == [content]
