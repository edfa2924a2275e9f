"""The progress display: counts that add up, numbers of batches, and what other processes are told."""

from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from dlmexp.running import progress as module
from dlmexp.running.leases import BatchProgress, RunProgress
from dlmexp.running.progress import LiveProgress, Progress, described, progress_display
from tests.support.cells import PLAIN, scored


@pytest.fixture
def clock(monkeypatch):
    """Sets the moment."""
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return lambda moment: now.__setitem__(0, moment)


def _training(cells=2):
    history = torch.full((cells, 10), 1.25)
    return SimpleNamespace(
        state=SimpleNamespace(history=history), iteration=0, cells=range(cells), live=lambda: torch.ones(cells)
    )


def _look(shown, training, iteration, cells=(PLAIN,)):
    training.iteration = iteration
    shown.tick(cells * len(training.cells), training)


def test_counts_and_messages(capsys):
    shown = Progress(5, 2)
    shown.started((PLAIN, replace(PLAIN, seed=1)))
    shown.finished(scored(PLAIN))
    shown.finished(scored(replace(PLAIN, seed=1), "failed"))
    shown.skipped((PLAIN, PLAIN))
    said = capsys.readouterr().out
    assert "batch 1/2  banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)" in said
    assert "failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: no reason (iteration 3)" in said
    assert (shown.done, shown.failed, shown.settled) == (1, 1, 4)
    shown = Progress(4, 2)
    for event in ("start", "start", "fewer", "start", "halved", "start", "start"):
        if event == "start":
            shown.started((PLAIN,))
        else:
            shown.out_of_memory(**({"batches": 2} if event == "fewer" else {"cells": 4, "parts": 2}))
    numbers = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")]
    assert numbers == ["1/2", "2/2", "2/2", "2/3", "3/3"], "a batch that starts again is not counted twice"


def test_batches_at_once_and_what_others_are_told(clock):
    """The objective of batches at once is looked at every few seconds: it is a wait for the device."""
    shown, first, second = Progress(9, 3), _training(2), _training(5)
    assert shown.so_far() == RunProgress(settled=0, total=9, failed=0, seconds_left=None, batches=())
    for moment, iteration, objective in ((0, 1, 1.0), (4, 9, 2.0)):
        clock(moment)
        for training in (first, second):
            training.state.history[:] = objective
            _look(shown, training, iteration)
    assert shown.numbers == "2 batches at once, 7 live, 14 model-steps/s"
    told = BatchProgress(
        what=described((PLAIN, PLAIN)), cells=2, live=2, iteration=9, limit=3000, rate=2.0, objective=1.0
    )
    assert shown.so_far().batches[0] == told
    assert told.most_seconds_left == (3000 - 9) / 2
    shown.ended(second)
    clock(8)
    _look(shown, first, 10)
    assert shown.numbers == "it 10, 2 live, 1.1 it/s, objective 2.0000"


def test_live_progress_on_a_terminal(monkeypatch):
    out = StringIO()
    shown = LiveProgress(2, 1, console=Console(file=out, force_terminal=True, width=120))
    with shown:
        shown.started((PLAIN,))
        _look(shown, _training(), 3)
        shown.finished(scored(PLAIN, "failed"))
        shown.waiting("another process")
    for words in ("no reason", "waiting for cells that another process trains", "1/2"):
        assert words in out.getvalue()
    for terminal, kind in ((True, LiveProgress), (False, Progress)):
        stdout = SimpleNamespace(isatty=lambda terminal=terminal: terminal, write=lambda _: 0, flush=lambda: None)
        monkeypatch.setattr(module.sys, "stdout", stdout)
        assert type(progress_display(1, 1)) is kind
