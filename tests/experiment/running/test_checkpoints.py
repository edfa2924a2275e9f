"""Checkpoints on disk, and the order in which batches are resumed."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.common.reading.files import read_npz
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import (
    Checkpoint,
    checkpoint_path,
    find_checkpoints,
    read_checkpoint,
    save_checkpoint,
    training_queue,
)
from tests.support.cells import PLAIN, scored

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
OTHERS = tuple(replace(PLAIN, seed=seed) for seed in range(5, 7))
SOUND = Checkpoint(CELLS, [0, 2], inside=[0, 2], seconds=[1.0, 2.0], curves=[[], []], iteration=7)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def save(store, checkpoint=SOUND, **changes):
    save_checkpoint(store, replace(checkpoint, **changes), {})


def test_saved_checkpoint_is_read_back(store):
    curve = [(10, {"nll": math.nan, "error": np.float64(0.25)})]
    checkpoint = replace(SOUND, curves=[curve, []])
    save_checkpoint(store, checkpoint, {"values/m": np.arange(3)})
    (path,) = find_checkpoints(store)
    read = read_checkpoint(store, path)
    assert read is not None
    ((iteration, metrics),) = read.curves[0]
    assert (iteration, metrics["error"]) == (10, 0.25)
    assert math.isnan(metrics["nll"])
    assert replace(read, curves=[]) == replace(checkpoint, curves=[])
    assert read_npz(path)["values/m"].tolist() == [0, 1, 2]


def test_open_cells_are_those_without_a_record():
    assert SOUND.unrecorded_cells == (CELLS[0], CELLS[2])


def test_name_does_not_depend_on_the_order_of_cells(store):
    assert checkpoint_path(store, CELLS) == checkpoint_path(store, CELLS[::-1])
    assert checkpoint_path(store, CELLS) != checkpoint_path(store, CELLS[:2])


def test_missing_checkpoint_is_none(store):
    assert read_checkpoint(store, checkpoint_path(store, CELLS)) is None
    assert not (store.root / "quarantine").exists()


@pytest.mark.parametrize(
    ("cells_of_name", "changes"),
    [
        (CELLS[:2], {}),
        (CELLS, {"unrecorded": [3]}),
        (CELLS, {"inside": [0, 3]}),
        (CELLS, {"seconds": [1.0]}),
        (CELLS, {"curves": [[]]}),
        (CELLS, {"inside": [0]}),
    ],
)
def test_checkpoint_that_does_not_fit_its_cells_is_quarantined(store, cells_of_name, changes):
    save(store, **changes)
    path = checkpoint_path(store, CELLS).rename(checkpoint_path(store, cells_of_name))
    assert find_checkpoints(store) == {}
    assert not path.exists()
    assert len(list((store.root / "quarantine").glob("*.why"))) == 1


def test_checkpoint_of_cells_that_can_not_share_a_batch_is_quarantined(store):
    cells = (PLAIN, replace(PLAIN, n=50))
    save_checkpoint(store, Checkpoint(cells, [0, 1]), {})
    assert find_checkpoints(store) == {}


def test_torn_checkpoint_is_quarantined(store):
    save(store)
    (path,) = find_checkpoints(store)
    path.write_bytes(path.read_bytes()[:100])
    assert read_checkpoint(store, path) is None
    assert not path.exists()


def test_batch_of_a_checkpoint_comes_first_with_all_its_cells(store):
    save(store)
    assert training_queue(store, [OTHERS, CELLS[2:]]) == [
        (CELLS, (CELLS[0], CELLS[2])),
        (OTHERS, OTHERS),
    ]


def test_cell_of_a_checkpoint_that_got_a_record_meanwhile_needs_none(store):
    save(store)
    store.write(scored(CELLS[0]))
    assert training_queue(store, [CELLS[2:]]) == [(CELLS, (CELLS[2],))]


def test_cells_of_a_batch_that_are_in_no_checkpoint_train_on_their_own(store):
    save(store)
    assert training_queue(store, [(CELLS[2], *OTHERS)]) == [
        (CELLS, (CELLS[0], CELLS[2])),
        (OTHERS, OTHERS),
    ]


def test_checkpoint_of_other_cells_is_left_alone(store):
    save(store)
    assert training_queue(store, [OTHERS]) == [(OTHERS, OTHERS)]
    assert len(find_checkpoints(store)) == 1


@pytest.mark.parametrize(("read_only", "left"), [(False, 0), (True, 1)])
def test_checkpoint_whose_cells_are_all_recorded_is_deleted(store, read_only, left):
    save(store)
    for cell in SOUND.unrecorded_cells:
        store.write(scored(cell))
    assert training_queue(Store(store.root, read_only=read_only), []) == []
    assert len(find_checkpoints(store)) == left


def test_failed_cell_of_a_checkpoint_that_is_retried_is_resumed(store):
    save(store)
    for cell in SOUND.unrecorded_cells:
        store.write(scored(cell, "failed"))
    assert training_queue(store, [CELLS[2:]]) == [(CELLS, SOUND.unrecorded_cells)]
