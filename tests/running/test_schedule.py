"""Several batches at once, played in advance: who waits for whom, and which go first. Seconds are those of an H200."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import bytes_of, entries_of
from dlmexp.running.cost import CELL_ROWS, Costs, Pace, Step
from dlmexp.running.schedule import LONG_ONES, ONE_AT_A_TIME, Capacity, Course, Part, seconds_of, shares_of
from tests.support.cells import ELBO, PLAIN

WIDE = Capacity(12, 1e15, 1e18)
H200 = Pace(latency=2.4e-4, per_unit=1.63e-13, column=1.26e-6, cell_rows=CELL_ROWS["cuda"])
REJECTING = replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}, base=None)


def batch(seed, **changes):
    return (replace(ELBO, seed=seed, **changes),)


def one(seed, *parts, besides=0.0, **changes):
    return Course(batch(seed, **changes), parts, besides)


def test_a_small_batch_beside_a_large_one_is_no_faster():
    """cadata, n=2766 and M=206, 5000 steps each: 100 cells alone took 23.1 s, 26.7 s beside 5 cells of FITC, and those
    28.2 s. The small step is that of a collapsed ELBO of that size, which the benchmark times: 5.7 s alone. What starts
    from the small one comes after both."""
    large, small = Part(5000, Step(5e-4, 4.1e-3)), Part(5000, Step(8.4e-4, 2.9e-4))
    assert seconds_of([one(0, large)], WIDE) == pytest.approx(23.1, rel=0.02)
    assert seconds_of([one(1, small)], WIDE) == pytest.approx(5.7, rel=0.02)
    together = [one(0, large), one(1, small)]
    assert seconds_of(together, WIDE) == pytest.approx(28.2, rel=0.15)
    assert shares_of(together, WIDE)[1] == pytest.approx(14.1, rel=0.15)
    after = one(2, small, base=together[1].batch[0].key)
    assert seconds_of([*together, after], WIDE) == pytest.approx(28.2 + 5.7, rel=0.15)


@pytest.mark.parametrize(
    ("B", "n", "M", "together", "rate"),
    [
        (90, 1000, 74, 8, 177_000),
        (15, 1000, 200, 12, 39_300),
        (100, 11_000, 206, 1, 7_870),
        (100, 2766, 206, 1, 21_600),
        (225, 100, 40, 12, 666_000),  # of batches of several kinds
    ],
)
def test_steps_of_many_cells_with_few_rows_cost_more_than_their_rows(B, n, M, together, rate):
    """Model-steps per second of joint fits with so many batches at once, from the base shapes alone."""
    step = Costs(H200).step(replace(ELBO, n=n, M=M), B)
    batches = [one(seed, Part(1000, step)) for seed in range(together)]
    assert B * 1000 * together / seconds_of(batches, WIDE) == pytest.approx(rate, rel=0.2)


def test_one_thread_serves_all_batches():
    """What it does for twelve batches takes twelve times as long as for one, and nobody trains before it is done."""
    several = [one(seed, Part(100, Step(1e-2, 0.0)), besides=0.5) for seed in range(12)]
    assert seconds_of(several[:1], WIDE) == pytest.approx(1.5)
    assert seconds_of(several, WIDE) == pytest.approx(12 * 0.5 + 1)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), max_size=8))
def test_shares_add_up_to_a_time_between_the_longest_and_all_one_after_the_other(found):
    courses = [one(i, Part(n, Step(a, b)), besides=c) for i, (n, a, b, c) in enumerate(found)]
    shares, total = shares_of(courses, WIDE), seconds_of(courses, WIDE)
    assert sum(shares) == pytest.approx(total)
    alone = [course.alone for course in courses]
    assert max(alone, default=0.0) <= total * (1 + 1e-6) + 1e-6
    assert total <= sum(alone) * (1 + 1e-6) + 1e-6
    assert shares_of(courses, ONE_AT_A_TIME) == alone


def test_room_goes_by_the_cells_that_are_left_and_memory_by_those_that_began():
    cells = tuple(replace(ELBO, seed=seed) for seed in range(10))
    device = Capacity(12, entries_of(cells), 1e15)
    assert not device.room(cells, [cells])
    assert not device.room(cells, [cells], [10])
    assert device.room(cells, [cells], [9])
    assert not device._replace(bytes=1.9 * bytes_of(cells)).room(cells, [cells], [1])


def test_a_batch_joins_when_cells_have_left_the_others():
    """Nine of ten cells leave after 100 of 1000 steps: the next batch trains beside the last one."""
    cells = tuple(replace(ELBO, seed=seed) for seed in range(10))
    others = tuple(replace(cell, beta=5.0) for cell in cells)
    parts = (Part(100, Step(1e-2, 0.0), 10), Part(900, Step(1e-2, 0.0), 1))
    courses = [Course(some, parts, 0.0) for some in (cells, others)]
    assert seconds_of(courses, Capacity(12, entries_of(cells), 1e15)) == pytest.approx(11)


def test_the_batches_with_most_steps_go_first_but_not_more_than_some():
    short = [batch(seed, max_iterations=100) for seed in range(5)]
    long = [batch(seed, max_iterations=9000) for seed in range(5, 9)]
    queue = deque([*short, (REJECTING,), *long])
    WIDE.longest_first(queue, [])
    assert list(queue) == [*long[:LONG_ONES], *short, (REJECTING,), *long[LONG_ONES:]]
    WIDE.longest_first(queue, [long[0]])
    assert list(queue)[: LONG_ONES - 1] == long[: LONG_ONES - 1]
    for running, device in ((long[:LONG_ONES], WIDE), ([], ONE_AT_A_TIME)):
        queue = deque([*short, *long])
        device.longest_first(queue, running)
        assert list(queue) == [*short, *long]
    queue = deque(short)
    WIDE.longest_first(queue, [])
    assert list(queue) == short, "of equals the next in the queue"
    queue = deque([short[0], (replace(REJECTING, max_iterations=10**6),)])
    WIDE.longest_first(queue, [])
    assert queue[0] == short[0], "what needs the device for itself comes last"


def test_a_long_chain_is_not_left_over():
    """It takes 10 s with the fixed variant that starts from it, and all others 10 s with the other lanes."""
    short = [one(seed, Part(100, Step(1e-2, 0.0)), max_iterations=100) for seed in range(10)]
    first = one(10, Part(500, Step(1e-2, 0.0)), max_iterations=500, beta=1.0)
    then = one(11, Part(500, Step(1e-2, 0.0)), max_iterations=500, base=first.batch[0].key)
    assert seconds_of([*short, first, then], Capacity(2, 1e15, 1e18)) == pytest.approx(10)
