"""Checkpoints: there and back, what becomes of damaged ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from tests.support.cells import PLAIN

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
ARRAYS = {"values/m": np.linspace(0, 1, 40), "iteration": np.array(7)}
NOTES = checkpoint.Notes(open=[0, 2], cells=[0, 2], seconds=[1.0, 2.0], curves=[{}, {}], iteration=7)


def _saved(store):
    path = checkpoint.path_of(store, CELLS)
    checkpoint.save(path, CELLS, NOTES, ARRAYS)
    return path


def test_there_and_back(tmp_path):
    store = Store(tmp_path)
    path = _saved(store)
    assert path == checkpoint.path_of(store, CELLS[::-1]) != checkpoint.path_of(store, CELLS[:2])
    ((at, found),) = checkpoint.find(store).items()
    assert (at, found.cells, found.open, found.notes) == (path, CELLS, (CELLS[0], CELLS[2]), NOTES)
    assert {name: array.tolist() for name, array in checkpoint.read_tensors(path).items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_damaged_file_is_quarantined_or_what_was_written(tmp_path_factory, data):
    """A flipped bit, or less than all of it: never an error, and never another number than was written."""
    store = Store(tmp_path_factory.mktemp("flip"))
    path = _saved(store)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    path.write_bytes(content)
    found = checkpoint.find(store)
    assert (path in found) == path.exists()
    if not found:
        assert [p.read_bytes() for p in (store.root / "quarantine").glob("*.npz")] == [content]
        return
    assert found[path].cells == CELLS
    try:
        arrays = checkpoint.read_tensors(path)
    except Exception:
        return  # what the engine sets aside
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in arrays.items() if name in ARRAYS)
