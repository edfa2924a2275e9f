"""Checkpoints: there and back, what becomes of damaged ones."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.errors import Unreadable
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.checkpoint import Checkpoint
from tests.support.cells import PLAIN

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
ARRAYS = {"values/m": np.linspace(0, 1, 40), "iteration": np.array(7)}
SAVED = Checkpoint(CELLS, [0, 2], inside=[0, 2], seconds=[1.0, 2.0], curves=[{}, {}], iteration=7)


def _saved(store, **changes):
    path = checkpoint.path_of(store, CELLS)
    checkpoint.save(path, replace(SAVED, **changes), ARRAYS)
    return path


def _is_what_was_written(store, path):
    assert checkpoint.find(store) == {path: SAVED}
    for name, array in checkpoint.read_tensors(path).items():
        assert np.array_equal(array, ARRAYS.get(name, array))


def test_there_and_back(tmp_path):
    store = Store(tmp_path)
    path = _saved(store)
    assert path == checkpoint.path_of(store, CELLS[::-1]) != checkpoint.path_of(store, CELLS[:2])
    assert SAVED.open == (CELLS[0], CELLS[2])
    _is_what_was_written(store, path)


@pytest.mark.parametrize("wrong", [{"cells": CELLS[:2]}, {"unrecorded": [3]}, {"seconds": [1.0]}])
def test_what_does_not_belong_together_is_quarantined(tmp_path, wrong):
    path = _saved(Store(tmp_path), **wrong)
    assert checkpoint.find(Store(tmp_path)) == {}
    assert not path.exists()


@pytest.mark.slow
@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.none() | st.integers(0, 7))
def test_a_damaged_file_is_quarantined_or_what_was_written(tmp_path_factory, place, bit):
    """A flipped bit, or less than all of it: never an error, and never another number than was written."""
    store = Store(tmp_path_factory.mktemp("flip"))
    path = _saved(store)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    content[at:] = b"" if bit is None else bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    path.write_bytes(content)
    if path not in checkpoint.find(store):
        assert [p.read_bytes() for p in (store.root / "quarantine").glob("*.npz")] == [content]
        return
    with suppress(Unreadable):  # the engine sets it aside then
        _is_what_was_written(store, path)
