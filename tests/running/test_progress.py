"""The progress display: counts that add up, numbers of batches, and what other processes are told."""

from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from dlmexp.running import progress as module
from dlmexp.running.leases import BatchProgress, RunProgress
from dlmexp.running.progress import Progress, described
from dlmexp.running.signals import StopRequest
from tests.support.cells import PLAIN, scored

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(9))


def _progress(console=None):
    return Progress([CELLS[:2], CELLS[2:]], StopRequest(), console)


def _training(cells=2):
    history = torch.full((cells, 10), 1.25)
    return SimpleNamespace(
        state=SimpleNamespace(history=history), iteration=0, cells=range(cells), live=lambda: torch.ones(cells)
    )


def test_counts_and_messages(capsys):
    shown = _progress()
    shown.started(CELLS[:2])
    shown.finished(scored(CELLS[0]))
    shown.finished(scored(CELLS[1], "failed"))
    shown.skipped(CELLS[2:4])
    said = capsys.readouterr().out
    assert "batch 1/2  banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)" in said
    assert "failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: no reason (iteration 3)" in said
    assert (shown.done, shown.failed, shown.settled, shown.total) == (1, 1, 4, 9)
    for event in ("start", "fewer", "start", "halved", "start", "start"):
        if event == "start":
            shown.started(CELLS[2:])
        else:
            shown.out_of_memory(**({"batches": 2} if event == "fewer" else {"cells": 4, "parts": 2}))
    numbers = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")]
    assert numbers == ["2/2", "2/2", "2/3", "3/3"], "a batch that starts again is not counted twice"


def test_batches_at_once_and_what_others_are_told(monkeypatch):
    """The objective of batches at once is looked at every few seconds: it is a wait for the device."""
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown, first, second = _progress(), _training(2), _training(5)
    assert shown.so_far() == RunProgress(settled=0, total=9, failed=0, seconds_left=None, batches=())

    def look(training, iteration):
        training.iteration = iteration
        shown.tick(CELLS[: len(training.cells)], training)

    for now[0], iteration, objective in ((0, 1, 1.0), (4, 9, 2.0)):
        for training in (first, second):
            training.state.history[:] = objective
            look(training, iteration)
    assert shown.numbers == "2 batches at once, 7 live, 14 model-steps/s"
    assert shown.so_far().batches[0] == BatchProgress(
        what=described(CELLS[:2]), cells=2, live=2, iteration=9, limit=3000, rate=2.0, objective=1.0,
        most_seconds_left=(3000 - 9) / 2,
    )  # fmt: skip
    shown.ended(second)
    now[0] = 8
    look(first, 10)
    assert shown.numbers == "it 10, 2 live, 1.1 it/s, objective 2.0000"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_a_terminal(monkeypatch, terminal):
    out = StringIO()
    with _progress(Console(file=out, force_terminal=True, width=120)) as shown:
        shown.started(CELLS[:1])
        shown.finished(scored(PLAIN, "failed"))
        shown.waiting("another process")
    for words in ("no reason", "waiting for cells that another process trains", "1/9"):
        assert words in out.getvalue()
    monkeypatch.setenv("TERM", "xterm")
    stdout = SimpleNamespace(isatty=lambda: terminal, write=lambda _: 0, flush=lambda: None)
    monkeypatch.setattr(module.sys, "stdout", stdout)
    assert (module.progress_display([], StopRequest())._bar is not None) == terminal
