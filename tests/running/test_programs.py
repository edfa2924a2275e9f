"""From cells to the program that trains them; and what may train at the same time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.data.splits import Prepared, normalisation
from dlmexp.estimators import UPS
from dlmexp.plan.batches import entries_of
from dlmexp.running.device import select_target
from dlmexp.running.engine import Capacity
from dlmexp.running.programs import model, program, settings, step_seconds
from dlmexp.running.trainer import Flight
from dlmexp.training.variants import Collapsed, Fixed, Joint
from tests.support.cells import PLAIN

CPU = select_target("cpu", "float64")
ELBO = replace(PLAIN, objective="elbo", variant="joint", estimator="exact", options={}, base=None, M=4)


def _prepared(cell):
    rng = np.random.default_rng(cell.seed)
    X = {name: rng.normal(size=(rows, 2)) for name, rows in (("train", 12), ("val", 3), ("test", 5))}
    y = {name: (x[:, 0] > 0).astype(float) for name, x in X.items()}
    return Prepared(
        X["train"], y["train"], X["val"], y["val"], X["test"], y["test"], 0.0, 1.0, normalisation(X["train"])
    )


def _base(cell):
    return {
        "lengthscale": np.array([1.0 + cell.seed]),
        "outputscale": np.array(2.0),
        "mean": np.array(0.5),
        "Z": np.ones((4, 2)),
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([3.0, 1.0, 0.1])), min_size=1, max_size=6, unique=True))
def test_cells_share_the_rows_of_their_seed(pairs):
    cells = tuple(replace(ELBO, seed=seed, beta=beta) for seed, beta in pairs)
    made = program(cells, _prepared, _base, CPU)
    assert isinstance(made, Joint)
    assert made.beta.tolist() == [beta for _, beta in pairs]
    assert [made.split.seed_of[i] for i in made.split.repetition_of] == [seed for seed, _ in pairs]
    assert len(made.split.X) == len({seed for seed, _ in pairs})
    for i, cell in enumerate(cells):
        assert np.array_equal(made.split.X[made.split.index[i]].numpy(), _prepared(cell).X_train)


def test_each_kind_of_program():
    fixed = tuple(replace(ELBO, variant="fixed", seed=seed, base=f"{seed}") for seed in (0, 3))
    made = program(fixed, _prepared, _base, CPU)
    assert isinstance(made, Fixed)
    assert made.hyper["lengthscale"].tolist() == [[1.0], [4.0]], "each seed has those of its own fit"
    start = program(fixed, _prepared, None, CPU)
    assert isinstance(start, Fixed)
    assert start.hyper["Z"].shape == (2, 4, 2)
    fitc = replace(ELBO, form="collapsed", objective="fitc", beta=None, likelihood="gaussian", task="regression")
    assert isinstance(program((fitc,), _prepared, _base, CPU), Collapsed)
    for cells in (fixed, (ELBO,), (replace(fitc, evaluate="5"),)):
        assert step_seconds(cells, _prepared, CPU, seconds=0.0) > 0


def test_float32_is_the_type_of_rows_alone():
    for variant, base in (("joint", None), ("fixed", "0")):
        cell = replace(ELBO, dtype="float32", variant=variant, base=base)
        made = program((cell,), _prepared, _base, select_target("cpu", "float32"))
        of_rows = [made.split.X, made.split.y, *(part for pair in made.split.parts.values() for part in pair)]
        assert {tensor.dtype for tensor in of_rows} == {torch.float32}
        assert {tensor.dtype for tensor in (made.beta, *made.initial().values())} == {torch.float64}


def test_settings_and_model_have_the_values_of_the_cell():
    cell = replace(
        PLAIN, n=1050, minibatch=100, epochs=20, window=None, max_iterations=None, tolerance=None, evaluate="epoch",
        final_lr=1e-3, decay=5, epsilon=1e-6, resolution=0.25, criterion="sum",
    )  # fmt: skip
    how = settings(cell, CPU)
    assert (how.iterations, how.window, how.evaluate_every, how.tolerance) == (200, None, 10, 0.0)
    for name in ("lr", "final_lr", "decay", "epsilon", "resolution", "criterion"):
        assert getattr(how, name) == getattr(cell, name)
    options = {"samples": 2, "sampler": "rejection"}
    cell = replace(
        cell, parameterisation="unwhitened", ard=True, estimator="ups", options=options, inducing="last",
        minibatch_rows="afresh", initial={"lengthscale": 2.0},
    )  # fmt: skip
    made = model(cell)
    assert (made.M, made.whitened, made.ard, made.learns_mean, made.afresh) == (53, False, True, True, True)
    assert (made.minibatch, made.inducing, made.initial) == (100, "last", {"lengthscale": 2.0})
    assert made.estimator == UPS(2, "rejection")


def flights(*batches):
    return [Flight(batch, batch) for batch in batches]


def test_a_device_is_full_by_entries_memory_or_number():
    one = (PLAIN,)
    assert Capacity.of(torch.device("cpu")).room(one, [])
    assert not Capacity.of(torch.device("cpu")).room(one, flights(one))
    device = Capacity(3, 1.5 * entries_of(one), 1e9)
    assert device.room(one, flights(one)), "below the limit: one more"
    assert not device.room(one, flights(one, one))
    shrunk = flights(one, one)
    shrunk[0].inside = 0
    assert device.room(one, shrunk), "room goes by the cells that are left"
    device = device._replace(entries=1e9)
    assert not device.room((replace(PLAIN, n=10**6),), flights(one, one)), "it does not fit into memory beside them"


def test_the_rejection_sampler_has_a_gpu_to_itself():
    rejecting, plain = (replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}),), (PLAIN,)
    device = Capacity(most=4, entries=1e12, bytes=1e15)
    assert device.room(plain, flights(plain))
    assert device.room(rejecting, [])
    assert not device.room(rejecting, flights(plain))
    assert not device.room(plain, flights(rejecting))
    assert device.comes_last(rejecting, flights(plain))
    assert not device.comes_last(plain, flights(plain))
    assert not Capacity().comes_last(rejecting, flights(plain)), "a CPU keeps the order"


@pytest.mark.parametrize("most", [1, 4])
def test_batches_with_most_steps_go_first_where_some_train_at_once(most):
    from collections import deque

    queue = deque((replace(PLAIN, seed=i, max_iterations=limit),) for i, limit in enumerate((10, 30, 20, 30)))
    Capacity(most, 1e9, 1e12).longest_first(queue, [])
    limits = [batch[0].iterations for batch in queue]
    assert limits == ([10, 30, 20, 30] if most == 1 else [30, 30, 10, 20])
