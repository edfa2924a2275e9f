"""What holds for every likelihood: densities, losses, moments, batching. The integrals' corners are in
test_likelihood_integral.py."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from scipy.special import lambertw

from dlmexp.gp.likelihoods import LIKELIHOODS, Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from dlmexp.gp.special import expectation, lambert_w_exp, log_ndtr

F64 = torch.float64


def t(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=F64)


ALL = {
    "gaussian": Gaussian(t(0.3)),
    "probit": Probit(),
    "poisson": Poisson(),
    "poisson_softplus": PoissonSoftplus(),
    "logistic": Logistic(),
    "student_t": StudentT(t(0.5), t(4.0)),
}
SCIPY = {
    "gaussian": lambda f, y: st.norm.logpdf(y, f, math.sqrt(0.3)),
    "probit": lambda f, y: st.norm.logcdf((2 * y - 1) * f),
    "poisson": lambda f, y: st.poisson.logpmf(y, np.exp(f)),
    "poisson_softplus": lambda f, y: st.poisson.logpmf(y, np.logaddexp(0, f)),
    "logistic": lambda f, y: st.logistic.logcdf((2 * y - 1) * f),
    "student_t": lambda f, y: st.t.logpdf(y, 4, f, 0.5),
}
BY_TASK = {"regression": [-2.0, 0.0, 3.5], "binary": [0.0, 1.0], "count": [0.0, 1.0, 7.0, 300.0]}
OBSERVED = {name: BY_TASK[likelihood.task] for name, likelihood in ALL.items()}
every = pytest.mark.parametrize("name", sorted(ALL))


@every
def test_log_prob_against_scipy(name):
    f = np.linspace(-8, 8, 41)[:, None]
    y = np.array(OBSERVED[name])
    np.testing.assert_allclose(ALL[name].log_prob(t(f), t(y)).numpy(), SCIPY[name](f, y), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["poisson", "poisson_softplus", "logistic"])
def test_terms_are_the_derivatives_of_log_prob(name):
    lik = ALL[name]
    f = torch.linspace(-12, 6, 181, dtype=F64, requires_grad=True)
    for y in OBSERVED[name]:
        at = lik.terms(f, t(y))  # type: ignore[attr-defined]
        (slope,) = torch.autograd.grad(lik.log_prob(f, t(y)).sum(), f)
        (bend,) = torch.autograd.grad(at.slope.sum(), f)
        torch.testing.assert_close(at.slope.detach(), slope, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(at.curvature.detach(), -bend, rtol=1e-9, atol=1e-12 * (1 + y))


@every
def test_peak_is_where_log_prob_reaches_log_p_max(name):
    lik, y = ALL[name], t(OBSERVED[name])
    peak = lik.peak(y)
    at_peak = lik.log_prob(peak.clamp(-40, 40) if name != "poisson_softplus" else peak.clamp_min(-40), y)
    torch.testing.assert_close(at_peak, lik.log_p_max(y), rtol=1e-12, atol=1e-12)
    around = lik.log_prob(peak.clamp(-40, 400) + torch.linspace(-3, 3, 61, dtype=F64).unsqueeze(-1), y)
    assert (around <= lik.log_p_max(y) + 1e-12).all()


@every
def test_mean_against_monte_carlo_free_integration(name):
    lik = ALL[name]
    mu, v = t([-1.0, 0.2, 2.0]), t([0.1, 1.0, 3.0])
    link = {
        "probit": torch.special.ndtr,
        "logistic": torch.sigmoid,
        "poisson": torch.exp,
        "poisson_softplus": lambda f: torch.logaddexp(f, torch.zeros_like(f)),
    }.get(name, lambda f: f)
    torch.testing.assert_close(lik.mean(mu, v), expectation(link, mu, v, nodes=120), rtol=1e-8, atol=1e-10)


@every
def test_elbo_loss_against_fine_integration(name):
    lik = ALL[name]
    mu = torch.linspace(-3, 3, 7, dtype=F64).unsqueeze(-1)
    v = t([0.01, 0.3, 1.0])
    for y in OBSERVED[name]:
        e = torch.linspace(-9, 9, 3601, dtype=F64).view(-1, 1, 1)
        w = torch.exp(-e * e / 2)
        exact = -(w * lik.log_prob(mu + v.sqrt() * e, t(y))).sum(0) / w.sum(0)
        # 20 nodes are exact for smooth terms; student_t has a pole at distance scale sqrt(nu) = 1 from the real line.
        tolerance = {"student_t": 2e-3}.get(name, 1e-6)
        torch.testing.assert_close(lik.elbo_loss(mu, v, t([y])), exact, rtol=tolerance, atol=1e-7)


@every
def test_a_row_does_not_depend_on_its_neighbours_even_if_they_are_nan(name):
    lik = ALL[name]
    g = torch.Generator().manual_seed(0)
    mu = torch.randn(3, 40, generator=g, dtype=F64)
    v = torch.rand(3, 40, generator=g, dtype=F64) + 0.01
    y = t(OBSERVED[name])[torch.randint(len(OBSERVED[name]), (3, 40), generator=g)]
    mu[1], v[2, ::2] = torch.nan, torch.nan
    for loss in (lik.log_loss, lik.elbo_loss):
        m, w = mu.clone().requires_grad_(), v.clone().requires_grad_()
        together = loss(m, w, y)
        d_mu, d_v = torch.autograd.grad(together.sum(), (m, w))
        for b, i in [(0, 0), (0, 17), (2, 1), (2, 39)]:
            m1, v1 = mu[b, i].view(1).clone().requires_grad_(), v[b, i].view(1).clone().requires_grad_()
            alone = loss(m1, v1, y[b, i].view(1))
            d1 = torch.autograd.grad(alone.sum(), (m1, v1))
            torch.testing.assert_close(together[b, i], alone[0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(
                torch.stack((d_mu[b, i], d_v[b, i])), torch.stack(d1).squeeze(-1), rtol=1e-10, atol=1e-12
            )
        assert together[1].isnan().all()


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_gradients_in_the_likelihoods_own_parameters(name):
    mu, v, y = t([0.0, 1.0, -2.0]), t([0.2, 1.5, 40.0]), t([0.5, -6.0, 1.0])

    def loss(*parameters: torch.Tensor) -> torch.Tensor:
        return LIKELIHOODS[name](*parameters).log_loss(mu, v, y).sum()

    start = [t(0.3)] if name == "gaussian" else [t(0.5), t(4.0)]
    assert torch.autograd.gradcheck(loss, tuple(p.clone().requires_grad_() for p in start), rtol=1e-6, atol=1e-8)


@every
@settings(max_examples=40, derandomize=True)
@given(mu=hs.floats(-40, 40), log_v=hs.floats(-12, 4), y=hs.integers(0, 10_000))
def test_loss_is_finite_and_between_its_bounds_everywhere(name, mu, log_v, y):
    lik = ALL[name]
    observed = {"probit": y % 2, "logistic": y % 2, "gaussian": y / 100, "student_t": y / 100}.get(name, y)
    m, v, obs = t([mu]).requires_grad_(), t([10.0**log_v]).requires_grad_(), t([float(observed)])
    loss = lik.log_loss(m, v, obs)
    slopes = torch.autograd.grad(loss.sum(), (m, v))
    assert loss.isfinite().all()
    assert all(s.isfinite().all() for s in slopes)
    slack = 1e-9 * (1 + loss.abs().item())
    assert loss.item() >= -lik.log_p_max(obs).item() - max(slack, 2e-5)
    # Jensen; where the 20-node ELBO term is itself an approximation (wide q), it is no witness.
    if log_v < 0 and name != "student_t":
        assert loss.item() <= lik.elbo_loss(m, v, obs).item() * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("x", [-1e8, -1e4, -100.0, -40.0, -8.0, -1.0, 0.0, 1.0, 5.0, 8.0, 30.0])
def test_log_ndtr_value_and_gradient_against_mpmath(x):
    with mp.workdps(60):
        a = mp.mpf(x)
        if x < -1e3:  # asymptotic series; mpmath's own ncdf underflows
            log_cdf = -a * a / 2 - mp.log(-a * mp.sqrt(2 * mp.pi)) + mp.log1p(-1 / a**2 + 3 / a**4)
            ratio = -a / (1 - 1 / a**2 + 3 / a**4)
        else:
            log_cdf = mp.log1p(-mp.ncdf(-a)) if x > 0 else mp.log(mp.ncdf(a))
            ratio = mp.npdf(a) / mp.ncdf(a)
        exact, slope = float(log_cdf), float(ratio)
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = log_ndtr(t)
    value.backward()
    assert value.item() == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert t.grad is not None
    assert t.grad.item() == pytest.approx(slope, rel=1e-11, abs=1e-300)


def test_lambert_w_against_scipy_and_where_e_to_the_t_is_no_number():
    t = np.linspace(-600, 600, 4001)
    np.testing.assert_allclose(lambert_w_exp(torch.tensor(t)).numpy(), lambertw(np.exp(t)).real, rtol=1e-12)
    large = torch.logspace(3, 9, 61, dtype=F64)
    w = lambert_w_exp(large)
    torch.testing.assert_close(w + w.log(), large, rtol=1e-13, atol=0)
    torch.testing.assert_close(lambert_w_exp(-large), torch.full_like(w, torch.finfo(F64).tiny), rtol=1e-12, atol=0)
