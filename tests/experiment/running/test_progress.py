"""What is shown of a run: counts that add up, messages, and what other processes read."""

import errno
import os
import sys
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running import progress as module
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.leases import BatchProgress
from dlmexp.experiment.running.process import StopRequest
from dlmexp.experiment.running.progress import Progress, describe_batch
from tests.support.cells import PLAIN, scored
from tests.support.training import batch_of, look

CELLS = batch_of(9)


@pytest.fixture
def now(monkeypatch):
    """The time, in its only element."""
    moment = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


def progress_of_two_batches(console=None):
    return Progress(Clock([CELLS[:2], CELLS[2:]]), StopRequest(), console)


def test_batch_is_described_in_one_line():
    assert describe_batch(CELLS[:2]) == (
        "banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)"
    )
    betas = tuple(replace(PLAIN, beta=beta) for beta in (1.0, 0.1))
    assert describe_batch(betas).endswith(": 2 cells (1 seed, 2 betas)")


def test_start_of_a_batch_is_a_line(capsys):
    progress = progress_of_two_batches()
    progress.note_start(CELLS[:2])
    assert capsys.readouterr().out == f"batch 1/2  {describe_batch(CELLS[:2])}\n"


def test_done_failed_and_skipped_cells_are_settled(capsys):
    progress = progress_of_two_batches()
    progress.note_record(scored(CELLS[0]))
    progress.note_record(scored(CELLS[1], "failed"))
    progress.note_records_elsewhere(CELLS[2:4])
    assert (progress.failed, progress.settled, progress.total) == (1, 4, 9)
    assert capsys.readouterr().out == (
        "  failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: no reason (iteration 3)\n"
    )


def test_batch_that_starts_again_after_out_of_memory_is_not_counted_twice(capsys):
    progress = progress_of_two_batches()
    progress.note_start(CELLS[:2])
    progress.note_start(CELLS[2:])
    for in_memory, parts in (("2 batches", 1), ("4 cells", 2)):
        progress.note_out_of_memory(in_memory, parts)
        progress.note_start(CELLS[2:])
    progress.note_start(CELLS[2:])
    lines = capsys.readouterr().out.splitlines()
    numbers = [line.split()[1] for line in lines if line.startswith("batch")]
    assert numbers == ["1/2", "2/2", "2/2", "2/3", "3/3"]
    assert "  out of memory with 4 cells at once: going on with fewer" in lines


def test_new_run_has_no_numbers():
    progress = progress_of_two_batches()
    assert progress.description == ""
    assert progress.left == "?"
    assert progress.process_fields() == {
        "settled": 0,
        "total": 9,
        "failed": 0,
        "seconds_left": None,
        "batches": (),
    }


def test_numbers_of_one_batch_are_iteration_cells_speed_and_objective(now):
    progress = progress_of_two_batches()
    training: Any = SimpleNamespace()
    look(progress, CELLS[:2], 1, 3.0, training)
    now[0] = 8
    look(progress, CELLS[:2], 17, 2.0, training, live=1)
    assert progress.description == "; iteration 17 of 3000, 1 live, 2 it/s, objective 2.0000"
    assert progress.process_fields()["batches"] == (
        BatchProgress(
            what=describe_batch(CELLS[:2]),
            cells=2,
            live=1,
            iteration=17,
            limit=3000,
            rate=2.0,
            objective=2.0,
        ),
    )


def test_numbers_of_batches_at_once_are_cells_and_speed(now):
    progress = progress_of_two_batches()
    first: Any = SimpleNamespace()
    second: Any = SimpleNamespace()
    for now[0], iteration in ((0, 1), (8, 17)):
        look(progress, CELLS[:2], iteration, training=first)
        look(progress, CELLS[:5], iteration, training=second)
    assert progress.description == "; 2 batches at once, 7 live, 14 model-steps/s"
    progress.note_end(second)
    assert progress.description == "; iteration 17 of 3000, 2 live, 2 it/s, objective 1.0000"


@pytest.mark.parametrize(("concurrent", "seconds"), [(False, 0.25), (True, 5.0)])
def test_batch_is_looked_at_after_a_pause(now, concurrent, seconds):
    """A longer one if batches train at the same time: a look waits for the device."""
    progress = progress_of_two_batches()
    training: Any = SimpleNamespace()
    if concurrent:
        look(progress, CELLS[2:4], 1)
    look(progress, CELLS[:2], 1, training=training)

    def iteration_seen():
        return [batch.iteration for batch in progress.process_fields()["batches"]][-1]

    now[0] = 0.99 * seconds
    look(progress, CELLS[:2], 7, training=training)
    assert iteration_seen() == 1
    now[0] = seconds
    look(progress, CELLS[:2], 8, training=training)
    assert iteration_seen() == 8


def test_cells_in_training_move_the_clock(now):
    progress = progress_of_two_batches()
    look(progress, CELLS[:2], 5, live=1)
    (kind,) = progress.clock.kinds.values()
    assert kind.reached == {CELLS[0].key: 5}


def test_objective_of_a_batch_before_its_first_iteration_is_unknown(now):
    progress = progress_of_two_batches()
    look(progress, CELLS[:2], 0)
    (batch,) = progress.process_fields()["batches"]
    assert (batch.objective, batch.rate) == (None, 0.0)


def test_time_left_is_shown_as_text_and_told_in_seconds(now):
    progress = progress_of_two_batches()
    now[0] = 100.4
    progress.note_record(replace(scored(CELLS[0]), result=Result(iterations=100, seconds=100.4)))
    assert progress.left == "13 min"
    assert progress.process_fields()["seconds_left"] == 803


def test_numbers_are_a_line_every_ten_seconds(now, capsys):
    progress = progress_of_two_batches()
    progress.note_waiting("another process")
    now[0] = 10.0
    progress.show()
    assert capsys.readouterr().out == ""
    now[0] = 10.1
    progress.show()
    progress.show()
    assert capsys.readouterr().out == (
        "  0/9 cells, 0 failed, ? left; waiting for cells that another process trains\n"
    )
    now[0] = 20.2
    look(progress, CELLS[:2], 1)
    assert capsys.readouterr().out == (
        "  0/9 cells, 0 failed, ? left; iteration 1 of 3000, 2 live, 0 it/s, objective 1.0000\n"
    )


def test_bar_on_a_terminal_shows_counts_failures_and_what_happens():
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with progress_of_two_batches(console) as progress:
        progress.note_record(scored(PLAIN, "failed"))
        progress.note_waiting("another process")
    for words in ("no reason", "waiting for cells that another process trains", "1/9"):
        assert words in out.getvalue()


@pytest.fixture
def broken_stdout(monkeypatch):
    """Makes `print` raise an error, and notes that the output is discarded from then on."""
    discarded = []
    monkeypatch.setattr(module, "discard_stdout", lambda: discarded.append(True))

    def install(error):
        def write(_):
            raise error

        monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=write, flush=lambda: None))
        return discarded

    return install


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (BrokenPipeError(), 141, "SIGPIPE"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            1,
            "[Errno 28] can't write to the standard output: No space left on device",
        ),
    ],
)
def test_output_that_nobody_can_read_stops_the_run(broken_stdout, error, code, reason):
    discarded = broken_stdout(error)
    progress = progress_of_two_batches()
    progress.say("a line")
    assert discarded == [True]
    request = progress.stop.requested
    assert request is not None
    assert (request.code, str(request)) == (code, reason)
