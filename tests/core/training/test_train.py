"""Training a batch to the end: against single cells, with cells that leave, fail, are interrupted
or watched; rows of minibatches; GPyTorch's kernels. The stepper: parts in threads, and on a GPU
captured graphs, with the same numbers."""

import contextlib
import traceback
from copy import deepcopy

import numpy as np
import pytest
import torch

from dlmexp.core.estimators import UPS
from dlmexp.core.likelihoods import Probit
from dlmexp.core.training import reports, train
from dlmexp.core.training import stepper as stepper_module
from dlmexp.core.training.batch import Training
from dlmexp.core.training.data import shuffled_order
from dlmexp.core.training.finished import curve_arrays
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.step import step
from dlmexp.core.training.stepper import make_stepper
from tests.support.small_programs import PROGRAMS, program, stopped_cells, trained

pytestmark = pytest.mark.slow

SETTINGS = Settings(lr=0.1, iterations=120, window=10, tolerance=3e-3, check_every=10)
FEW = Settings(lr=0.05, iterations=30, window=10)
ANNEALED = Settings(
    0.1, 40, 10, criterion="relative", final_lr=1e-4, decay=15, epsilon=1e-6, resolution=1 / 256
)
SETTINGS_OF = dict.fromkeys(("joint", "fixed elbo", "elbo"), SETTINGS) | {"regression": ANNEALED}
SETTINGS_OF |= dict.fromkeys(("bmc", "fixed minibatch", "afresh", "kernel of GPyTorch"), FEW)


def six(kind):
    """Three cells of each of two repetitions."""
    return program(
        **PROGRAMS[kind], betas=(100.0, 3.0, 0.1, 30.0, 1.0, 0.01), index=(0, 0, 0, 1, 1, 1)
    )


def same_end(cell, other, rel):
    assert (cell.iterations, cell.stopped) == (other.iterations, other.stopped)
    np.testing.assert_allclose(cell.objective, other.objective, rtol=rel)
    for part in ("validation", "test"):
        assert cell.metrics[part] == pytest.approx(other.metrics[part], rel=10 * rel)


def interrupted(training, settings, iteration):
    """Cells that stopped before the iteration, and what a run that starts from a checkpoint made
    there goes on with."""
    saved = []

    def leave(training):
        if int(training.state.iteration) == iteration:
            saved.extend(
                [training.state.clone().arrays(), list(training.cells), deepcopy(training.curves)]
            )
            raise KeyboardInterrupt

    ended = []
    with contextlib.suppress(KeyboardInterrupt):
        ended += stopped_cells(training, settings, leave)
    arrays, cells, curves = saved
    state = State.from_arrays(arrays, torch.device("cpu"))
    return ended, Training(training.program, state, cells, [0.0] * len(cells), curves)


@pytest.mark.parametrize("kind", SETTINGS_OF)
def test_a_cell_in_a_batch_ends_as_it_would_alone(kind):
    settings, sizes = SETTINGS_OF[kind], set()
    together = trained(six(kind), settings, lambda training: sizes.add(len(training.state.outcome)))
    assert sorted(together) == list(range(6))
    if settings is SETTINGS:
        assert len({cell.iterations for cell in together.values()}) > 2, (
            "cells should leave at different times"
        )
        assert len(sizes) > 2
    for cell in (0, 2, 4):
        same_end(together[cell], trained(six(kind).keep([cell]), settings)[0], rel=1e-7)


@pytest.mark.parametrize("stop_at", [None, 45])
def test_cells_that_are_reported_together_are_those_reported_one_by_one(stop_at, monkeypatch):
    """As on a GPU: stopped cells stay in the batch until there are enough, also across an
    interruption."""
    one_by_one = trained(six("joint"), SETTINGS)
    monkeypatch.setattr(train, "SHARE_TO_COMPACT", {"cpu": 0.5})
    training, ended = Training.start(six("joint"), SETTINGS), []
    if stop_at:
        ended, training = interrupted(training, SETTINGS, stop_at)
        assert (training.unreported() & ~training.live()).any(), "a stopped cell should wait"
    ended += stopped_cells(training, SETTINGS)
    assert sorted(finished.cell for finished in ended) == list(range(6))
    for finished in ended:
        same_end(finished, one_by_one[finished.cell], rel=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in SETTINGS_OF if "GPyTorch" not in kind])
def test_interrupted_anywhere_and_resumed_gives_the_same_bits(kind):
    settings = Settings(lr=0.1, iterations=60, window=10, tolerance=3e-3, evaluate_every=15)
    straight = trained(six(kind), settings)
    for stop_at in (1, 33):
        ended, resumed = interrupted(Training.start(six(kind), settings), settings, stop_at)
        found = {cell.cell: cell for cell in ended} | trained(resumed, settings)
        assert sorted(found) == list(range(6))
        for cell, finished in found.items():
            assert finished.objective.tobytes() == straight[cell].objective.tobytes()
            for fact in ("metrics", "iterations", "curve"):
                assert getattr(finished, fact) == getattr(straight[cell], fact)


@pytest.mark.parametrize("every", [5, 13, 50])
def test_learning_curves_do_not_depend_on_who_shares_the_batch(every):
    settings = Settings(
        lr=0.1, iterations=60, window=10, tolerance=1e-3, evaluate_every=every, check_every=20
    )
    for cell, finished in trained(six("fixed elbo"), settings).items():
        regular = range(0, finished.iterations + 1, every)
        assert [iteration for iteration, _ in finished.curve] == sorted(
            {*regular, finished.iterations}
        )
        (_, last), end = finished.curve[-1], finished.metrics["test"]
        assert last == pytest.approx({name: end[name] for name in ("nll", "error")}, rel=1e-12)
        if cell in (0, 5):
            arrays = curve_arrays(finished.curve)
            assert set(arrays) == {"evaluated_at", "test_nll", "test_error"}
            alone = trained(six("fixed elbo").keep([cell]), settings)[0]
            for name, values in curve_arrays(alone.curve).items():
                np.testing.assert_allclose(arrays[name], values, rtol=1e-7)


def test_the_order_of_rows_is_the_same_everywhere():
    assert shuffled_order([0, 7], 0, 10)[0].tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert shuffled_order([3], 2, 10)[0].tolist() == [4, 0, 8, 5, 3, 9, 7, 6, 1, 2]


def test_an_epoch_covers_all_rows_and_the_next_one_in_another_order():
    made = program(index=(0, 1, 1), minibatch=10)
    first, second = (
        torch.cat([made.row_numbers(3 * epoch + i) for i in range(3)], 1) for epoch in range(2)
    )
    for rows in (first, second):
        assert torch.equal(rows.sort(1).values, torch.arange(30).expand(2, 30))
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(made.row_numbers(5)[1:], made.keep([2]).row_numbers(5))
    afresh = [program(minibatch=10, afresh=True).row_numbers(i)[0].tolist() for i in range(30)]
    assert {len(set(rows)) for rows in afresh} == {10}, "without replacement"
    assert len({row for rows in afresh[:3] for row in rows}) < 30, "three draws are no epoch"
    left_over = program(minibatch=8)
    seen = [
        {int(row) for i in steps for row in left_over.row_numbers(i)[0]}
        for steps in (range(3), range(30))
    ]
    assert [len(rows) for rows in seen] == [24, 30]


def test_acceptance_is_kept_by_blocks_of_iterations(monkeypatch):
    for module in ("state", "step", "reports"):
        monkeypatch.setattr(f"dlmexp.core.training.{module}.ACCEPTANCE_BLOCK", 20)
    made = program(betas=(1.0,), index=(0,), likelihood="poisson", estimator=UPS(2, "rejection"))
    (finished,) = trained(made, Settings(lr=0.05, iterations=26, window=None)).values()
    blocks = finished.block_acceptance
    assert blocks.shape == (2,)
    assert ((blocks > 0) & (blocks < 1)).all()
    assert finished.acceptance == pytest.approx(np.average(blocks, weights=[20, 6]), rel=1e-12)
    for finished in trained(program(), Settings(lr=0.05, iterations=3, window=None)).values():
        assert finished.acceptance is None


STEPS = Settings(lr=0.05, iterations=40, window=5)
CASES = {
    name: how
    for name, how in PROGRAMS.items()
    if name not in ("afresh", "kernel of GPyTorch", "fixed elbo")
}

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _advanced(made, iterations, eager, resume_at=None):
    state = State.fresh(made.initial(), STEPS)
    advance = make_stepper(made, state, STEPS)
    for iteration in range(iterations):
        if iteration == resume_at:
            state = State.from_arrays(state.arrays(), state.outcome.device)
            advance = make_stepper(made, state, STEPS)
        if eager:
            made.load_minibatch(iteration)
            step(made, state, STEPS)
        else:
            advance()
    return state


def _same(state, other, rtol=0.0, atol=0.0):
    torch.testing.assert_close(state.arrays(), other.arrays(), rtol=rtol, atol=atol, equal_nan=True)


@needs_gpu
@pytest.mark.parametrize("case", [*CASES, "rejection"])
def test_captured_equals_eager_and_gpu_equals_cpu(case):
    how = CASES.get(
        case, {"estimator": UPS(2, "rejection"), "likelihood": "poisson"}
    )  # which is not captured
    assert program(**how, device="cuda").capturable == (case != "rejection")
    captured, eager = (
        _advanced(program(**how, device="cuda"), 30, eager=eager) for eager in (False, True)
    )
    _same(captured, eager, rtol=1e-9, atol=1e-10)
    gpu, cpu = (
        _advanced(program(**how, device=device), 10, eager=False) for device in ("cuda", "cpu")
    )
    _same(gpu, cpu, rtol=1e-7, atol=1e-8)


@needs_gpu
def test_training_on_a_gpu_ends_as_on_a_cpu():
    settings = Settings(lr=0.1, iterations=300, window=20, evaluate_every=30, check_every=50)
    on_cpu, on_gpu = (
        trained(program(device=device, objective="elbo"), settings) for device in ("cpu", "cuda")
    )
    for cell, cpu in on_cpu.items():
        gpu = on_gpu[cell]
        assert gpu.iterations == cpu.iterations
        assert [at for at, _ in gpu.curve] == [at for at, _ in cpu.curve]
        assert gpu.metrics["test"]["nll"] == pytest.approx(cpu.metrics["test"]["nll"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_parts_in_threads_of_their_own_are_the_step_itself(case, monkeypatch):
    before, made = torch.get_num_threads(), program(**CASES[case])
    monkeypatch.setattr(stepper_module, "MIN_ENTRIES_PER_PART", 1)
    try:
        torch.set_num_threads(3)
        assert len(stepper_module.parts_of_batch(made, State.fresh(made.initial(), STEPS))) == 3
        found = _advanced(made, 12, eager=False, resume_at=7)
    finally:
        torch.set_num_threads(before)
    # The products of a library depend in the last bit on how many there are; where cells share one,
    # that is the batch.
    _same(found, _advanced(program(**CASES[case]), 12, eager=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("iteration", "evaluate_every", "expected"),
    [(0, None, 20), (15, None, 5), (95, None, 3), (0, 6, 6), (4, 6, 2), (18, 6, 2)],
)
def test_a_stretch_ends_at_the_next_look_evaluation_or_limit(iteration, evaluate_every, expected):
    settings = Settings(iterations=98, check_every=20, evaluate_every=evaluate_every)
    assert train.steps_until_next_event(iteration, settings) == expected


def test_acceptance_is_the_mean_over_iterations_also_in_a_last_block_that_is_shorter():
    sums = np.array([50.0, 75.0, 10.0, 0.0])
    mean, by_block = reports.acceptance_rates(sums, 220)
    assert mean == pytest.approx(135 / 220)
    assert by_block.tolist() == [0.5, 0.75, 0.5]


def test_where_nothing_is_drawn_there_is_no_acceptance():
    mean, by_block = reports.acceptance_rates(np.zeros(4), 220)
    assert mean is None
    assert by_block.tolist() == [0, 0, 0]


def test_a_step_passes_few_frames_between_the_loop_and_the_likelihood(monkeypatch):
    """Of our own code: whoever debugs a loss should see the whole way to it."""
    depths = []
    plain = Probit.log_loss

    def counted(*arguments):
        names = [frame.name for frame in traceback.extract_stack() if "dlmexp" in frame.filename]
        depths.append(len(names) - names.index("train"))
        return plain(*arguments)

    monkeypatch.setattr(Probit, "log_loss", counted)
    trained(program(), Settings(iterations=1, window=None))
    assert depths[0] <= 10
