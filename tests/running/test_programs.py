"""From cells to the program that trains them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.data.splits import Prepared, normalisation
from dlmexp.estimators import UPS
from dlmexp.running.device import select_target
from dlmexp.running.programs import model, program, settings, step_seconds
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
