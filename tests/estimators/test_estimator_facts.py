"""What estimators and samplers state about themselves, and one that is written outside the package."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.estimators import BMC, ESTIMATORS, UPS, Estimator, Exact, FreshDraws
from dlmexp.estimators.samplers import SAMPLERS
from dlmexp.gp.likelihoods import LIKELIHOODS, Likelihood, Poisson, Probit
from dlmexp.objectives import OBJECTIVES

MU, V, Y = (torch.full((2, 5), value, dtype=torch.float64) for value in (0.3, 0.5, 1.0))


def test_options_are_the_fields():
    options = ESTIMATORS["smooth_bmc"].options()
    assert list(options) == ["samples", "nu"]
    assert options["samples"] == (int, True)
    assert options["nu"] == (float, False)
    assert ESTIMATORS["exact"].options() == {}


def test_which_are_sampled_and_capturable():
    assert {name for name in ESTIMATORS if ESTIMATORS[name].sampled} == {"bmc", "smooth_bmc", "ups"}
    assert all(each.capturable(Probit) for each in (Exact(), BMC(2), UPS(2)))
    assert not UPS(2, "rejection").capturable(Probit)
    assert [name for name in SAMPLERS if not SAMPLERS[name].capturable] == ["rejection"]


def test_every_likelihood_of_ours_has_a_sampler():
    for name in LIKELIHOODS:
        UPS(2).check(LIKELIHOODS[name])
        UPS(2, "rejection").check(LIKELIHOODS[name])


def test_acceptance_comes_with_every_estimator():
    draws = FreshDraws((2,))
    assert BMC(2).loss_and_acceptance(Poisson(), MU, V, Y, draws)[1] is None
    found = UPS(2).loss_and_acceptance(Poisson(), MU, V, Y, draws)[1]
    assert found is not None
    assert ((found > 0) & (found <= 1)).all()


@pytest.fixture
def shifted() -> Iterator[type[Estimator]]:
    @ESTIMATORS.register("shifted")
    @dataclass(frozen=True)
    class Shifted(Estimator):
        by: float = 1.0
        sampled: ClassVar[bool] = False

        def __call__(self, likelihood: Likelihood, mu, v, y, draws):
            return likelihood.log_loss(mu, v, y) + self.by

    yield Shifted
    del ESTIMATORS._found["shifted"]


def test_one_from_outside(shifted):
    assert ESTIMATORS["shifted"] is shifted
    assert shifted.name == "shifted"
    row_loss = OBJECTIVES["log_dlm"].row_loss
    assert row_loss is not None
    loss, acceptance = row_loss(Probit(), ESTIMATORS["shifted"](by=2.0), MU, V, Y, FreshDraws((2,)))  # pyright: ignore
    assert acceptance is None
    torch.testing.assert_close(loss, Probit().log_loss(MU, V, Y) + 2)
    with pytest.raises(UserError, match="there is no estimator 'shiftet': did you mean shifted"):
        ESTIMATORS["shiftet"]
