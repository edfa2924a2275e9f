"""DirectLoss against GPyTorch's own objective, against our likelihoods, in every batch shape; and what it refuses."""

# GPyTorch gives the result of every call a union of types.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportGeneralTypeIssues=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false

import gpytorch
import pytest
import torch
from gpytorch.mlls import PredictiveLogLikelihood
from gpytorch.variational import UnwhitenedVariationalStrategy, VariationalStrategy

from dlmexp.errors import UserError
from dlmexp.mlls import BMC, UPS, DirectLoss, PoissonExpLikelihood, Quadrature, SmoothBMC

LIKELIHOODS = {
    "gaussian": (gpytorch.likelihoods.GaussianLikelihood, "real"),
    "probit": (gpytorch.likelihoods.BernoulliLikelihood, "label"),
    "poisson": (PoissonExpLikelihood, "count"),
    "student_t": (gpytorch.likelihoods.StudentTLikelihood, "real"),
}
if hasattr(gpytorch.likelihoods, "PoissonLikelihood"):  # not in GPyTorch before 1.15
    LIKELIHOODS["poisson_softplus"] = (gpytorch.likelihoods.PoissonLikelihood, "count")


def value_and_gradients(mll, x, y):
    parameters = dict(mll.named_parameters())
    value = mll(mll.model(x), y)
    gradients = torch.autograd.grad(value.sum(), list(parameters.values()), allow_unused=True)
    return value.detach(), dict(zip(parameters, gradients, strict=True))


@pytest.mark.parametrize("name", ["gaussian", "probit"])
@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_equals_gpytorchs_predictive_log_likelihood(name, strategy, batch, model, data):
    kind, column = LIKELIHOODS[name]
    m = model(batch, strategy)
    likelihood = kind().double()
    ours = value_and_gradients(DirectLoss(likelihood, m, 100, beta=0.3), data["x"], data[column])
    theirs = value_and_gradients(PredictiveLogLikelihood(likelihood, m, 100, beta=0.3), data["x"], data[column])
    assert ours[0].shape == batch
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    for parameter, gradient in theirs[1].items():
        if gradient is not None:
            torch.testing.assert_close(ours[1][parameter], gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_exact_agrees_with_gpytorchs_quadrature(name, model, data):
    """GPyTorch integrates with 20 Gauss-Hermite nodes; with 60 it agrees with the exact values."""
    kind, column = LIKELIHOODS[name]
    m, likelihood = model(), kind().double()
    ours = DirectLoss(likelihood, m, 100)(m(data["x"]), data[column])
    with gpytorch.settings.num_gauss_hermite_locs(60):
        theirs = PredictiveLogLikelihood(kind().double(), m, 100)(m(data["x"]), data[column])
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("estimator", [BMC(10), SmoothBMC(10, nu=1e-4), UPS(10), Quadrature()], ids=lambda e: e.name)
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_every_estimator_trains_every_likelihood_in_any_batch_shape(name, estimator, batch, model, data):
    kind, column = LIKELIHOODS[name]
    m, likelihood = model(batch), kind().double()
    torch.manual_seed(0)
    value, gradients = value_and_gradients(DirectLoss(likelihood, m, 100, 0.1, estimator), data["x"], data[column])
    assert value.shape == batch
    assert value.isfinite().all()
    for parameter, gradient in gradients.items():
        assert gradient is not None, parameter
        assert gradient.isfinite().all(), parameter
        assert gradient.abs().max() > 0, parameter


@pytest.mark.slow
def test_product_samples_have_the_exact_value_and_on_average_the_exact_gradient(model, data):
    m, likelihood = model(), gpytorch.likelihoods.BernoulliLikelihood()
    value, exact = value_and_gradients(DirectLoss(likelihood, m, 100), data["x"], data["label"])
    torch.manual_seed(0)
    mll = DirectLoss(likelihood, m, 100, estimator=UPS(50))
    runs = [value_and_gradients(mll, data["x"], data["label"]) for _ in range(60)]
    assert all(torch.allclose(run[0], value, rtol=1e-12, atol=1e-12) for run in runs)
    for parameter, gradient in exact.items():
        sampled = torch.stack([run[1][parameter] for run in runs])
        error = (sampled.mean(0) - gradient).abs()
        # 64 coordinates, 5 standard errors of 60 runs: a right sampler fails in one of 3000 seeds
        assert (error <= 5 * sampled.std(0) / 60**0.5 + 1e-12).all(), parameter


def test_labels_may_be_minus_one(model, data):
    m, likelihood = model(), gpytorch.likelihoods.BernoulliLikelihood()
    mll = DirectLoss(likelihood, m, 100)
    assert torch.equal(mll(m(data["x"]), data["label"]), mll(m(data["x"]), 2 * data["label"] - 1))


def test_a_beta_for_each_model_of_the_batch(model, data):
    m, likelihood = model((2,)), gpytorch.likelihoods.BernoulliLikelihood()
    beta = torch.tensor([0.1, 10.0], dtype=torch.float64)
    both = DirectLoss(likelihood, m, 100, beta=beta)(m(data["x"]), data["label"])
    for i in range(2):
        alone = DirectLoss(likelihood, m, 100, beta=float(beta[i]))(m(data["x"]), data["label"])
        torch.testing.assert_close(both[i], alone[i], rtol=1e-12, atol=1e-12)


def test_terms_come_separately_on_request(model, data):
    m, likelihood = model(), gpytorch.likelihoods.BernoulliLikelihood()
    together = DirectLoss(likelihood, m, 100, 0.3)(m(data["x"]), data["label"])
    fit, kl, prior = DirectLoss(likelihood, m, 100, 0.3, combine_terms=False)(m(data["x"]), data["label"])
    torch.testing.assert_close(fit - kl + prior, together, rtol=1e-12, atol=1e-12)


def test_what_it_does_not_know_is_refused_at_once_by_name(model):
    with pytest.raises(UserError, match=r"LaplaceLikelihood.*GaussianLikelihood"):
        DirectLoss(gpytorch.likelihoods.LaplaceLikelihood(), model(), 100)
    with pytest.raises(UserError, match=r"'exat'.*exact"):
        DirectLoss(gpytorch.likelihoods.BernoulliLikelihood(), model(), 100, estimator="exat")
    with pytest.raises(UserError, match=r"'bmc'.*BMC\(10\)"):
        DirectLoss(gpytorch.likelihoods.BernoulliLikelihood(), model(), 100, estimator="bmc")


def test_multitask_outputs_are_refused(model):
    mll = DirectLoss(gpytorch.likelihoods.GaussianLikelihood(), model(), 100)
    q = gpytorch.distributions.MultitaskMultivariateNormal(torch.zeros(4, 2), torch.eye(8))
    with pytest.raises(UserError, match="one latent function per row"):
        mll(q, torch.zeros(4, 2))
