"""A batch under way: who is live, and whose the time is."""

import numpy as np
import pytest

from dlmexp.core.training.batch import Training
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import CONVERGED, REPORTED, RUNNING
from tests.support.small_programs import program, trained


def started():
    """The training of three cells."""
    return Training.start(program(), Settings(iterations=4, window=None))


def test_live_cells_share_the_seconds_of_a_stretch():
    training = started()
    training.share_time(6.0, np.array([True, False, True]), batches_at_once=1)
    training.share_time(1.0, np.array([True, False, False]), batches_at_once=1)
    assert training.seconds == [4.0, 0.0, 3.0]
    assert training.alone


def test_batches_that_train_at_the_same_time_share_the_seconds():
    training = started()
    training.share_time(6.0, np.array([True, True, True]), batches_at_once=2)
    assert training.seconds == [1.0, 1.0, 1.0]
    assert not training.alone
    training.share_time(6.0, np.array([True, True, True]), batches_at_once=1)
    assert not training.alone


def test_a_finished_fit_has_its_seconds(monkeypatch):
    clock = iter(range(0, 100, 3))
    monkeypatch.setattr("dlmexp.core.training.train.perf_counter", lambda: float(next(clock)))
    finished = trained(program(), Settings(iterations=4, window=None)).values()
    assert [fit.seconds for fit in finished] == pytest.approx([1.0, 1.0, 1.0])


def test_a_stopped_cell_is_unreported_until_it_is_marked():
    training = started()
    training.state.outcome[1] = CONVERGED
    training.fetch()
    assert training.live().tolist() == [True, False, True]
    assert training.unreported().tolist() == [True, True, True]
    training.mark_reported([1])
    assert training.unreported().tolist() == [True, False, True]
    assert training.state.outcome.tolist() == [RUNNING, REPORTED, RUNNING]


def test_keep_continues_with_the_cells_in_their_order():
    training = started()
    training.seconds = [1.0, 2.0, 3.0]
    training.keep([0, 2])
    assert training.cells == [0, 2]
    assert training.seconds == [1.0, 3.0]
    assert training.program.beta.tolist() == [10.0, 0.1]
    assert len(training.live()) == 2
