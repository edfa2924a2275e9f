"""The objectives by name: each is the loss and the regulariser that docs/SPEC.md, section 2, gives it."""

import pytest
import torch

from dlmexp.estimators import BMC, Exact, FreshDraws
from dlmexp.gp.likelihoods import Gaussian, Poisson, Probit
from dlmexp.gp.posterior import kl
from dlmexp.objectives import OBJECTIVES

MU = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(2, 6)
V = torch.linspace(0.1, 1.5, 12, dtype=torch.float64).reshape(2, 6)
Y = torch.tensor([[0, 1, 2, 0, 1, 3], [1, 1, 0, 4, 2, 1]], dtype=torch.float64)
DRAWS = FreshDraws((2,), torch.Generator().manual_seed(0))


def test_names():
    assert set(OBJECTIVES) == {"elbo", "log_dlm", "sq_dlm", "fitc", "power_ep"}
    assert all(name == OBJECTIVES[name].name for name in OBJECTIVES)


def test_what_each_one_has():
    explicit = {name for name in OBJECTIVES if not OBJECTIVES[name].collapsed_only}
    assert explicit == {"elbo", "log_dlm"}
    assert all(OBJECTIVES[name].regulariser is kl for name in explicit)
    assert {name for name in OBJECTIVES if OBJECTIVES[name].collapsed} == {"elbo", "sq_dlm", "fitc", "power_ep"}
    assert {name for name in OBJECTIVES if not OBJECTIVES[name].predicts_variance} == {"sq_dlm"}


@pytest.mark.parametrize(
    "likelihood", [Gaussian(torch.tensor(0.3).double()), Probit(), Poisson()], ids=lambda l: l.name
)
def test_elbo_averages_the_log_loss_log_dlm_the_likelihood(likelihood):
    y = (Y > 0).double() if likelihood.name == "probit" else Y
    e = torch.linspace(-12, 12, 6001, dtype=torch.float64)[:, None, None]
    weight = torch.exp(-e.square() / 2) / (2 * torch.pi) ** 0.5
    log_p = likelihood.log_prob(MU + V.sqrt() * e, y)
    elbo, acceptance = OBJECTIVES["elbo"].row_loss(likelihood, BMC(1), MU, V, y, DRAWS)  # pyright: ignore
    assert acceptance is None
    torch.testing.assert_close(elbo, -torch.trapezoid(weight * log_p, e, dim=0), rtol=1e-6, atol=1e-8)
    dlm, acceptance = OBJECTIVES["log_dlm"].row_loss(likelihood, Exact(), MU, V, y, DRAWS)  # pyright: ignore
    assert acceptance is None
    torch.testing.assert_close(dlm, -torch.trapezoid(weight * log_p.exp(), e, dim=0).log(), rtol=1e-7, atol=1e-9)


def test_log_dlm_asks_its_estimator_and_elbo_does_not():
    bmc = [OBJECTIVES["log_dlm"].row_loss(Poisson(), BMC(2), MU, V, Y, DRAWS)[0] for _ in range(2)]  # pyright: ignore
    assert not torch.equal(*bmc)
    elbo = [OBJECTIVES["elbo"].row_loss(Poisson(), BMC(2), MU, V, Y, DRAWS)[0] for _ in range(2)]  # pyright: ignore
    assert torch.equal(*elbo)


def test_facts():
    def those(fact):
        return {name for name in OBJECTIVES if getattr(OBJECTIVES[name], fact)}

    assert those("has_beta") == {"elbo", "log_dlm", "sq_dlm", "power_ep"}
    assert those("takes_estimator") == {"log_dlm"}
    assert those("needs_gaussian") == {"sq_dlm", "fitc", "power_ep"}
    assert those("path") == {"sq_dlm"}
    assert those("gives_hyperparameters") == {"elbo"}
    assert those("collapsed_only") == {"sq_dlm", "fitc", "power_ep"}
    assert {name: OBJECTIVES[name].selected_by for name in those("selected_by")} == {"sq_dlm": "mse"}
    assert OBJECTIVES["sq_dlm"].solved("fixed")
    assert not OBJECTIVES["sq_dlm"].solved("joint")
    assert not OBJECTIVES["log_dlm"].solved("fixed")
    assert [name for name in OBJECTIVES if OBJECTIVES[name].fits(Probit)] == ["elbo", "log_dlm"]
    assert {name for name in OBJECTIVES if OBJECTIVES[name].collapses(Gaussian)} == {
        "elbo",
        "sq_dlm",
        "fitc",
        "power_ep",
    }
    assert not any(OBJECTIVES[name].collapses(Poisson) for name in OBJECTIVES)


def test_fits_that_may_have_no_minimiser_say_so():
    def note(name, variant, beta, task="regression"):
        return OBJECTIVES[name].note(variant, beta, task) or ""

    assert "no minimiser exists" in note("sq_dlm", "joint", 1.0)
    assert "no minimiser exists" in note("sq_dlm", "joint", 0.0)
    assert not note("sq_dlm", "fixed", 1.0)
    for name in ("elbo", "log_dlm"):
        assert not note(name, "joint", 1.0)
        assert "there may be no minimiser" in note(name, "joint", 0.0, "binary")
    assert "does not see the outputscale" in note("log_dlm", "joint", 0.01, "binary")
    assert not note("log_dlm", "fixed", 0.01, "binary")
    assert "falls without bound" in note("log_dlm", "joint", 0.99)
    assert not note("elbo", "joint", 0.99)
    assert not note("log_dlm", "fixed", 0.99)
    assert not note("log_dlm", "joint", 0.01, "count")
    assert not note("elbo", "joint", 0.01, "binary")
    assert not note("fitc", "joint", None)
