"""The time of a training step, by the shape of its batch."""

import dataclasses
import math

import pytest
from msgspec.structs import replace

from dlmexp.experiment.running.cost import BatchShape, Measurement, StepCost, Steps, fit_step_cost
from tests.support.cells import PLAIN
from tests.support.training import batch_of

LIMIT = PLAIN.iterations


def shape(cells=4, family="joint", **values):
    """Return the shape of a batch whose work grows with its rows."""
    values = {"n": 100, "M": 10, **values}
    full = BatchShape.of(batch_of(cells, variant="joint", **values))
    return BatchShape(**{**vars(full), "family": family})


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({}, LIMIT),
        ({"kind": "gradient"}, 150),
        ({"form": "collapsed"}, 1),
        ({"max_iterations": 0}, 1),
    ],
)
def test_limit_is_the_number_of_steps(values, limit):
    assert BatchShape.of(batch_of(2, **values)).limit == limit


def test_work_is_that_of_the_products_of_a_step():
    """M (rows + 4 M) columns, and half of it if hyperparameters are held."""
    cell = PLAIN
    products = cell.M * (cell.n + 4 * cell.M) * (cell.M + 90 + 2 * 10)
    assert BatchShape.of((cell,) * 4).work == products / 2
    joint = replace(cell, variant="joint")
    assert BatchShape.of((joint,)).work == products
    minibatch = replace(joint, n=10**6, minibatch=cell.n)
    assert BatchShape.of((minibatch,)).work == products


def test_every_component_of_a_mixture_is_work():
    joint = replace(PLAIN, variant="joint")
    mixture = replace(joint, components=8)
    assert BatchShape.of((mixture,)).work == 8 * BatchShape.of((joint,)).work


def test_gradients_are_measured_for_one_cell_after_the_other():
    assert BatchShape.of(batch_of(4, kind="gradient")).cells == 1
    assert BatchShape.of(batch_of(4)).cells == 4


@pytest.mark.parametrize(
    ("values", "may_converge", "is_timed"),
    [
        ({}, True, True),
        ({"window": None, "tolerance": None}, False, True),
        ({"form": "collapsed", "variant": "fixed"}, False, False),
        ({"kind": "gradient"}, False, False),
    ],
)
def test_only_a_stopping_rule_ends_training_early(values, may_converge, is_timed):
    of_batch = BatchShape.of(batch_of(2, **values))
    assert (of_batch.may_converge, of_batch.is_timed) == (may_converge, is_timed)
    assert (of_batch.usual_shares.mean < 1) == may_converge
    assert (of_batch.usual_shares.longest < 1) == may_converge


def one_step(of_shape: BatchShape) -> Steps:
    """A step of one batch, which is one of each of its cells."""
    return Steps(1.0, float(of_shape.cells))


def measured(of_shape: BatchShape, seconds: float) -> Measurement:
    """A measured step of a batch."""
    return Measurement(of_shape, one_step(of_shape), seconds)


def seconds_of_step(cost: StepCost, of_shape: BatchShape) -> float:
    """The expected seconds of a step of one batch."""
    return cost.seconds(of_shape, one_step(of_shape))


# On a GPU, batches at the same time hide a fixed cost of 10^6 multiplications.
@pytest.mark.parametrize(
    ("device", "exponent"), [("cpu", 6), ("cpu", 8), ("cpu", 10), ("cuda", 8), ("cuda", 10)]
)
def test_fit_recovers_latency_and_rate(device, exponent):
    true = StepCost(10**exponent, 3e-12, device)
    shapes = [shape(cells, n=n) for cells in (1, 10, 100) for n in (10, 1000, 10**6)]
    cost = fit_step_cost([measured(each, seconds_of_step(true, each)) for each in shapes], device)
    for each in shapes:
        assert seconds_of_step(cost, each) == pytest.approx(seconds_of_step(true, each), rel=0.02)


def test_one_measured_step_gives_its_own_time_and_the_usual_latency():
    only = shape(n=1000)
    cost = fit_step_cost([measured(only, 0.25)], "cpu")
    assert seconds_of_step(cost, only) == pytest.approx(0.25)
    assert cost.latency == 10**7


def test_family_that_takes_longer_is_expected_to_do_so_for_other_shapes():
    plain = [shape(n=n) for n in (100, 1000, 10000)]
    slow = [shape(n=n, family="slow") for n in (100, 1000, 10000)]
    true = StepCost(1e6, 1e-12)
    steps = [measured(each, seconds_of_step(true, each)) for each in plain]
    steps += [measured(each, 4 * seconds_of_step(true, each)) for each in slow]
    cost = fit_step_cost(steps, "cpu")
    other_slow = seconds_of_step(cost, shape(n=500, family="slow"))
    ratio = other_slow / seconds_of_step(cost, shape(n=500))
    # Pulled towards no difference.
    assert 1.5 < ratio < 4


def test_longest_cell_pays_the_fixed_cost_of_a_step():
    cost = StepCost(1e6, 1e-12)
    batch = shape(cells=2)
    uneven = cost.seconds(batch, Steps(100.0, 150.0))  # cells of 100 and 50 steps
    assert uneven == pytest.approx(1e-12 * (100 * 1e6 + 150 * batch.work))


def test_small_batches_share_the_fixed_cost_on_a_gpu():
    small = shape(cells=1, n=10)
    alone = StepCost(1e9, 1e-12, "cpu").seconds(small, Steps(1.0, 0.0))
    together = StepCost(1e9, 1e-12, "cuda").seconds(small, Steps(1.0, 0.0))
    assert together < alone


def test_family_that_is_not_measured_has_the_common_cost():
    steps = [measured(shape(n=n), 1e-3 * n) for n in (10, 100, 1000)]
    cost = fit_step_cost(steps, "cpu")
    new = dataclasses.replace(shape(family="new"), kind="new")
    common = cost.seconds_per_work * (cost.latency + 4 * new.work)
    assert math.isclose(seconds_of_step(cost, new), common)
