"""The objectives by name: each is the loss and the regulariser that docs/SPEC.md, section 2, gives it."""

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.estimators import BMC, Draws, Exact
from dlmexp.gp.likelihoods import Gaussian, Poisson, Probit
from dlmexp.gp.posterior import kl
from dlmexp.objectives import OBJECTIVES, Objective

MU = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(2, 6)
V = torch.linspace(0.1, 1.5, 12, dtype=torch.float64).reshape(2, 6)
Y = torch.tensor([[0, 1, 2, 0, 1, 3], [1, 1, 0, 4, 2, 1]], dtype=torch.float64)
DRAWS = Draws.fresh((2,))


@pytest.mark.parametrize("likelihood", [Gaussian(torch.tensor(0.3).double()), Probit(), Poisson()])
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


@pytest.mark.parametrize(
    ("row_loss", "regulariser", "word"),
    [
        (lambda *given: (V.mean(), None), kl, r"row_loss is \[\]"),
        (lambda *given: (V.mean(-1), None), kl, r"row_loss is \[2\]"),
        (lambda *given: (1.5, None), kl, "row_loss is float"),
        (lambda *given: V, kl, "Tensor, not a pair"),
        (lambda *given: (V, V), kl, r"acceptance of row_loss is \[2, 6\]"),
        (lambda *given: (V, None), lambda m, L: kl(m, L).sum(), r"regulariser is \[\]"),
    ],
)
def test_wrong_shapes_of_an_objective_are_a_sentence_with_its_name(row_loss, regulariser, word):
    made = Objective("mine", row_loss, regulariser)
    L = torch.eye(3, dtype=V.dtype).repeat(2, 1, 1)
    with pytest.raises(UserError, match=f"'mine': .*{word}"):
        _ = made.losses(Probit(), Exact(), MU, V, Y, DRAWS), made.penalty(L[:, 0], L)


@pytest.mark.parametrize(
    ("name", "variant", "beta", "task", "said"),
    [
        ("sq_dlm", "joint", 0.0, "regression", True),
        ("sq_dlm", "fixed", 1.0, "regression", False),
        ("elbo", "joint", 0.0, "binary", True),
        ("elbo", "joint", 0.99, "regression", False),
        ("log_dlm", "joint", 0.99, "regression", True),
        ("log_dlm", "joint", 1.0, "regression", False),
        ("log_dlm", "fixed", 0.99, "regression", False),
        ("log_dlm", "joint", 0.01, "binary", True),
        ("log_dlm", "joint", 0.01, "count", False),
        ("fitc", "joint", None, "regression", False),
    ],
)
def test_fits_that_may_have_no_minimiser_say_so(name, variant, beta, task, said):
    assert bool(OBJECTIVES[name].note(variant, beta, task)) == said
