"""The progress display: counts that add up, and time left from measured speed."""

from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from dlmexp.running import progress as module
from dlmexp.running.progress import LiveProgress, PlainProgress, progress_display
from tests.support.banana import PLAIN, record


def _training(iteration, cells=2):
    history = torch.full((cells, 10), torch.nan)
    history[:, :iteration] = 1.25
    state = SimpleNamespace(iteration=torch.tensor(iteration), history=history)
    return SimpleNamespace(state=state, cells=range(cells), live=lambda: torch.ones(cells))


def test_plain_lines(capsys):
    shown = PlainProgress(5, 2)
    shown.started((PLAIN, replace(PLAIN, seed=1)))
    shown.resumed(40)
    shown.finished(record(PLAIN))
    shown.finished(record(replace(PLAIN, seed=1), "failed"))
    shown.halved(2)
    said = capsys.readouterr().out
    assert "batch 1/2  banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)" in said
    assert "resumes at iteration 40" in said
    assert "failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: a reason (iteration 7)" in said
    assert "out of memory with 2 cells" in said
    assert (shown.done, shown.failed, shown.settled, shown.batches) == (1, 1, 2, 3)


def test_time_left_from_the_speed_so_far(monkeypatch):
    shown = PlainProgress(10, 1)
    assert shown.left == "?"
    shown.done = 2
    for elapsed, expected in ((10, "40 s"), (100, "7 min"), (5000, "5.6 h")):
        monkeypatch.setattr(module.time, "monotonic", lambda elapsed=elapsed: shown.began + elapsed)
        assert shown.left == expected


def test_progress_every_ten_seconds(monkeypatch, capsys):
    shown = PlainProgress(4, 1)
    began = shown.began
    training = _training(0)
    for moment, iteration in ((0, 1), (0.1, 2), (5, 6), (11, 8)):
        monkeypatch.setattr(module.time, "monotonic", lambda moment=moment: began + moment)
        training.state = _training(iteration).state
        shown.tick(training)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "0/4 cells, 0 failed; it 8, 2 live, 0 it/s, objective 1.2500" in said


def test_several_batches_at_once(monkeypatch):
    shown = PlainProgress(9, 3)
    first, second = _training(0, cells=2), _training(0, cells=5)
    for moment, iteration in ((0, 0), (2, 8)):
        monkeypatch.setattr(module.time, "monotonic", lambda moment=moment: shown.began + moment)
        for training in (first, second):
            training.state = _training(iteration, len(training.cells)).state
            shown.tick(training)
    assert shown.numbers == "2 batches at once, 7 live, 28 model-steps/s"
    second.live = lambda: torch.zeros(5)
    monkeypatch.setattr(module.time, "monotonic", lambda: shown.began + 3)
    shown.tick(second)
    assert shown.numbers == "it 8, 2 live, 4 it/s, objective 1.2500"


def test_whoever_waits_says_so_instead_of_old_numbers(monkeypatch, capsys):
    shown = PlainProgress(4, 1)
    shown.started((PLAIN,))
    shown.tick(_training(3))
    monkeypatch.setattr(module.time, "monotonic", lambda: shown.began + 11)
    shown.waiting("another process")
    assert "0/4 cells, 0 failed; waiting for cells that another process trains, ? left" in capsys.readouterr().out


def test_live_progress_on_a_terminal():
    out = StringIO()
    shown = LiveProgress(2, 1, Console(file=out, force_terminal=True, width=120))
    with shown:
        shown.started((PLAIN,))
        shown.tick(_training(3))
        shown.finished(record(PLAIN, "failed"))
        shown.waiting("another process")
    said = out.getvalue()
    assert "a reason" in said
    assert "waiting for cells that another process trains" in said
    assert "1/2" in said


@pytest.mark.parametrize(("terminal", "kind"), [(True, LiveProgress), (False, PlainProgress)])
def test_the_one_that_fits(monkeypatch, terminal, kind):
    monkeypatch.setattr(
        module.sys, "stdout", SimpleNamespace(isatty=lambda: terminal, write=lambda _: 0, flush=lambda: None)
    )
    assert type(progress_display(1, 1)) is kind
