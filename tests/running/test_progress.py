"""The progress display: counts that add up, and time left from measured speed."""

from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from dlmexp.running.presence import BatchProgress, RunProgress
from msgspec.structs import replace
from rich.console import Console

from dlmexp.running import progress as module
from dlmexp.running.progress import LiveProgress, PlainProgress, described, progress_display
from tests.support.banana import PLAIN, record


def _training(iteration, cells=2):
    history = torch.full((cells, 10), torch.nan)
    history[:, :iteration] = 1.25
    state = SimpleNamespace(history=history)
    return SimpleNamespace(state=state, iteration=iteration, cells=range(cells), live=lambda: torch.ones(cells))


def test_plain_lines(capsys):
    shown = PlainProgress(5, 2)
    shown.started((PLAIN, replace(PLAIN, seed=1)))
    shown.resumed(40)
    shown.finished(record(PLAIN))
    shown.finished(record(replace(PLAIN, seed=1), "failed"))
    shown.halved(2, 2)
    said = capsys.readouterr().out
    assert "batch 1/2  banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)" in said
    assert "resumes at iteration 40" in said
    assert "failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: a reason (iteration 7)" in said
    assert "out of memory with 2 cells" in said
    assert (shown.done, shown.failed, shown.settled, shown.batches) == (1, 1, 2, 3)


def test_a_batch_that_did_not_fit_into_memory_is_counted_when_it_starts_again(capsys):
    shown = PlainProgress(4, 2)
    for _ in range(2):
        shown.started((PLAIN,))
    shown.fewer(2)
    shown.started((PLAIN,))
    shown.halved(4, 2)
    for _ in range(2):
        shown.started((PLAIN,))
    numbers = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")]
    assert numbers == ["1/2", "2/2", "2/2", "2/3", "3/3"]


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
        training.state, training.iteration = _training(iteration).state, iteration
        shown.tick((PLAIN,), training)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "0/4 cells, 0 failed; it 8, 2 live, 0.33 it/s, objective 1.2500" in said


def test_several_batches_at_once(monkeypatch):
    shown = PlainProgress(9, 3)
    first, second = _training(0, cells=2), _training(0, cells=5)
    for moment, iteration in ((0, 0), (2, 8)):
        monkeypatch.setattr(module.time, "monotonic", lambda moment=moment: shown.began + moment)
        for training in (first, second):
            training.state, training.iteration = _training(iteration, len(training.cells)).state, iteration
            shown.tick((PLAIN,), training)
    assert shown.numbers == "2 batches at once, 7 live, 28 model-steps/s"
    shown.ended(second)
    monkeypatch.setattr(module.time, "monotonic", lambda: shown.began + 4)
    first.state, first.iteration = _training(9).state, 9
    shown.tick((PLAIN,), first)
    assert shown.numbers == "it 9, 2 live, 0.5 it/s, objective 1.2500"
    monkeypatch.setattr(module.time, "monotonic", lambda: shown.began + 5)
    shown.tick((PLAIN,), first)
    assert "0.5 it/s" in shown.numbers, "a look between two steps tells nothing of their speed"


def test_what_others_are_told(monkeypatch):
    shown = PlainProgress(9, 3)
    nothing = RunProgress(settled=0, total=9, failed=0, seconds_left=None, batches=())
    assert shown.so_far() == nothing
    batch, training = tuple(replace(PLAIN, seed=seed) for seed in (0, 1)), _training(0)
    for moment, iteration in ((0, 0), (2, 8)):
        monkeypatch.setattr(module.time, "monotonic", lambda moment=moment: shown.began + moment)
        training.state, training.iteration = _training(iteration).state, iteration
        shown.tick(batch, training)
    shown.done = 3
    told = shown.so_far()
    assert (told.settled, told.total, told.seconds_left) == (3, 9, 4)
    (one,) = told.batches
    assert one == BatchProgress(
        what=described(batch), cells=2, live=2, iteration=8, limit=3000, rate=4.0, objective=1.25
    )
    assert one.most_seconds_left == 748
    shown.ended(training)
    assert shown.so_far().batches == ()


def test_of_several_batches_the_objective_is_looked_at_every_few_seconds(monkeypatch):
    """It is a wait for the device."""
    shown, first, second = PlainProgress(9, 3), _training(1), _training(1)
    for iteration, (moment, value) in enumerate(((0, 1.0), (4, 2.0), (5.5, 3.0)), start=1):
        monkeypatch.setattr(module.time, "monotonic", lambda moment=moment: shown.began + moment)
        for training in (first, second):
            training.iteration = iteration
            training.state.history[:, iteration - 1] = value
            shown.tick((PLAIN,), training)
        expected = 3.0 if value == 3.0 else 1.0
        assert [one.objective for one in shown.so_far().batches] == [expected, expected]


def test_whoever_waits_says_so_instead_of_old_numbers(monkeypatch, capsys):
    shown = PlainProgress(4, 1)
    shown.started((PLAIN,))
    shown.tick((PLAIN,), _training(3))
    monkeypatch.setattr(module.time, "monotonic", lambda: shown.began + 11)
    shown.waiting("another process")
    assert "0/4 cells, 0 failed; waiting for cells that another process trains, ? left" in capsys.readouterr().out


def test_live_progress_on_a_terminal():
    out = StringIO()
    shown = LiveProgress(2, 1, Console(file=out, force_terminal=True, width=120))
    with shown:
        shown.started((PLAIN,))
        shown.tick((PLAIN,), _training(3))
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


def test_time_left_is_the_forecasts_where_there_is_one():
    """It is told of every look, record and skipped batch."""

    class Told:
        def __init__(self):
            self.heard = []

        def seconds_left(self):
            return 42.0

        def seen(self, live, inside, iteration):
            self.heard.append(("seen", [cell.seed for cell in live], inside, iteration))

        def finished(self, record):
            self.heard.append(("finished", record.cell.seed))

        def skipped(self, cells):
            self.heard.append(("skipped", len(cells)))

    told = Told()
    shown = PlainProgress(5, 2, told)  # pyright: ignore[reportArgumentType]
    assert shown.left == "42 s"
    cells = tuple(replace(PLAIN, seed=seed) for seed in range(3))
    training = _training(4)
    training.cells, training.live = [0, 2], lambda: torch.tensor([False, True])
    shown.tick(cells, training)
    shown.finished(record(cells[0]))
    shown.skipped(cells[1:])
    assert told.heard == [("seen", [2], 2, 4), ("finished", 0), ("skipped", 2)]
    assert shown.settled == 3
    assert shown.so_far().seconds_left == 42
