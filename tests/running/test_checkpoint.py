"""Checkpoints: there and back, what becomes of damaged ones."""

import numpy as np
import pytest
from msgspec.structs import replace

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


def test_there_and_back(tmp_path):
    store = Store(tmp_path)
    path = _saved(store)
    assert path == checkpoint.path_of(store, CELLS[::-1]) != checkpoint.path_of(store, CELLS[:2])
    assert SAVED.open == (CELLS[0], CELLS[2])
    assert checkpoint.find(store) == {path: SAVED}
    for name, array in checkpoint.read_tensors(path).items():
        assert np.array_equal(array, ARRAYS[name])


@pytest.mark.parametrize("wrong", [{"cells": CELLS[:2]}, {"unrecorded": [3]}, {"seconds": [1.0]}])
def test_what_does_not_belong_together_is_quarantined(tmp_path, wrong):
    path = _saved(Store(tmp_path), **wrong)
    assert checkpoint.find(Store(tmp_path)) == {}
    assert not path.exists()
