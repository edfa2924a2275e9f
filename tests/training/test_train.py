"""Training a batch to the end: against single cells, with cells that leave, fail, are interrupted or watched; rows of
minibatches; GPyTorch's kernels."""

import contextlib

import numpy as np
import pytest
import torch

from dlmexp.estimators import BMC, UPS
from dlmexp.training import train
from dlmexp.training.program import Minibatches, shuffled
from dlmexp.training.state import Settings, State
from dlmexp.training.train import Curve, Training
from tests.support.small_programs import program, split, stopped_cells, trained

pytestmark = pytest.mark.slow

SETTINGS = Settings(lr=0.1, iterations=200, window=10, tolerance=1e-3)
SIX = {"betas": (100.0, 3.0, 0.1, 30.0, 1.0, 0.01), "index": (0, 0, 0, 1, 1, 1)}
KINDS = {
    "joint": {"kind": "joint"},
    "sampled": {"kind": "joint", "estimator": BMC(3)},
    "fixed": {"kind": "fixed", "objective": "elbo"},
    "collapsed": {"kind": "collapsed", "likelihood": "gaussian", "objective": "elbo"},
    "annealed": {"kind": "joint", "likelihood": "gaussian"},
    "minibatch": {"kind": "fixed", "minibatch": 7},
    "afresh": {"kind": "joint", "likelihood": "gaussian", "minibatch": 7, "afresh": True},
    "kernel of GPyTorch": {"kind": "joint", "likelihood": "gaussian", "kernel": "gpytorch.kernels.RQKernel"},
}


def _alone(how, cell):
    whole = program(**how, **SIX)
    return whole.keep([cell])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_in_a_batch_ends_as_it_would_alone(kind):
    few = Settings(lr=0.05, iterations=60 if kind != "afresh" else 30, window=10)
    if kind == "annealed":
        few = Settings(0.1, 40, 10, criterion="relative", final_lr=1e-4, decay=15, epsilon=1e-6, resolution=1 / 256)
    settings = SETTINGS if kind in ("joint", "fixed", "collapsed") else few
    sizes = []
    stopped = stopped_cells(
        Training.start(program(**KINDS[kind], **SIX), settings), settings, lambda t: sizes.append(len(t.state.outcome))
    )
    together = {finished.cell: finished for finished in stopped}
    assert sorted(together) == list(range(6))
    if settings is SETTINGS:
        assert len({f.iterations for f in together.values()}) > 2, "cells should leave at different times"
        assert len(set(sizes)) > 2
    for cell in (0, 2, 4):
        alone = trained(_alone(KINDS[kind], cell), settings)[0]
        assert alone.iterations == together[cell].iterations
        assert alone.stopped == together[cell].stopped
        np.testing.assert_allclose(together[cell].objective, alone.objective, rtol=1e-7)
        for part in ("validation", "test"):
            assert together[cell].metrics[part] == pytest.approx(alone.metrics[part], rel=1e-6)


@pytest.mark.parametrize("stop_at", [None, 60])
def test_cells_that_are_reported_together_are_those_reported_one_by_one(stop_at, monkeypatch):
    """As on a GPU: stopped cells stay in the batch until there are enough, also across an interruption."""
    one_by_one = trained(program(**SIX), SETTINGS)
    monkeypatch.setattr(train, "REPORT_AT", {"cpu": 0.5})
    monkeypatch.setattr(train, "COMPACT_AT", {"cpu": 0.0})
    training, order, waited = Training.start(program(**SIX), SETTINGS), [], False

    def note(training):
        nonlocal waited
        waited |= bool((training.unreported() & ~training.live()).any())
        if int(training.state.iteration) == stop_at:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        order += stopped_cells(training, SETTINGS, note)
    if stop_at:
        assert waited
        state = State.from_arrays(training.state.clone().arrays(), torch.device("cpu"))
        resumed = Training(training.program, state, training.cells, training.seconds, training.curves)
        order += stopped_cells(resumed, SETTINGS, lambda training: None)
    assert sorted(finished.cell for finished in order) == list(range(6))
    for finished in order:
        assert finished.iterations == one_by_one[finished.cell].iterations
        np.testing.assert_allclose(finished.objective, one_by_one[finished.cell].objective, rtol=1e-9)
        assert finished.metrics["test"] == pytest.approx(one_by_one[finished.cell].metrics["test"], rel=1e-6)


def test_a_failed_cell_says_why_when_and_where_it_was():
    clean = trained(program(**SIX), SETTINGS)
    training = Training.start(program(**SIX), SETTINGS)

    def spoil(training):
        if int(training.state.iteration) == 12:
            training.state.values["m"][training.cells.index(2)] = torch.nan

    found = {f.cell: f for f in stopped_cells(training, SETTINGS, spoil)}
    failed = found.pop(2)
    assert failed.failed
    assert failed.stopped == "the objective or its gradient is not finite"
    assert failed.iterations == 13
    assert len(failed.objective) == 13
    assert np.isfinite(failed.objective[:12]).all()
    assert set(failed.state) == {"lengthscale", "outputscale", "mean", "Z", "m", "L"}
    assert np.isfinite(failed.state["Z"]).all()
    for cell, finished in found.items():
        assert not finished.failed
        assert not finished.state
        assert finished.iterations == clean[cell].iterations
        np.testing.assert_allclose(finished.objective, clean[cell].objective, rtol=1e-10)
        assert finished.metrics["test"] == pytest.approx(clean[cell].metrics["test"], rel=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "GPyTorch" not in kind])
@pytest.mark.parametrize("stop_at", [1, 33])
def test_interrupted_anywhere_and_resumed_gives_the_same_bits(kind, stop_at):
    settings = Settings(lr=0.1, iterations=60, window=10, tolerance=1e-3, evaluate_every=15)
    straight = trained(program(**KINDS[kind], **SIX), settings)

    saved = {}

    def leave(training):
        if int(training.state.iteration) == stop_at:
            curves = [Curve(list(c.iterations), list(c.metrics)) for c in training.curves]
            saved.update(arrays=training.state.clone().arrays(), cells=list(training.cells), curves=curves)
            raise KeyboardInterrupt

    found = {}
    with contextlib.suppress(KeyboardInterrupt):
        for finished in stopped_cells(Training.start(program(**KINDS[kind], **SIX), settings), settings, leave):
            found[finished.cell] = finished
    assert saved
    again = program(**KINDS[kind], **SIX)
    if len(saved["cells"]) < 6:
        again = again.keep(saved["cells"])
    state = State.from_arrays(saved["arrays"], torch.device("cpu"))
    resumed = Training(again, state, saved["cells"], [0.0] * len(saved["cells"]), saved["curves"])
    found |= {f.cell: f for f in stopped_cells(resumed, settings)}
    assert sorted(found) == list(range(6))
    for cell, finished in found.items():
        assert finished.objective.tobytes() == straight[cell].objective.tobytes()
        assert finished.metrics == straight[cell].metrics
        assert finished.iterations == straight[cell].iterations
        assert finished.curve == straight[cell].curve


@pytest.mark.parametrize("every", [5, 13, 50])
def test_learning_curves_do_not_depend_on_who_shares_the_batch(every):
    settings = Settings(lr=0.1, iterations=60, window=10, tolerance=1e-3, evaluate_every=every, check_every=20)
    together = trained(program("fixed", objective="elbo", **SIX), settings)
    for cell, finished in together.items():
        regular = range(0, finished.iterations + 1, every)
        assert finished.curve.iterations == sorted({*regular, finished.iterations})
        last, end = finished.curve.metrics[-1], finished.metrics["test"]
        assert last == pytest.approx({name: end[name] for name in ("nll", "error")}, rel=1e-12)
        if cell not in (0, 5):
            continue
        alone = trained(_alone({"kind": "fixed", "objective": "elbo"}, cell), settings)[0]
        arrays, others = finished.curve.arrays(), alone.curve.arrays()
        assert set(arrays) == {"evaluated_at", "test_nll", "test_error"}
        for name in arrays:
            np.testing.assert_allclose(arrays[name], others[name], rtol=1e-7)


def test_the_order_is_the_same_everywhere():
    assert shuffled([0, 7], 0, 10)[0].tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert shuffled([3], 2, 10)[0].tolist() == [4, 0, 8, 5, 3, 9, 7, 6, 1, 2]


def test_an_epoch_covers_all_rows_and_the_next_one_in_another_order():
    batches = Minibatches(split((0, 1)), 10)
    assert batches.per_epoch == 3
    first = torch.cat([batches.rows(i) for i in range(3)], 1)
    second = torch.cat([batches.rows(i) for i in range(3, 6)], 1)
    for rows in (first, second):
        assert torch.equal(rows.sort(1).values, torch.arange(30).expand(2, 30))
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    afresh = [Minibatches(split((0,)), 10, afresh=True).rows(i)[0].tolist() for i in range(30)]
    assert {len(set(rows)) for rows in afresh} == {10}, "without replacement"
    assert len({row for rows in afresh[:3] for row in rows}) < 30, "three draws are no epoch"
    left_over = Minibatches(split((0,)), 8)
    seen = [{int(row) for i in steps for row in left_over.rows(i)[0]} for steps in (range(3), range(30))]
    assert [len(rows) for rows in seen] == [24, 30]
    both = split((0, 0, 1))
    assert torch.equal(Minibatches(both, 7).rows(5)[1:], Minibatches(both.keep([2]), 7).rows(5))


def test_acceptance_is_kept_by_blocks_of_a_hundred_iterations():
    made = program(betas=(1.0,), index=(0,), likelihood="poisson", estimator=UPS(2, "rejection"))
    for finished in trained(made, Settings(lr=0.05, iterations=130, window=None)).values():
        blocks = finished.block_acceptance
        assert blocks.shape == (2,)
        assert ((blocks > 0) & (blocks < 1)).all()
        assert finished.acceptance == pytest.approx(np.average(blocks, weights=[100, 30]), rel=1e-12)
    for finished in trained(program(), Settings(lr=0.05, iterations=3, window=None)).values():
        assert finished.acceptance is None
