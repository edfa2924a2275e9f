"""The bound of the time of a run, and the time left."""

from dataclasses import replace as replace_shape
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running import clock as module
from dlmexp.experiment.running.clock import MAX_TRIAL_STEP_SECONDS, Clock
from dlmexp.experiment.running.cost import BatchShape, StepCost, Steps
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


def timed_clock(monkeypatch, step_seconds, batches=BATCHES):
    """Return a clock that has timed steps, each of `step_seconds(cells)`."""

    def without_data(cell):
        pytest.fail("no data is needed")

    monkeypatch.setattr(
        module, "step_seconds", lambda cells, prepared, target, threads: step_seconds(cells)
    )
    clock = Clock(batches)
    clock.time_steps(without_data, select_target("cpu", "float64"), 1)
    return clock


def step_of_rows(cells):
    """Return the seconds of a step that takes a millisecond for every row of every cell."""
    return 1e-3 * len(cells) * cells[0].n


def test_a_small_a_middle_and_a_large_kind_are_timed(now, monkeypatch):
    timed = []
    batches = [batch_of(2, n=n) for n in (900, 50, 400, 100, 200)]
    timed_clock(monkeypatch, lambda cells: timed.append(cells[0].n) or 1e-3, batches)
    assert timed == [50, 200, 900]


def test_kinds_whose_steps_take_long_are_not_timed(now, monkeypatch):
    timed = []
    batches = [batch_of(2, n=n) for n in (900, 50, 400, 100, 200)]
    seconds = 4 * MAX_TRIAL_STEP_SECONDS
    clock = timed_clock(monkeypatch, lambda cells: timed.append(cells[0].n) or seconds, batches)
    assert timed == [50]
    assert clock.expected_interval(1) is not None


def test_timing_ends_within_seconds(now, monkeypatch):
    timed = []

    def step_seconds(cells):
        timed.append(cells[0].n)
        now[0] += 1.6
        return 1.0

    timed_clock(monkeypatch, step_seconds)
    assert len(timed) == 1


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_announcement_is_an_interval_about_the_expected_time(now, monkeypatch, workers):
    """The longest batch may be left over when other processes have nothing to do."""
    clock = timed_clock(monkeypatch, step_of_rows)
    interval = clock.expected_interval(workers)
    assert interval is not None
    cost = clock._cost()
    seconds = {}
    for name, kind in clock.kinds.items():
        usual = kind.shape.usual_shares
        of_batch = usual.longest * kind.shape.limit
        of_cells = usual.mean * kind.shape.limit * kind.shape.cells
        seconds[name] = cost.seconds(kind.shape, Steps(of_batch, of_cells))
    batches = {name: kind.waiting / kind.shape.cells for name, kind in clock.kinds.items()}
    alone = sum(batches[name] * seconds[name] for name in seconds)
    longest = max(seconds.values())
    expected = alone / workers + longest * (1 - 1 / workers)
    assert (interval.least * interval.most) ** 0.5 == pytest.approx(expected)
    assert interval.most / interval.least <= 3


def test_nothing_is_announced_where_no_step_can_be_timed(now, monkeypatch):
    closed = batch_of(2, form="collapsed", variant="fixed")
    clock = timed_clock(monkeypatch, lambda cells: pytest.fail("it is timed"), [closed])
    assert clock.expected_interval(1) is None


def test_small_batches_hide_each_others_latency_on_a_gpu():
    """Twelve small batches train at once, a large one alone."""
    small = BatchShape.of(batch_of(2, n=50))
    large = replace_shape(small, cells=1000, work=1e9)
    for shape, at_once in ((small, 12), (large, 1)):
        steps = Steps(100, 0)
        shared = StepCost(1e9, 1e-13, "cuda").seconds(shape, steps)
        assert shared == pytest.approx(100 * 1e9 * 1e-13 / at_once)
        assert StepCost(1e9, 1e-13, "cpu").seconds(shape, steps) == pytest.approx(1e-2)


def test_short_runs_are_told_from_long_ones():
    assert Clock([batch_of(2, n=20, M=5, max_iterations=40)]).is_short()
    assert not Clock(BATCHES * 9).is_short()
    assert Clock(BATCHES * 9, "cuda").is_short()


def finish(clock, cells, iterations, seconds):
    for cell in cells:
        clock.note_record(cell, Result(iterations=iterations, seconds=seconds))


def test_time_left_is_unknown_before_a_step_was_made():
    clock = Clock([CELLS])
    assert clock.seconds_left(10.0) is None


def test_time_left_without_timed_steps_follows_from_the_steps_of_cells_in_training():
    """A tenth of the way of all cells took ten seconds."""
    clock = Clock([CELLS])
    (kind,) = clock.kinds.values()
    usual = kind.shape.usual_shares
    assert usual.mean < usual.longest
    for cell in CELLS:
        clock.note_iteration(cell, LIMIT // 10)
    left = clock.seconds_left(10.0)
    assert left is not None
    assert 10.0 * (10 * usual.mean - 1) <= left <= 10.0 * (10 * usual.longest - 1)


def test_time_left_before_a_cell_has_finished_is_that_of_the_timed_steps(now, monkeypatch):
    clock = timed_clock(monkeypatch, step_of_rows, [CELLS])
    interval = clock.expected_interval(1)
    assert interval is not None
    expected = (interval.least * interval.most) ** 0.5
    assert clock.seconds_left(0.0) == pytest.approx(expected)
    for cell in CELLS:
        clock.note_iteration(cell, CELLS[0].iterations // 10)
    in_between = clock.seconds_left(expected / 6)
    assert in_between is not None
    assert 0 < in_between < expected


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
        clock.note_record(cell, None)
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
    clock = Clock([CELLS[:1], CELLS[1:2]])
    finish(clock, CELLS[:1], 100, 1.0)
    clock.note_iteration(CELLS[1], iteration)
    spent = 1.0 + iteration / 100
    assert clock.seconds_left(spent) == pytest.approx(left)


def test_nothing_is_left_when_all_cells_have_records():
    clock = Clock([CELLS])
    clock.note_iteration(CELLS[0], 7)
    finish(clock, CELLS, 100, 1.0)
    assert clock.seconds_left(9.0) == 0.0


def test_time_of_other_kinds_follows_by_their_steps_and_work():
    small, large = batch_of(4, n=100), batch_of(4, n=900)
    left = {}
    for known, other in ((small, large), (large, small)):
        clock = Clock([known, other])
        finish(clock, known, 300, 3.0)
        left[other[0].n] = clock.seconds_left(12.0)
        cost = clock._cost()
        shapes = [kind.shape for kind in clock.kinds.values()]
        # A kind without finished cells is halfway between those that have and the usual shares.
        usual = shapes[1].usual_shares
        of_batch = (300 + usual.longest * LIMIT) / 2
        of_cells = 4 * (300 + usual.mean * LIMIT) / 2
        ratio = cost.seconds(shapes[1], Steps(of_batch, of_cells)) / (4 * 3.0)
        assert left[other[0].n] == pytest.approx(12.0 * ratio)
    assert left[900] > left[100]


def test_result_without_seconds_counts_as_one_iteration():
    clock = Clock([CELLS])
    clock.note_record(CELLS[0], Result())
    (kind,) = clock.kinds.values()
    assert (kind.finished, kind.iterations, kind.seconds, kind.waiting) == (1, 1, 0.0, 8)


def test_cell_of_another_run_changes_nothing():
    clock = Clock([CELLS])
    clock.note_record(replace(PLAIN, n=7), Result(iterations=5, seconds=1.0))
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
    monkeypatch.setattr(module, "evaluate", lambda *_, **__: None)
    target = select_target("cpu", "float64")
    cells = (replace(PLAIN, evaluate="10"),)
    assert module.step_seconds(cells, lambda cell: None, target) == 2.0 + 30.0 / 10  # pyright: ignore[reportArgumentType]
    assert calls == ["called first", "called first", "step", "evaluate_test_rows"]


def test_timing_of_a_step_begins_without_a_fit(monkeypatch):
    """A pilot fit or k-means would take longer than the steps, and training repeats them."""

    def program(cells, *_):
        assert {(cell.pilot, cell.inducing) for cell in cells} == {(0, "first")}
        raise InterruptedError

    monkeypatch.setattr(module, "program", program)
    cells = (replace(PLAIN, pilot=60, inducing="kmeans"),)
    with pytest.raises(InterruptedError):
        module.step_seconds(cells, lambda cell: None, select_target("cpu", "float64"))  # pyright: ignore[reportArgumentType]
