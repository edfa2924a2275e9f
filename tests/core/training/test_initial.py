"""Initial values that depend on the rows of a split."""

import math

import pytest
import torch

import dlmexp
from dlmexp.core.gp.inducing import INDUCING, InducingRequest, median_distance
from dlmexp.core.training.parameters import constrain
from dlmexp.experiment import config
from tests.support.small_programs import program


def initial(**model):
    """The constrained initial values of three cells of two splits, and their program."""
    batch = program(index=(0, 1, 1), **model)
    return batch, constrain(batch.initial(), batch.parameters)


@pytest.mark.parametrize("name", INDUCING)
def test_every_cell_starts_at_the_inducing_inputs_of_its_split(name):
    batch, values = initial(likelihood="gaussian", inducing=name)
    hyper = {key: values[key][:1] for key in ("lengthscale", "outputscale")}
    for cell, split in enumerate((0, 1, 1)):
        seed = batch.data.seed_of[split]
        start = InducingRequest(batch.data.X[split], batch.M, seed, batch.model.kernel, hyper)
        assert torch.equal(values["Z"][cell], INDUCING[name](start))


def test_greedy_looks_at_the_initial_lengthscale():
    _, short = initial(inducing="greedy", initial={"lengthscale": 0.1})
    _, long = initial(inducing="greedy", initial={"lengthscale": 10.0})
    assert not torch.equal(short["Z"], long["Z"])


@pytest.mark.parametrize("ard", [False, True])
def test_lengthscale_starts_at_the_root_of_the_number_of_features(ard):
    batch, values = initial(ard=ard, initial={"lengthscale": "sqrt"})
    D = batch.data.X.shape[-1]
    assert values["lengthscale"].shape == (3, D if ard else 1)
    torch.testing.assert_close(
        values["lengthscale"], torch.full_like(values["lengthscale"], math.sqrt(D))
    )


def test_lengthscale_starts_at_the_median_distance_of_its_split():
    batch, values = initial(ard=True, initial={"lengthscale": "median"})
    for cell, split in enumerate((0, 1, 1)):
        expected = median_distance(batch.data.X[split], batch.data.seed_of[split])
        torch.testing.assert_close(
            values["lengthscale"][cell], torch.full_like(values["lengthscale"][cell], expected)
        )


def test_words_of_the_configuration_are_those_of_the_core():
    assert tuple(INDUCING) == config.INDUCING


def test_other_hyperparameters_start_at_numbers():
    model = dlmexp.Model(M=2, initial={"noise": "sqrt"})
    with pytest.raises(dlmexp.UserError, match=r"give a number$"):
        dlmexp.fit([[0.0], [1.0]], [0.0, 1.0], model)
    model = dlmexp.Model(M=2, initial={"lengthscale": "mean"})
    with pytest.raises(dlmexp.UserError, match="a number, or sqrt or median"):
        dlmexp.fit([[0.0], [1.0]], [0.0, 1.0], model)
