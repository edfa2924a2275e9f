"""The bound of the time of a run, and the time left."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running import clock as module
from dlmexp.experiment.running.clock import BatchKind, Clock
from dlmexp.experiment.running.process import select_target
from tests.support.cells import PLAIN
from tests.support.training import batch_of

CELLS = batch_of(9)
BATCHES = (batch_of(4, n=50), batch_of(8, n=400), batch_of(8, n=900), batch_of(2, n=900))
LIMIT = PLAIN.iterations


@pytest.fixture
def now(monkeypatch):
    """The time, in its only element."""
    moment = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: moment[0])
    return moment


def bound(monkeypatch, step_seconds, batches=BATCHES, workers=1):
    """Return the bound of a run whose steps take `step_seconds(cells)`."""

    def without_data(cell):
        pytest.fail("no data is needed")

    monkeypatch.setattr(
        module, "step_seconds", lambda cells, prepared, target, threads: step_seconds(cells)
    )
    return Clock(batches).bound(without_data, select_target("cpu", "float64"), workers, 1)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_bound_is_the_time_of_all_steps_and_the_longest_batch_may_be_left_over(
    now, monkeypatch, workers
):
    """A step takes as many seconds as it has rows, in all of its cells."""
    seconds = bound(monkeypatch, lambda cells: len(cells) * cells[0].n, workers=workers)
    alone = sum(len(cells) * cells[0].n * LIMIT for cells in BATCHES)
    longest = len(BATCHES[2]) * 900 * LIMIT
    assert seconds == pytest.approx(alone / workers + longest * (1 - 1 / workers))


@pytest.mark.parametrize(("step", "timed_sizes"), [(1e-4, [900]), (1e-2, [900, 400, 50])])
def test_kinds_with_the_most_work_are_timed_while_that_takes_a_small_share(
    now, monkeypatch, step, timed_sizes
):
    timed = []

    def step_seconds(cells):
        timed.append(cells[0].n)
        now[0] += 0.1
        return step

    assert bound(monkeypatch, step_seconds) > 0
    assert timed == timed_sizes


def test_timing_takes_three_seconds_at_most(now, monkeypatch):
    timed = []

    def step_seconds(cells):
        timed.append(cells[0].n)
        now[0] += 1.6
        return 1e3

    bound(monkeypatch, step_seconds)
    assert timed == [900]


def test_kind_that_is_not_timed_follows_by_its_work(now, monkeypatch):
    def step_seconds(cells):
        now[0] += 10.0
        return 1.0

    small, large = BATCHES[:2]
    seconds = bound(monkeypatch, step_seconds, (small, large))
    ratio = BatchKind(small).work / BatchKind(large).work
    cell_seconds = LIMIT / len(large)
    assert seconds == pytest.approx(cell_seconds * (len(large) + len(small) * ratio))


@pytest.mark.parametrize(
    "cells",
    [batch_of(2, kind="gradient"), batch_of(2, form="collapsed", variant="fixed")],
)
def test_steps_of_gradients_and_closed_forms_are_not_timed(now, monkeypatch, cells):
    assert bound(monkeypatch, lambda cells: pytest.fail("it is timed"), (cells,)) == 0.0


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({}, LIMIT),
        ({"kind": "gradient"}, 150),
        ({"form": "collapsed"}, 1),
        ({"max_iterations": 0}, 1),
    ],
)
def test_limit_of_a_kind_is_its_number_of_steps(values, limit):
    assert BatchKind(batch_of(2, **values)).limit == limit


def test_work_is_that_of_the_products_in_all_steps():
    """M (rows + 4 M) columns, half of it if hyperparameters are held, and a share of a fixed cost."""
    cell = PLAIN
    columns = cell.M + 90 + 2 * 10
    products = cell.M * (cell.n + 4 * cell.M) * columns
    assert BatchKind((cell,) * 4).work == LIMIT * (1e7 / 4 + products / 2)
    joint = replace(cell, variant="joint")
    assert BatchKind((joint,)).work == LIMIT * (1e7 + products)
    minibatch = replace(joint, n=10**6, minibatch=cell.n)
    assert BatchKind((minibatch,)).work == BatchKind((joint,)).work


def test_gradients_are_measured_for_one_cell_after_the_other():
    kind = BatchKind(batch_of(4, kind="gradient", variant="joint"))
    assert kind.work == BatchKind(batch_of(1, kind="gradient", variant="joint")).work


def test_short_runs_are_told_from_long_ones():
    assert Clock([batch_of(2, n=20, M=5, max_iterations=40)]).is_short("cpu")
    assert not Clock(BATCHES * 9).is_short("cpu")
    assert Clock(BATCHES * 9).is_short("cuda")


def finish(clock, cells, iterations, seconds):
    for cell in cells:
        clock.finish(cell, Result(iterations=iterations, seconds=seconds))


def test_time_left_is_unknown_before_a_cell_has_finished():
    clock = Clock([CELLS])
    assert clock.seconds_left(10.0) is None
    clock.finish(CELLS[0], None)  # in another process
    assert clock.seconds_left(10.0) is None


@pytest.mark.parametrize("pace", [0.1, 3.0])
@pytest.mark.parametrize(("iterations", "done"), [(100, 1), (400, 7), (3000, 3)])
def test_time_left_follows_the_speed_and_the_iterations_of_this_run(pace, iterations, done):
    """Nine cells with equal needs, one after the other."""
    clock = Clock([CELLS])
    finish(clock, CELLS[:done], iterations, pace * iterations)
    elapsed = pace * iterations * done
    assert clock.seconds_left(elapsed) == pytest.approx(pace * iterations * (9 - done))


def test_cells_of_other_processes_in_the_same_time_make_the_run_faster():
    clock = Clock([CELLS])
    finish(clock, CELLS[:4], 100, 1.0)
    for cell in CELLS[4:8]:
        clock.finish(cell, None)
    assert clock.seconds_left(4.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("iteration", "left"),
    [
        (0, 1.0),
        (50, 0.5),
        (80, 0.2),
        (100, 0.25),  # it has outlived the mean: a quarter of its iterations more
        (200, 0.5),
        (2900, 1.0),  # its limit is near
    ],
)
def test_cell_in_training_counts_by_how_far_it_is(iteration, left):
    """The others took 100 iterations and one second."""
    clock = Clock([CELLS[:2]])
    finish(clock, CELLS[:1], 100, 1.0)
    clock.reached[CELLS[1].key] = CELLS[1].group, iteration
    spent = 1.0 + iteration / 100
    assert clock.seconds_left(spent) == pytest.approx(left)


def test_nothing_is_left_when_all_cells_have_records():
    clock = Clock([CELLS])
    clock.reached[CELLS[0].key] = CELLS[0].group, 7
    finish(clock, CELLS, 100, 1.0)
    assert clock.seconds_left(9.0) == 0.0


def test_time_of_other_kinds_follows_by_their_work():
    small, large = batch_of(4, n=100), batch_of(4, n=900)
    left = {}
    for known, other in ((small, large), (large, small)):
        clock = Clock([known, other])
        finish(clock, known, 300, 3.0)
        left[other[0].n] = clock.seconds_left(12.0)
    ratio = BatchKind(large).work / BatchKind(small).work
    assert left[900] == pytest.approx(12.0 * ratio)
    assert left[100] == pytest.approx(12.0 / ratio)


def test_result_without_seconds_counts_as_one_iteration():
    clock = Clock([CELLS])
    clock.finish(CELLS[0], Result())
    (kind,) = clock.kinds.values()
    assert (kind.finished, kind.iterations, kind.seconds, kind.waiting) == (1, 1, 0.0, 8)


def test_cell_of_another_run_changes_nothing():
    clock = Clock([CELLS])
    clock.finish(replace(PLAIN, n=7), Result(iterations=5, seconds=1.0))
    assert [kind.waiting for kind in clock.kinds.values()] == [9]


def test_kind_is_measured_by_its_largest_batch():
    clock = Clock([batch_of(2), batch_of(8), batch_of(4)])
    (kind,) = clock.kinds.values()
    assert (len(kind.largest), kind.waiting, clock.cells, clock.batches) == (8, 14, 14, 3)


def test_step_with_evaluations_has_its_share_of_them(monkeypatch):
    """A step takes 2 s and an evaluation 30 s; there is one in ten steps."""
    calls = []

    class Timer:
        def __init__(self, statement, globals, num_threads):
            self.call = globals["call"]

        def blocked_autorange(self, min_run_time):
            calls.append(self.call.__name__)
            return SimpleNamespace(mean=2.0 if self.call.__name__ == "step" else 30.0)

    def step():
        calls.append("called first")

    program = SimpleNamespace(initial=lambda: None, posterior=lambda *_: None)
    monkeypatch.setattr("torch.utils.benchmark.Timer", Timer)
    monkeypatch.setattr(module, "program", lambda *_: program)
    state = SimpleNamespace(values=None, jitter=None)
    monkeypatch.setattr(module, "State", SimpleNamespace(fresh=lambda *_: state))
    monkeypatch.setattr(module, "make_stepper", lambda *_: step)
    monkeypatch.setattr(module, "evaluate", lambda *_: None)
    target = select_target("cpu", "float64")
    cells = (replace(PLAIN, evaluate="10"),)
    assert module.step_seconds(cells, lambda cell: None, target) == 2.0 + 30.0 / 10  # pyright: ignore[reportArgumentType]
    assert calls == ["called first", "step", "evaluate_test_rows"]
