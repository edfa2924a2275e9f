"""Checkpoints: there and back, what becomes of damaged ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.checkpoint import Checkpoint
from tests.support.cells import PLAIN

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
ARRAYS = {"values/m": np.linspace(0, 1, 40), "iteration": np.array(7)}
SAVED = Checkpoint(CELLS, [0, 2], inside=[0, 2], seconds=[1.0, 2.0], curves=[{}, {}], iteration=7)


def _saved(store, saved=SAVED):
    path = checkpoint.path_of(store, CELLS)
    checkpoint.save(path, saved, ARRAYS)
    return path


def test_there_and_back(tmp_path):
    store = Store(tmp_path)
    path = _saved(store)
    assert path == checkpoint.path_of(store, CELLS[::-1]) != checkpoint.path_of(store, CELLS[:2])
    assert checkpoint.find(store) == {path: SAVED}
    assert SAVED.open == (CELLS[0], CELLS[2])
    tensors = checkpoint.read_tensors(path)
    assert {name: array.tolist() for name, array in tensors.items()} == {n: a.tolist() for n, a in ARRAYS.items()}


@pytest.mark.parametrize("wrong", [{"cells": CELLS[:2]}, {"unrecorded": [3]}, {"seconds": [1.0]}])
def test_what_does_not_belong_together_is_quarantined(tmp_path, wrong):
    path = _saved(Store(tmp_path), replace(SAVED, **wrong))
    assert checkpoint.find(Store(tmp_path)) == {}
    assert not path.exists()


@pytest.mark.slow
@settings(max_examples=60)
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
    readable = checkpoint.find(store)
    assert (path in readable) == path.exists()
    if not readable:
        assert [p.read_bytes() for p in (store.root / "quarantine").glob("*.npz")] == [content]
        return
    assert readable[path].cells == CELLS
    try:
        arrays = checkpoint.read_tensors(path)
    except Exception:
        return  # what the engine sets aside
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in arrays.items() if name in ARRAYS)
