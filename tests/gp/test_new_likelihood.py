"""A likelihood of which only `log_prob` is written: the generic integrals, and that it can be trained as it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from dlmexp.errors import UserError
from dlmexp.estimators import BMC, UPS, Exact, Quadrature, SmoothBMC
from dlmexp.gp.kernels import Parameter, rbf
from dlmexp.gp.likelihoods import LIKELIHOODS, Likelihood, Poisson, Probit
from dlmexp.gp.likelihoods.base import relative_error
from dlmexp.objectives import OBJECTIVES
from dlmexp.training.program import Model, Split
from dlmexp.training.state import Settings
from dlmexp.training.train import Training
from dlmexp.training.variants import Joint
from tests.support.small_programs import stopped_cells

pytestmark = pytest.mark.slow

MU = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(2, 6)
V = torch.linspace(0.1, 1.5, 12, dtype=torch.float64).reshape(2, 6)
Y = torch.tensor([[0, 1, 2, 0, 1, 3], [1, 1, 0, 4, 2, 1]], dtype=torch.float64)


@dataclass(frozen=True)
class NegativeBinomial(Likelihood):
    """Counts with mean e^f and variance e^f + dispersion e^2f: the recipe of `likelihoods.base`."""

    dispersion: Tensor
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


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    LIKELIHOODS.register("negative_binomial")(NegativeBinomial)
    yield
    del LIKELIHOODS._found["negative_binomial"]


@dataclass(frozen=True)
class PlainProbit(Likelihood):
    task = "binary"

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return Probit().log_prob(f, y)


@dataclass(frozen=True)
class PlainPoisson(Likelihood):
    task = "count"

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return Poisson().log_prob(f, y)


@pytest.mark.parametrize(("plain", "known"), [(PlainProbit(), Probit()), (PlainPoisson(), Poisson())])
def test_generic_integrals_equal_those_of_likelihoods_that_know_better(plain, known):
    y = Y.clamp(max=1)
    for name in ("log_loss", "elbo_loss"):
        found, expected = getattr(plain, name)(MU, V, y), getattr(known, name)(MU, V, y)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)
    if plain.task == "binary":
        torch.testing.assert_close(plain.mean(MU, V), known.mean(MU, V), rtol=1e-9, atol=1e-10)


def test_its_parameters_are_each_cells_own_and_get_a_gradient():
    dispersion = torch.tensor([0.2, 3.0], dtype=torch.float64, requires_grad=True)
    likelihood = NegativeBinomial.from_hyper({"dispersion": dispersion})
    loss = likelihood.log_loss(MU, V, Y)
    e = torch.linspace(-12, 12, 6001, dtype=torch.float64)[:, None, None]
    p = torch.distributions.NegativeBinomial(
        1 / dispersion[:, None], logits=MU + V.sqrt() * e + dispersion[:, None].log()
    )
    density = (p.log_prob(Y) - e.square() / 2).exp() / (2 * torch.pi) ** 0.5
    expected = -torch.trapezoid(density, e, dim=0).log()
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=1e-9)
    ours, theirs = (torch.autograd.grad(each.sum(), dispersion, retain_graph=True)[0] for each in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(likelihood.mean(MU, V), (MU + V / 2).exp(), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("objective", "estimator"),
    [("elbo", Exact()), *(("log_dlm", estimator) for estimator in (Exact(), Quadrature(), BMC(5), SmoothBMC(5)))],
)
def test_it_trains_and_is_measured(objective, estimator):
    g = torch.Generator().manual_seed(0)
    X = torch.randn(1, 30, 2, generator=g, dtype=torch.float64)
    y = torch.poisson(X[..., 0].exp(), generator=g)
    split = Split(X, y, {"test": (X, y)}, [0], [0])
    kind = LIKELIHOODS["negative_binomial"]
    model = Model(rbf, kind, False, False, True, 5, OBJECTIVES[objective], estimator, None, initial={"dispersion": 0.7})
    made = Joint(model, split, torch.ones(1, dtype=torch.float64))
    assert made.hyperparameters(made.initial())["dispersion"].item() == pytest.approx(0.7)
    settings = Settings(lr=0.05, iterations=30, window=None)
    (finished,) = stopped_cells(Training.start(made, settings), settings)
    assert set(finished.metrics["test"]) == {"nll", "mre"}
    assert finished.hyperparameters["dispersion"] != pytest.approx(0.7)
    assert finished.objective[-1] < finished.objective[0]


def test_what_it_lacks_is_said_in_a_sentence():
    with pytest.raises(UserError, match=r"'negative_binomial' has no product sampler; use estimator=exact"):
        UPS(3).check(NegativeBinomial)
    with pytest.raises(UserError, match=r"sampler=half_normals can't draw for .* 'probit': use sampler=auto"):
        UPS(3, "half_normals").check(Probit)
    UPS(3, "log_concave").check(Poisson)
    with pytest.raises(UserError, match="needs the peak of the likelihood 'negative_binomial'"):
        NegativeBinomial(torch.ones(1)).peak(Y)
    PlainPoisson.name = "plain_poisson"
    with pytest.raises(UserError, match="'plain_poisson' has no conditional_mean"):
        PlainPoisson().mean(MU, V)
