"""What a step costs by its shape, how batches shrink, and how long several take at once."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import plan
from dlmexp.running.cost import Costs, Pace, Step, Stretch, is_short, kind_of, shape_of, stretches, units_of
from dlmexp.running.iterations import Iterations
from dlmexp.running.schedule import Capacity, Course, Part, course, seconds_of
from tests.support.cells import ELBO, PLAIN

PACE = Pace(1e-3, 1e-10)

# Model-steps per second of an H200 with 1, 2, 4 and 8 batches at once of B models, replayed as CUDA graphs.
MEASURED = {
    "joint n=200 M=74": (75, (68_000, 99_000, 141_000, 181_000)),
    "joint n=1000 M=74": (90, (58_000, 77_000, 96_000, 110_000)),
    "joint n=1000 M=200": (15, (10_100, 14_400, 19_700, 24_600)),
    "joint n=691 M=206": (80, (23_600, 27_800, 30_900, 32_200)),
    "joint n=2766 M=206": (90, (14_000, 14_800, 15_400, 15_500)),
    "collapsed n=503 M=100": (80, (53_800, 72_000, 90_300, 102_500)),
    "collapsed n=2766 M=206": (5, (2_200, 3_600, 5_800, 8_600)),
}


@pytest.mark.parametrize("shape", MEASURED)
def test_latencies_overlap_and_work_does_not(shape):
    """Latency and work from the first and last rates foretell those in between, through the schedule itself."""
    B, rates = MEASURED[shape]
    alone, eight = B / rates[0], B / rates[3]
    latency = (alone - eight) * 8 / 7
    step = Step(latency, alone - latency)
    for together, rate in zip((1, 2, 4, 8), rates, strict=True):
        batches = [
            Course((replace(PLAIN, seed=seed, base=None),), (Part(1000, step),), 0.0) for seed in range(together)
        ]
        capacity = Capacity(most=max(2, together), entries=1e12, bytes=1e18)
        assert B * 1000 * together / seconds_of(batches, capacity) == pytest.approx(rate, rel=0.08)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.sampled_from([1.0, 0.75, 0.5]))
def test_a_batch_shrinks_as_training_does(iterations, compact_at):
    """Against a loop over iterations with the engine's own rule."""
    inside, expected, iteration = sorted(iterations), [], 0
    while inside:
        iteration += 1
        expected.append(len(inside))
        live = [each for each in inside if each > iteration]
        stopped_now = any(each == iteration for each in inside)
        if not live or (stopped_now and len(live) <= compact_at * len(inside)):
            inside = live
    found = [part.cells for part in stretches(iterations, compact_at) for _ in range(round(part.iterations))]
    assert found == expected


def test_cells_that_stop_together_make_one_stretch():
    assert stretches([10, 10, 10], 1.0) == [Stretch(10, 3)]
    assert stretches([5, 10], 1.0) == [Stretch(5, 2), Stretch(5, 1)]


def test_one_at_a_time_is_a_sum_and_several_at_once_take_less():
    batches = [Course((replace(ELBO, seed=s),), (Part(100, Step(1e-3, 1e-3 * s)),), 0.01) for s in range(6)]
    alone = seconds_of(batches, Capacity())
    assert alone == pytest.approx(sum(one.alone for one in batches))
    longest = max(one.alone for one in batches)
    for most in (2, 3, 6):
        assert longest <= seconds_of(batches, Capacity(most, 1e12, 1e18)) < alone


def test_a_fixed_variant_waits_for_its_elbo_fit():
    base = replace(ELBO, beta=1.0)
    first = Course((base,), (Part(100, Step(1e-2, 0.0)),), 0.0)
    fixed = Course((replace(PLAIN, base=base.key),), (Part(100, Step(1e-2, 0.0)),), 0.0)
    free = Course((replace(PLAIN, base=None),), (Part(100, Step(1e-2, 0.0)),), 0.0)
    capacity = Capacity(4, 1e12, 1e18)
    assert seconds_of([fixed, first], capacity) == pytest.approx(2.0)
    assert seconds_of([free, first], capacity) == pytest.approx(1.0)


@given(st.integers(1, 50), st.integers(10, 3000), st.integers(5, 200))
def test_work_grows_with_every_dimension(cells, rows, M):
    cell = replace(ELBO, n=rows, M=M)
    work = units_of(cell, cells, rows)
    assert work > 0
    for more in (
        units_of(cell, cells + 1, rows),
        units_of(cell, cells, rows + 1),
        units_of(replace(cell, M=M + 1), cells, rows),
        units_of(replace(cell, options={"samples": 5}), cells, rows),
    ):
        assert more > work
    assert units_of(replace(cell, variant="fixed"), cells, rows) < work


def test_a_timed_shape_corrects_itself_and_the_nearest_ones_of_its_kind():
    near, far = replace(ELBO, n=200), replace(ELBO, n=5000)
    factors = {shape_of(ELBO): 2.0, shape_of(far): 0.5}
    costs = Costs(replace(PACE, factors=factors))
    assert [costs.factor(cell) for cell in (ELBO, near, far)] == [2.0, 2.0, 0.5]
    plain, corrected = Costs(PACE).step(ELBO, 3), costs.step(ELBO, 3)
    assert corrected.alone == pytest.approx(2 * plain.alone)
    learned = Costs(replace(PACE, factors=factors, corrections={kind_of(ELBO): 1.5}))
    assert learned.factor(ELBO) == 3.0


def test_kinds_that_cost_differently_are_told_apart():
    others = [
        replace(ELBO, **change)
        for change in (
            {"objective": "log_dlm"}, {"variant": "fixed"}, {"parameterisation": "unwhitened"}, {"minibatch": 50},
            {"likelihood": "poisson"}, {"estimator": "bmc", "options": {"samples": 3}}, {"dtype": "float32"},
        )
    ]  # fmt: skip
    assert len({kind_of(cell) for cell in (ELBO, *others)}) == len(others) + 1
    assert kind_of(replace(ELBO, seed=9, beta=0.5, n=7, dataset="other")) == kind_of(ELBO)


def test_a_minibatch_costs_as_its_rows_do():
    whole = replace(ELBO, n=1000)
    part = replace(ELBO, n=50_000, minibatch=1000)
    costs = Costs(PACE)
    assert costs.step(part, 4).alone == costs.step(whole, 4).alone


def test_evaluations_on_the_way_take_time():
    costs, iterations = Costs(PACE), Iterations(shipped={})
    at_end, seldom, often = (
        course((replace(PLAIN, evaluate=e),), costs, iterations, "cpu").besides for e in ("end", "1000", "10")
    )
    assert at_end < seldom < often
    once = costs.evaluation(PLAIN, 1, final=False).alone
    assert often - at_end == pytest.approx(once * (1 + PLAIN.iterations / 10))  # also before the first step
    joint = costs.evaluation(replace(PLAIN, variant="joint"), 1, final=False)
    assert joint == costs.evaluation(PLAIN, 1, final=False)


def test_gradients_are_measured_one_cell_after_the_other():
    one, two = (
        course((replace(PLAIN, kind="gradient"),) * cells, Costs(PACE), Iterations(shipped={}), "cpu")
        for cells in (1, 2)
    )
    assert two.alone - two.besides == pytest.approx(2 * (one.alone - one.besides))


def test_short_runs_are_told_from_long_ones():
    long, short = (plan([cell], set(), set(), lambda _: 1) for cell in (
        replace(PLAIN, n=100_000, M=200), replace(PLAIN, n=50, M=10)))  # fmt: skip
    assert is_short(short)
    assert not is_short(long)
    solved = replace(PLAIN, n=100_000, M=100, task="regression", objective="sq_dlm")
    assert is_short(plan([solved], set(), set(), lambda _: 1))
    assert math.isfinite(Costs(PACE).step(solved, 1).alone)
