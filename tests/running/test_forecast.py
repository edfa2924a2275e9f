"""The time that a run takes: before it starts, and corrected while it runs. The clock is made up."""

import pytest
from msgspec.structs import replace

from dlmexp.running import forecast as module
from dlmexp.running.cost import Costs, Pace
from dlmexp.running.cost import kind_of as cost_kind
from dlmexp.running.forecast import Forecast, forecast_share
from dlmexp.running.iterations import Curve, Iterations, kind_of
from dlmexp.running.schedule import ONE_AT_A_TIME, PROCESS_SECONDS, Capacity
from tests.support.banana import record
from tests.support.cells import ELBO, PLAIN

PACE = Pace(latency=0.0, per_unit=1e-9)
SHIPPED = {kind_of(ELBO): [Curve("banana", 100, 100, 3000, [0.0], [1000.0])]}


@pytest.fixture
def clock(monkeypatch):
    moment = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    monkeypatch.setattr(module, "core_seconds", lambda: moment[0] / 2)  # the machine is busy
    return moment


def cells(count, **changes):
    return tuple(replace(ELBO, seed=seed, n=1000, M=100, **changes) for seed in range(count))


def forecast(batches, shipped=SHIPPED, **options):
    return Forecast(batches, Costs(PACE), Iterations(shipped=shipped), **options)


def done(cell, iterations):
    found = record(cell)
    return replace(found, result=replace(found.result, iterations=iterations))


def test_likely_is_within_its_range_and_below_the_longest(clock):
    found = forecast([cells(5), cells(5, dataset="other")]).estimate()
    assert found.low < found.likely < found.high <= found.longest
    assert found.longest == pytest.approx(3 * found.likely, rel=0.02)


def test_the_range_is_wider_where_less_is_known(clock):
    def width(dataset, covered):
        found = forecast([cells(5, dataset=dataset)], covered=covered).estimate()
        return found.high / found.low

    assert width("banana", 1.0) < width("banana", 0.0) < width("other", 0.0)
    assert width("banana", 1.0) < width("other", 1.0)


def test_epochs_are_always_run_to_the_end(clock):
    minibatched = tuple(replace(c, epochs=20, minibatch=100, max_iterations=None) for c in cells(3))
    found = forecast([minibatched]).estimate()
    assert found.likely < found.high == found.longest


def test_workers_share_the_time(clock):
    """The second starts a little later; with three batches one of them waits for the first."""
    batches = [cells(50, dataset=name) for name in "abc"]
    one = forecast(batches[:1]).estimate().likely
    assert one > 2 * PROCESS_SECONDS
    assert forecast(batches[:2], workers=2).estimate().likely == pytest.approx(one + PROCESS_SECONDS)
    assert forecast(batches, workers=2).estimate().likely == pytest.approx(2 * one)
    waiting = tuple(replace(cell, variant="fixed", base=batches[0][0].key) for cell in batches[1])
    alone = forecast([waiting]).estimate().likely
    assert forecast([batches[0], waiting], workers=2).estimate().likely == pytest.approx(one + alone)
    gpus = Capacity(4, 1e12, 1e12)
    together, halved = (forecast(batches, workers=n, capacity=gpus).estimate().likely for n in (1, 2))
    assert halved == pytest.approx(together / 2)


def test_before_anything_is_done_the_estimate_is_left(clock):
    one = forecast([cells(5)])
    assert one.seconds_left() == pytest.approx(one.estimate().likely, rel=0.01)
    assert sum(one.sources().values()) == pytest.approx(1)


@pytest.mark.parametrize("slowness", [0.5, 1.0, 4.0])
def test_the_time_left_follows_the_speed_of_this_run(clock, slowness):
    """After a tenth of the work the time left is that of the other nine at the true speed, within a tenth."""
    batches = [cells(1, dataset=f"d{i}") for i in range(20)]
    one = forecast(batches)
    total = one.estimate().likely
    assert total > 100
    for batch in batches[:2]:
        clock[0] += slowness * total / 20
        for cell in batch:
            one.finished(done(cell, 1000))
    one._looked = None
    assert one.seconds_left() == pytest.approx(slowness * 0.9 * total, rel=0.1)


def test_where_batches_share_a_device_the_first_of_them_decide_little(clock):
    """Three times slower than expected at first, then as expected: the time left does not overshoot by more than half
    when a twentieth is done, and is as expected at the end; a run that stays slow is seen to be."""
    batches = [cells(1, dataset=f"d{i}") for i in range(40)]
    device = Capacity(2, 1e15, 1e18)
    for slow, wanted in ((2, 1.0), (40, 3.0)):
        clock[0] = 0.0
        one = forecast(batches, capacity=device)
        total = one.estimate().likely
        for i, batch in enumerate(batches[:30]):
            clock[0] += (3 if i < slow else 1) * total / 40
            one.finished(done(batch[0], 1000))
            one._looked = None
            if i == 1:
                assert one.seconds_left() < 1.7 * 0.95 * total
        assert one.seconds_left() == pytest.approx(wanted * total / 4, rel=0.25)


def test_a_small_batch_beside_large_ones_tells_little_of_the_time(clock):
    """Shares of the time are those of the schedule: five cells in step with a hundred are no quick success."""
    large, small = cells(100), cells(5, dataset="other")
    one = forecast([large, small], capacity=Capacity(2, 1e15, 1e18))
    together = one.estimate().likely
    assert one.planned[small[0].key].seconds * 5 * 1000 > 0.3 * together


def test_cells_that_need_fewer_iterations_shorten_what_is_left(clock):
    batches = [cells(40)]
    one, other = forecast(batches), forecast(batches)
    for cell in batches[0][:20]:
        one.finished(done(cell, 1000))
        other.finished(done(cell, 200))
    # At the same speed: each took what its iterations cost.
    clock[0] = sum(one._done.values())
    usual = one.seconds_left()
    clock[0] = sum(other._done.values())
    short = other.seconds_left()
    assert short < 0.6 * usual


def test_cells_in_training_count_as_far_as_they_are(clock):
    one = forecast([cells(4)])
    whole = one.seconds_left()
    clock[0] = whole / 2
    one.seen(cells(4), 4, 500)
    one._looked = None
    assert one.seconds_left() == pytest.approx(whole / 2, rel=0.02)
    clock[0] = whole
    one.seen(cells(4), 4, 1500)  # overdue: they will take some more, at most to their limit
    one._looked = None
    assert 0 < one.seconds_left() < whole
    one.seen(cells(4), 4, 3000)
    one._looked = None
    assert one.seconds_left() == 0


def test_what_others_trained_is_not_left(clock):
    batches = [cells(3), cells(3, dataset="other")]
    one = forecast(batches)
    one.skipped(batches[0])
    one.skipped(cells(1, dataset="not planned"))
    assert set(one.planned) == {cell.key for cell in batches[1]}
    one.finished(done(batches[1][0], 10))
    one.finished(done(batches[1][0], 10))  # told twice
    assert len(one.planned) == 2


def test_between_looks_the_time_left_runs_down(clock):
    one = forecast([cells(5)])
    left = one.seconds_left()
    clock[0] += 2
    assert one.seconds_left() == pytest.approx(left - 2)


def test_lessons_are_in_the_time_of_the_device(clock):
    """Twice as slow by the clock as by the thread: the load of other programs is no lesson. Compared is the time of the
    steps that were made, with as many cells as were in the batch, however many iterations were expected."""
    some = cells(2)
    one = forecast([some, cells(2, parameterisation="unwhitened")], load=2.0)
    step = one.costs.step(some[0], 2).alone
    one.seen(some, 2, 0)
    clock[0] = 3 * 700 * step
    one.seen(some, 2, 700)
    ((kind, (took, expected)),) = one.lessons().items()
    assert kind == cost_kind(some[0])
    assert took == pytest.approx(3 * 700 * step / 2)
    assert expected == pytest.approx(700 * step / 2.0)


def test_lessons_are_the_same_with_several_processes(clock):
    some = cells(50)
    lessons = []
    for workers in (1, 2):
        clock[0] = 0.0
        one = forecast([some, cells(50, dataset="other"), cells(50, dataset="third")], workers=workers)
        one.seen(some, 50, 0)
        clock[0] = 30.0
        one.seen(some, 50, 700)
        lessons += one.lessons().values()
    assert lessons[0] == pytest.approx(lessons[1])


def test_batches_that_share_a_device_share_the_difference(clock):
    some, other = cells(2), cells(2, parameterisation="unwhitened")
    one = forecast([some, other], capacity=Capacity(4, 1e12, 1e15))
    for batch in (some, other):
        one.seen(batch, 2, 0)
        one.seen(batch, 2, 500)
    clock[0] = 60.0
    lessons = one.lessons()
    assert len(lessons) == 2
    assert sum(took for took, _ in lessons.values()) == pytest.approx(60)
    assert len({round(took / expected, 9) for took, expected in lessons.values()}) == 1


def test_the_share_of_what_is_done_goes_by_cost(monkeypatch, clock):
    monkeypatch.setattr(module, "known_pace", lambda device: PACE)
    small, large = cells(1), tuple(replace(cell, n=4000) for cell in cells(1, dataset="large"))
    records = [done(small[0], 1000)]
    share = forecast_share([small, large], records, "cpu", ONE_AT_A_TIME)
    assert 0 < share < 0.3
    assert forecast_share([small], records, "cpu", ONE_AT_A_TIME) == 1
    assert forecast_share([large], [], "cpu", ONE_AT_A_TIME) == 0
    assert forecast_share([(PLAIN,)], [done(PLAIN, 5)], "cpu", ONE_AT_A_TIME) == 1
