"""DirectLoss against GPyTorch's own objective in every batch shape; SquareLoss by definition."""

# GPyTorch gives the result of every call a union of types.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportGeneralTypeIssues=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

import runpy
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    # torch deprecates its script decorator, which GPyTorch's dependency still uses when it is
    # imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    import gpytorch
from gpytorch.mlls import PredictiveLogLikelihood
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)

from dlmexp.common.errors import UserError
from dlmexp.mlls import (
    BMC,
    UPS,
    CRPSLoss,
    DirectLoss,
    Exact,
    MixtureLoss,
    PoissonExpLikelihood,
    Quadrature,
    RobustLoss,
    SmoothBMC,
    SquareLoss,
    split_components,
)
from tests.support.laplace import exact_log_loss

BERNOULLI = gpytorch.likelihoods.BernoulliLikelihood()
GAUSSIAN = gpytorch.likelihoods.GaussianLikelihood()
LIKELIHOODS = {
    "gaussian": (gpytorch.likelihoods.GaussianLikelihood, "real"),
    "probit": (gpytorch.likelihoods.BernoulliLikelihood, "label"),
    "poisson": (PoissonExpLikelihood, "count"),
    "student_t": (gpytorch.likelihoods.StudentTLikelihood, "real"),
}
if hasattr(gpytorch.likelihoods, "PoissonLikelihood"):  # not in GPyTorch before 1.15
    LIKELIHOODS["poisson_softplus"] = (gpytorch.likelihoods.PoissonLikelihood, "count")


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, batch: torch.Size, strategy: Any, M: int = 6):
        g = torch.Generator().manual_seed(3)
        q = CholeskyVariationalDistribution(M, batch_shape=batch)
        super().__init__(
            strategy(self, torch.randn(*batch, M, 2, generator=g), q, learn_inducing_locations=True)
        )
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)
        self.double()
        for p in self.parameters():
            p.data.add_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))
        self.variational_strategy.variational_params_initialized.fill_(1)

    def forward(self, x: torch.Tensor) -> Any:
        mean: Any = self.mean_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


def model(batch: tuple[int, ...] = (), strategy: Any = VariationalStrategy) -> Any:
    return Model(torch.Size(batch), strategy)


GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
DATA = {
    "x": X,
    "real": X.sum(-1) + 0.1 * torch.randn(30, generator=GENERATOR, dtype=torch.float64),
    "label": (X.sum(-1) > 0).double(),
    "count": torch.poisson(X.sum(-1).clamp(-1, 2).exp(), generator=GENERATOR),
}


def value_and_gradients(mll, x, y):
    parameters = dict(mll.named_parameters())
    value = mll(mll.model(x), y)
    gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    return value.detach(), dict(zip(parameters, gradients, strict=True))


STRATEGIES = (VariationalStrategy, UnwhitenedVariationalStrategy)
SHAPES = ((), (3,), (2, 3))
CASES = [
    *product(("gaussian", "probit"), STRATEGIES, SHAPES),
    *((name, VariationalStrategy, ()) for name in LIKELIHOODS),
]


@pytest.mark.parametrize(("name", "strategy", "batch"), CASES)
def test_equals_gpytorchs_predictive_log_likelihood(name, strategy, batch):
    """It has a closed form for two likelihoods; 60 nodes are nearly exact for others."""
    kind, column = LIKELIHOODS[name]
    m, likelihood = model(batch, strategy), kind().double()
    direct = DirectLoss(likelihood, m, 100, beta=0.3)
    predictive = PredictiveLogLikelihood(likelihood, m, 100, beta=0.3)
    with gpytorch.settings.num_gauss_hermite_locs(60):
        value, gradients = value_and_gradients(direct, DATA["x"], DATA[column])
        expected, expected_gradients = value_and_gradients(predictive, DATA["x"], DATA[column])
    close = name in ("gaussian", "probit")
    assert value.shape == batch
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10 if close else 1e-4)
    atol = 1e-9 if close else 1e-2
    for parameter, gradient in expected_gradients.items():
        if gradient is not None:
            torch.testing.assert_close(gradients[parameter], gradient, rtol=1e-8, atol=atol)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize(
    "estimator", [BMC(10), SmoothBMC(10, nu=1e-4), UPS(10), Quadrature()], ids=lambda e: e.name
)
def test_every_estimator_trains_every_likelihood_in_any_batch_shape(name, estimator):
    kind, column = LIKELIHOODS[name]
    m, likelihood = model((2, 3)), kind().double()
    torch.manual_seed(0)
    value, gradients = value_and_gradients(
        DirectLoss(likelihood, m, 100, 0.1, estimator), DATA["x"], DATA[column]
    )
    assert value.shape == (2, 3)
    assert value.isfinite().all()
    for parameter, gradient in gradients.items():
        assert gradient is not None, parameter
        assert gradient.isfinite().all(), parameter
        assert gradient.abs().max() > 0, parameter


def test_narrow_likelihood_of_gpytorch_is_integrated_where_it_is():
    likelihood = gpytorch.likelihoods.LaplaceLikelihood().double()
    likelihood.noise = 0.003
    m = model((2,))
    q = m(DATA["x"])
    direct = DirectLoss(likelihood, m, 100, beta=0.0)
    b = likelihood.noise.sqrt()
    expected = -exact_log_loss(2 * b * b, q.mean, q.variance, DATA["real"]).mean(-1)
    torch.testing.assert_close(direct(q, DATA["real"]), expected, rtol=0, atol=1e-3)


def test_each_model_of_the_batch_may_have_its_beta():
    m = model((2,))
    beta = torch.tensor([0.1, 10.0], dtype=torch.float64)
    both = DirectLoss(BERNOULLI, m, 100, beta=beta)(m(DATA["x"]), DATA["label"])
    for i in range(2):
        alone = DirectLoss(BERNOULLI, m, 100, beta=float(beta[i]))(m(DATA["x"]), DATA["label"])
        torch.testing.assert_close(both[i], alone[i], rtol=1e-12, atol=1e-12)


def test_labels_may_be_minus_one_and_one():
    m = model()
    mll = DirectLoss(BERNOULLI, m, 100)
    value = mll(m(DATA["x"]), 2 * DATA["label"] - 1)
    torch.testing.assert_close(value, mll(m(DATA["x"]), DATA["label"]), rtol=0, atol=0)


@pytest.mark.parametrize("objective", [DirectLoss, SquareLoss])
def test_without_a_penalty_only_the_fit_is_left(objective):
    m = model()
    without, small = (
        objective(GAUSSIAN, m, 100, beta=beta)(m(DATA["x"]), DATA["real"]) for beta in (0, 1e-12)
    )
    torch.testing.assert_close(without, small, rtol=0, atol=1e-9)


class Constant(gpytorch.mlls.AddedLossTerm):
    """A loss of 2 that a model adds to its objective."""

    def loss(self):
        return torch.tensor(2.0, dtype=torch.float64)


@pytest.mark.parametrize("objective", [DirectLoss, SquareLoss])
def test_losses_that_the_model_adds_and_log_priors_are_part_of_the_objective(objective):
    plain = gpytorch.likelihoods.GaussianLikelihood().double()
    prior = gpytorch.priors.GammaPrior(2.0, 3.0)
    with_prior = gpytorch.likelihoods.GaussianLikelihood(noise_prior=prior).double()
    m = model()
    value = objective(plain, m, 100)(m(DATA["x"]), DATA["real"])
    m.register_added_loss_term("constant")
    m.update_added_loss_term("constant", Constant())
    both = objective(with_prior, m, 100)(m(DATA["x"]), DATA["real"])
    log_prior = prior.log_prob(with_prior.noise).sum() / 100
    torch.testing.assert_close(both, value + log_prior - 2, rtol=1e-10, atol=1e-10)


def test_terms_that_are_not_combined_add_up_to_the_objective():
    m = model((2,))
    m.register_added_loss_term("constant")
    m.update_added_loss_term("constant", Constant())
    whole = DirectLoss(GAUSSIAN, m, 100)(m(DATA["x"]), DATA["real"])
    parts = DirectLoss(GAUSSIAN, m, 100, combine_terms=False)(m(DATA["x"]), DATA["real"])
    fit, penalty, log_prior, added_loss = parts
    torch.testing.assert_close(fit - penalty + log_prior - added_loss, whole, rtol=0, atol=0)
    assert added_loss.tolist() == [2, 2]


def test_poisson_with_exponential_link_works_with_gpytorchs_objectives():
    m = model()
    with gpytorch.settings.num_gauss_hermite_locs(60):
        likelihood = PoissonExpLikelihood().double()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, m, 100)(m(DATA["x"]), DATA["count"])
    q = m(DATA["x"])
    y = DATA["count"]
    expected = y * q.mean - (q.mean + q.variance / 2).exp() - torch.lgamma(y + 1)
    kl = m.variational_strategy.kl_divergence() / 100
    torch.testing.assert_close(elbo, expected.mean() - kl, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"likelihood": gpytorch.likelihoods.SoftmaxLikelihood(2, 3)}, "SoftmaxLikelihood"),
        (
            {"likelihood": gpytorch.likelihoods.LaplaceLikelihood(), "estimator": "ups"},
            "LaplaceLikelihood",
        ),
        (
            {"likelihood": gpytorch.likelihoods.BernoulliLikelihood},
            "likelihood=BernoulliLikelihood",
        ),
        ({"estimator": "exat"}, "'exat'"),
        ({"estimator": UPS}, "estimator=UPS"),
        ({"beta": -0.1}, "beta=-0.1"),
        ({"beta": torch.tensor([1.0, -2.0])}, "beta="),
        ({"beta": float("nan")}, "beta=nan"),
    ],
    ids=str,
)
def test_argument_that_makes_no_sense_is_refused_at_once(given, word):
    with pytest.raises(UserError, match=word):
        DirectLoss(**({"likelihood": BERNOULLI, "model": model(), "num_data": 9} | given))


@pytest.mark.parametrize(
    "estimator", [Exact(), Quadrature(), BMC(10), SmoothBMC(10), UPS(10)], ids=lambda e: e.name
)
def test_name_stands_for_an_estimator_with_ten_samples(estimator):
    assert DirectLoss(BERNOULLI, model(), 9, estimator=estimator.name).estimator == estimator


def test_several_tasks_are_refused_where_there_is_no_loss_for_them():
    q = gpytorch.distributions.MultitaskMultivariateNormal(torch.zeros(4, 2), torch.eye(8))
    with pytest.raises(UserError, match="one latent function per row"):
        SquareLoss(GAUSSIAN, model(), 100)(q, torch.zeros(4, 2))
    with pytest.raises(UserError, match="BernoulliLikelihood with several tasks"):
        DirectLoss(BERNOULLI, model(), 100)(q, torch.zeros(4, 2))


class Subclass(gpytorch.likelihoods.GaussianLikelihood):
    """As people derive one, to change how it is constructed."""

    def __init__(self, start: float):
        super().__init__()
        self.noise = start


def assert_equals_gpytorch(likelihood, m, y, **kwargs):
    """Compare value and gradients of DirectLoss with GPyTorch's closed form."""
    direct = DirectLoss(likelihood, m, 100, beta=0.3)
    predictive = PredictiveLogLikelihood(likelihood, m, 100, beta=0.3)
    parameters = [p for p in direct.parameters() if p.requires_grad]
    results = []
    for mll in (direct, predictive):
        value = mll(m(DATA["x"]), y, **kwargs)
        results.append([value, *torch.autograd.grad(value.sum(), parameters, allow_unused=True)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def test_a_subclass_of_gaussian_likelihood_is_gaussian():
    assert_equals_gpytorch(Subclass(0.3).double(), model(), DATA["real"])


@pytest.mark.parametrize("learns", [False, True])
def test_noise_may_be_fixed_row_by_row(learns):
    noise = torch.linspace(0.1, 2, len(X), dtype=torch.float64)
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        noise, learn_additional_noise=learns
    ).double()
    assert_equals_gpytorch(likelihood, model((2,)), DATA["real"])
    assert_equals_gpytorch(likelihood, model(), DATA["real"], noise=noise.flip(0))


def test_fixed_noise_of_other_rows_is_refused():
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(7)).double()
    m = model()
    with pytest.raises(UserError, match="FixedNoiseGaussianLikelihood has the noise of other rows"):
        DirectLoss(likelihood, m, 100)(m(DATA["x"]), DATA["real"])


class TaskModel(gpytorch.models.ApproximateGP):
    """Two tasks, independent or mixtures of three latent functions."""

    def __init__(self, mixed: bool):
        batch = torch.Size([3 if mixed else 2])
        g = torch.Generator().manual_seed(3)
        Z = torch.randn(*batch, 5, 2, generator=g)
        base = VariationalStrategy(self, Z, CholeskyVariationalDistribution(5, batch_shape=batch))
        if mixed:
            strategy = gpytorch.variational.LMCVariationalStrategy(base, num_tasks=2, num_latents=3)
        else:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                base, num_tasks=2
            )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        self.covar_module = gpytorch.kernels.RBFKernel(batch_shape=batch)
        self.double()
        base.variational_params_initialized.fill_(1)
        for p in self.parameters():
            p.data.add_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_row_may_have_several_tasks(mixed, rank):
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2, rank=rank).double()
    if rank == 0:
        likelihood.task_noises = torch.tensor([0.1, 1.0])
    y = torch.stack([DATA["real"], DATA["count"]], -1)
    assert_equals_gpytorch(likelihood, TaskModel(mixed), y)


@pytest.mark.parametrize("loss", [DirectLoss, CRPSLoss, RobustLoss, SquareLoss])
def test_exact_losses_leave_the_global_random_state_alone(loss):
    m = model()
    q = m(DATA["x"])
    before = torch.get_rng_state()
    loss(GAUSSIAN, m, 100)(q, DATA["real"])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(30, 1), (29,), (1,), (2, 30), ()])
def test_targets_of_another_shape_are_refused(shape):
    m = model()
    with pytest.raises(UserError, match=r"the targets are \[.*model's output is \[30\]: give"):
        DirectLoss(GAUSSIAN, m, 100)(m(DATA["x"]), torch.zeros(shape))


IMPOSSIBLE = {
    "gaussian": (torch.nan, "a target is nan: GaussianLikelihood takes finite numbers"),
    "probit": (2.0, "a target is 2: BernoulliLikelihood takes labels 0 and 1"),
    "poisson": (0.5, "a target is 0.5: PoissonExpLikelihood takes counts"),
    "student_t": (torch.inf, "a target is inf: StudentTLikelihood takes finite numbers"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_targets_are_refused(name):
    kind, column = LIKELIHOODS[name]
    value, message = IMPOSSIBLE[name]
    y = DATA[column].clone()
    y[4] = value
    m = model()
    with pytest.raises(UserError, match=message):
        DirectLoss(kind().double(), m, 100)(m(DATA["x"]), y)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("estimator", ["exact", "bmc"])
def test_any_other_likelihood_is_integrated_by_quadrature(estimator, batch):
    """Laplace noise, one per model; expected is GPyTorch's objective with many nodes."""
    likelihood = gpytorch.likelihoods.LaplaceLikelihood(batch_shape=torch.Size(batch)).double()
    likelihood.noise = torch.arange(1.0, 1 + (batch[0] if batch else 1)).view(*batch, 1)
    m = model(batch)
    torch.manual_seed(0)
    direct = DirectLoss(likelihood, m, 100, 0.3, estimator)
    predictive = PredictiveLogLikelihood(likelihood, m, 100, beta=0.3)
    value, gradients = value_and_gradients(direct, DATA["x"], DATA["real"])
    with gpytorch.settings.num_gauss_hermite_locs(60):
        expected, _ = value_and_gradients(predictive, DATA["x"], DATA["real"])
    atol = 0.01 if estimator == "exact" else 0.3
    torch.testing.assert_close(value, expected, rtol=0, atol=atol)
    assert gradients["likelihood.raw_noise"].abs().min() > 0


@pytest.mark.parametrize(
    ("batch", "strategy"),
    [((), VariationalStrategy), ((2, 3), VariationalStrategy), ((), UnwhitenedVariationalStrategy)],
)
def test_square_loss_is_penalised_by_the_squared_norm_of_the_whitened_mean(batch, strategy):
    m = model(batch, strategy)
    value = SquareLoss(GAUSSIAN, m, 100, beta=0.3)(m(DATA["x"]), DATA["real"])
    error = (m(DATA["x"]).mean - DATA["real"]).square().mean(-1)
    mean = m.variational_strategy._variational_distribution.variational_mean
    norm = mean.square().sum(-1)
    if strategy is UnwhitenedVariationalStrategy:
        difference = mean - m.mean_module.constant.unsqueeze(-1)
        Kuu = m.variational_strategy.prior_distribution.covariance_matrix
        norm = (difference * torch.linalg.solve(Kuu, difference)).sum(-1)
    torch.testing.assert_close(value, -0.5 * error - 0.3 / 100 * 0.5 * norm, rtol=1e-9, atol=1e-12)


def log_density(name: str, likelihood: Any, mu: Any, v: Any, y: Any) -> Any:
    """log E_{N(mu, v)} p(y|f) in closed form."""
    if name == "gaussian":
        return torch.distributions.Normal(mu, (v + likelihood.noise).sqrt()).log_prob(y)
    return torch.special.log_ndtr((2 * y - 1) * mu / (1 + v).sqrt())


@pytest.mark.parametrize("name", ["gaussian", "probit"])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_mixture_is_the_mean_density_and_the_mean_kl_of_its_components(name, batch):
    kind, column = LIKELIHOODS[name]
    m, likelihood = model(batch), kind().double()
    y = DATA[column]
    q = m(DATA["x"])
    densities = log_density(name, likelihood, q.mean, q.variance, y).exp()
    expected = densities.mean(-2).log().mean(-1)
    expected = expected - 0.3 / 100 * m.variational_strategy.kl_divergence().mean(-1)
    mixture = MixtureLoss(likelihood, m, 100, beta=0.3)
    torch.testing.assert_close(mixture(m(DATA["x"]), y), expected, rtol=1e-9, atol=1e-9)


def single_and_mixture(K: int = 4) -> tuple[Any, Any]:
    """A model with one Gaussian, and one with a mixture that shares all but q."""
    single = model()
    mixture = model()
    q = CholeskyVariationalDistribution(6, batch_shape=torch.Size([K]))
    mixture.variational_strategy._variational_distribution = q.double()
    return single, mixture


def test_mixture_of_equal_components_is_the_direct_loss_of_one_gaussian():
    single, mixture = single_and_mixture()
    # The means are drawn from a Gaussian that is next to a point.
    factor = single.variational_strategy._variational_distribution.chol_variational_covar
    factor.data.copy_(1e-12 * torch.eye(6, dtype=torch.float64))
    split_components(mixture, single)
    of_mixture = MixtureLoss(GAUSSIAN, mixture, 100)(mixture(DATA["x"]), DATA["real"])
    of_single = DirectLoss(GAUSSIAN, single, 100)(single(DATA["x"]), DATA["real"])
    torch.testing.assert_close(of_mixture, of_single)


def test_split_components_have_the_factor_of_the_single_gaussian_and_means_drawn_from_it():
    single, mixture = single_and_mixture(K=4000)
    torch.manual_seed(0)
    split_components(mixture, single)
    q = single.variational_strategy._variational_distribution
    split = mixture.variational_strategy._variational_distribution
    assert torch.equal(split.chol_variational_covar[7], q.chol_variational_covar)
    L = q.chol_variational_covar.detach().tril()
    means = split.variational_mean.detach()
    covariance = L @ L.T
    largest = float(covariance.diagonal().max())
    torch.testing.assert_close(means.mean(0), q.variational_mean.detach(), rtol=0, atol=0.1)
    torch.testing.assert_close(means.T.cov(), covariance, rtol=0, atol=0.1 * largest)


@pytest.mark.slow
def test_mixture_learns_two_branches_that_one_gaussian_averages():
    """Targets are about +1 or -1 at every x; a single Gaussian has to cover both."""
    g = torch.Generator().manual_seed(0)
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None].expand(-1, 2)
    signs = torch.sign(torch.randn(60, generator=g, dtype=torch.float64))
    y = signs + 0.05 * torch.randn(60, generator=g, dtype=torch.float64)
    single, mixture = single_and_mixture(K=2)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01  # held: what is left of the spread goes to q
    torch.manual_seed(1)
    trained(DirectLoss(likelihood, single, 60, beta=0.1), x, y)
    split_components(mixture, single)
    value = trained(MixtureLoss(likelihood, mixture, 60, beta=0.1), x, y)
    assert value > trained(DirectLoss(likelihood, single, 60, beta=0.1), x, y) + 0.3


def trained(mll: Any, x: torch.Tensor, y: torch.Tensor) -> float:
    """Train the model, but not the likelihood, and return the last value of the objective."""
    optimizer = torch.optim.Adam(mll.model.parameters(), lr=0.05)
    values = []
    for _ in range(150):
        optimizer.zero_grad()
        value: Any = mll(mll.model(x), y)
        (-value).backward()
        optimizer.step()
        values.append(float(value.detach()))
    return values[-1]


def test_crps_is_that_of_the_predictive_distribution():
    """Against its definition, the integral of the squared distance of distribution functions."""
    m = model()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    q = m(DATA["x"])
    kl = m.variational_strategy.kl_divergence()
    scale = (q.variance + likelihood.noise).sqrt()
    grid = torch.linspace(-30, 30, 60_001, dtype=torch.float64)[:, None]
    F = torch.special.ndtr((grid - q.mean) / scale)
    squares = (F - (grid >= DATA["real"]).double()).square()
    expected = -torch.trapezoid(squares, grid, dim=0).mean() - 0.3 / 100 * kl
    value = CRPSLoss(likelihood, m, 100, beta=0.3)(q, DATA["real"])
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("batch", SHAPES)
def test_robust_loss_equals_that_of_gpytorch(batch):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    m = model(batch)
    ours = RobustLoss(likelihood, m, 100, beta=1.0, gamma=1.05)
    theirs = gpytorch.mlls.GammaRobustVariationalELBO(likelihood, m, gamma=1.05, num_data=100)
    value, gradients = value_and_gradients(ours, DATA["x"], DATA["real"])
    expected, expected_gradients = value_and_gradients(theirs, DATA["x"], DATA["real"])
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: CRPSLoss(BERNOULLI, model(), 10), "CRPSLoss with BernoulliLikelihood"),
        (lambda: RobustLoss(BERNOULLI, model(), 10), "RobustLoss with BernoulliLikelihood"),
        (lambda: RobustLoss(GAUSSIAN, model(), 10, gamma=1.0), "gamma=1: give"),
        (lambda: MixtureLoss(GAUSSIAN, model((2,)), 10, estimator="bmc"), "draws samples"),
        (
            lambda: MixtureLoss(GAUSSIAN, model(), 10)(model()(DATA["x"]), DATA["real"]),
            "batch of components",
        ),
        (lambda: split_components(model((2, 2)), model()), "does not fit"),
    ],
    ids=["crps", "robust", "gamma", "estimator", "components", "split"],
)
def test_objective_that_makes_no_sense_is_refused(made, words):
    with pytest.raises(UserError, match=words):
        made()


@pytest.mark.slow
def test_example_learns(capsys):
    before = torch.get_default_dtype()
    runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "example_mlls.py"))
    assert torch.get_default_dtype() == before
    words = capsys.readouterr().out.split()
    assert words[:2] == ["test", "NLL"]
    assert float(words[2]) < 0.45  # a constant prediction has 0.69
