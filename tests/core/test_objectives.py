"""A likelihood of which only `log_prob` is written: the generic integrals, and what it lacks. What
objectives say of themselves, and of a mistake in one."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.estimators import UPS, Draws, Exact
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.posterior import kl
from dlmexp.core.likelihoods import Likelihood, Poisson, Probit, relative_error
from dlmexp.core.objectives import OBJECTIVES, Objective

MU = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(2, 6)
V = torch.linspace(0.1, 1.5, 12, dtype=torch.float64).reshape(2, 6)
Y = torch.tensor([[0, 1, 2, 0, 1, 3], [1, 1, 0, 4, 2, 1]], dtype=torch.float64)


@dataclass(frozen=True)
class NegativeBinomial(Likelihood):
    """Counts with mean e^f and variance e^f + dispersion e^2f: the recipe of `likelihoods.base`."""

    dispersion: Tensor
    name: ClassVar = "negative_binomial"
    task = "count"
    parameters: ClassVar = {"dispersion": Parameter(0.5, positive=True)}
    metrics: ClassVar = {"mre": relative_error}

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        r = 1 / self.dispersion
        log_share = f - torch.logaddexp(f, r.log())
        count = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        return count + y * log_share - r * torch.nn.functional.softplus(f - r.log())

    def conditional_mean(self, f: Tensor) -> Tensor:
        return f.exp()


@pytest.mark.slow
def test_its_parameters_are_each_cells_own_and_get_a_gradient():
    dispersion = torch.tensor([0.2, 3.0], dtype=torch.float64, requires_grad=True)
    likelihood = NegativeBinomial.from_hyper({"dispersion": dispersion})
    loss = likelihood.log_loss(MU, V, Y)
    e = torch.linspace(-12, 12, 6001, dtype=torch.float64)[:, None, None]
    by_cell = dispersion[:, None]
    p = torch.distributions.NegativeBinomial(1 / by_cell, logits=MU + V.sqrt() * e + by_cell.log())
    density = (p.log_prob(Y) - e.square() / 2).exp() / (2 * torch.pi) ** 0.5
    expected = -torch.trapezoid(density, e, dim=0).log()
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=1e-9)
    ours, theirs = (
        torch.autograd.grad(each.sum(), dispersion, retain_graph=True)[0]
        for each in (loss, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(likelihood.mean(MU, V), (MU + V / 2).exp(), rtol=1e-9, atol=0)


def plain(known: Likelihood) -> Likelihood:
    """The same likelihood, of which no more than `log_prob` is known."""

    @dataclass(frozen=True)
    class Plain(Likelihood):
        name: ClassVar = f"plain_{known.name}"
        task = known.task

        def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
            return known.log_prob(f, y)

    return Plain()


@pytest.mark.slow
@pytest.mark.parametrize("known", [Probit(), Poisson()], ids=lambda known: known.name)
def test_generic_integrals_equal_those_of_likelihoods_that_know_better(known):
    y = Y.clamp(max=1)
    for name in ("log_loss", "elbo_loss"):
        generic, expected = (getattr(each, name)(MU, V, y) for each in (plain(known), known))
        torch.testing.assert_close(generic, expected, rtol=1e-7, atol=1e-8)
    if known.task == "binary":
        torch.testing.assert_close(
            plain(known).mean(MU, V), known.mean(MU, V), rtol=1e-9, atol=1e-10
        )


@pytest.mark.slow
def test_what_it_lacks_is_said_in_a_sentence():
    with pytest.raises(
        UserError, match=r"'negative_binomial' has no product sampler; use estimator=exact"
    ):
        UPS(3).check(NegativeBinomial)
    with pytest.raises(
        UserError, match=r"sampler=half_normals can't draw for .* 'probit': use sampler=auto"
    ):
        UPS(3, "half_normals").check(Probit)
    UPS(3, "log_concave").check(Poisson)
    with pytest.raises(UserError, match="needs the peak of the likelihood 'negative_binomial'"):
        NegativeBinomial(torch.ones(1)).peak(Y)
    with pytest.raises(UserError, match="'plain_poisson' has no conditional_mean"):
        plain(Poisson()).mean(MU, V)


def test_a_row_loss_with_the_arguments_of_earlier_versions_is_refused():
    def earlier(likelihood, estimator, mu, v, y, draws):
        return v, None

    row_loss: Any = earlier
    with pytest.raises(UserError, match=r"'mine': row_loss must take \(likelihood, estimator, q_f"):
        Objective("mine", row_loss=row_loss, regulariser=kl)


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
    result = row_loss(Probit(), Exact(), MU, V, Y, Draws.fresh((2,)))
    with pytest.raises(UserError, match=f"'mine': .*{word}"):
        _ = made.checked_losses(result, MU.shape), made.penalty(L[:, 0], L)


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
