"""One number per cell that recalibrates predictions, against brute force on the same rows."""

from typing import Any

import numpy as np
import pytest
import torch
from dlmexp.training.recalibration import best_factor, rescale
from scipy.optimize import minimize_scalar

from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.training.metrics import evaluate_finally
from tests.support.small_programs import program


def rows(task):
    g = torch.Generator().manual_seed(3)
    mu, v = torch.randn(2, 80, generator=g).double(), 0.1 + torch.rand(2, 80, generator=g).double()
    f = 1.5 * mu + torch.randn(2, 80, generator=g)
    y = {"regression": f, "binary": (f > 0).double(), "count": f.exp().round()}[task]
    hyper = {"noise": torch.tensor([0.2, 2.0]).double(), "mean": torch.zeros(2).double()}
    return hyper, mu, v, y


def definition(name, hyper, i, factor, mu, v, y):
    """The mean NLL of cell i with its factor, written out for its task."""
    likelihood = LIKELIHOODS[name]
    if name == "gaussian":
        return -torch.distributions.Normal(mu, (factor * (v + hyper["noise"][i])).sqrt()).log_prob(y).mean()
    if name == "poisson":
        return likelihood().log_loss(mu, factor * v, y).mean()
    p = torch.special.ndtr(mu / (1 + v).sqrt())
    p = torch.sigmoid(torch.logit(p) / factor)
    return -torch.where(y == 1, p, 1 - p).log().mean()


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson"])
def test_against_brute_force(name):
    likelihood = LIKELIHOODS[name]
    hyper, mu, v, y = rows(likelihood.task)
    factor = best_factor(likelihood, hyper, mu, v, y)
    nll = rescale(likelihood, hyper, factor, mu, v, y).nll.mean(-1)
    for i in range(2):

        def loss(log, i=i):
            return float(definition(name, hyper, i, np.exp(log), mu[i], v[i], y[i]))

        best: Any = minimize_scalar(loss, bounds=(-7, 7), method="bounded", options={"xatol": 1e-8})
        assert np.log(float(factor[i])) == pytest.approx(best.x, abs=1e-3)
        assert float(nll[i]) == pytest.approx(best.fun, abs=1e-7)


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson"])
def test_factor_1_changes_nothing(name):
    likelihood = LIKELIHOODS[name]
    hyper, mu, v, y = rows(likelihood.task)
    plain = likelihood.from_hyper(hyper).log_loss(mu, v, y)
    torch.testing.assert_close(rescale(likelihood, hyper, torch.ones(2).double(), mu, v, y).nll, plain)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
def test_recorded_of_every_fit_and_never_worse_on_the_validation_rows(likelihood):
    made = program("joint", index=(0, 1, 1), likelihood=likelihood)
    posterior = made.posterior(made.initial(), torch.full_like(made.beta, 1e-6))
    for cell in evaluate_finally(made, posterior).read():
        validation = cell.metrics["validation"]
        assert validation["recalibrated_nll"] <= validation["nll"] + 1e-9
        assert np.isfinite(cell.metrics["test"]["recalibrated_nll"])
