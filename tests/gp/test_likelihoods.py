"""What holds for every likelihood: densities, losses, moments, bounds, batching. The integrals' corners are in
test_likelihood_integral.py."""

import math

import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs

from dlmexp.gp.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Likelihood,
    Logistic,
    Poisson,
    PoissonSoftplus,
    Probit,
    StudentT,
)
from dlmexp.gp.special import expectation

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
OBSERVED = {
    "gaussian": [-2.0, 0.0, 3.5],
    "probit": [0.0, 1.0],
    "poisson": [0.0, 1.0, 7.0, 300.0],
    "poisson_softplus": [0.0, 1.0, 7.0, 300.0],
    "logistic": [0.0, 1.0],
    "student_t": [-2.0, 0.0, 3.5],
}
every = pytest.mark.parametrize("name", sorted(ALL))


def test_registry_names_all_six():
    assert sorted(LIKELIHOODS) == sorted(ALL)
    assert all(isinstance(ALL[name], LIKELIHOODS[name]) and LIKELIHOODS[name].name == name for name in LIKELIHOODS)


@every
def test_log_prob_against_scipy(name):
    f = np.linspace(-8, 8, 41)[:, None]
    y = np.array(OBSERVED[name])
    np.testing.assert_allclose(ALL[name].log_prob(t(f), t(y)).numpy(), SCIPY[name](f, y), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("f", [-800.0, -40.0, 25.0])
def test_softplus_rate_in_both_tails(f):
    lik = PoissonSoftplus()
    x = t(f).requires_grad_()
    value = lik.log_prob(x, t(3.0))
    (slope,) = torch.autograd.grad(value, x)
    rate = math.log1p(math.exp(-f)) + f if f > 0 else None
    expected = 3 * math.log(rate) - rate - math.log(6) if rate else 3 * f - math.log(6)
    assert value.item() == pytest.approx(expected, rel=1e-13)
    assert slope.item() == pytest.approx(3 / f - 1 if f > 0 else 3.0, rel=1e-9)
    torch.testing.assert_close(lik.terms(x.detach(), t(3.0)).slope, slope, rtol=1e-12, atol=0)


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
def test_binary_and_count_losses_are_normalised_and_others_integrate_to_one(name):
    lik = ALL[name]
    mu, v = t([-1.0, 0.5]), t([0.4, 2.0])
    if name in ("gaussian", "student_t"):
        # z = sinh(s): the t density's tails are algebraic.
        s = torch.linspace(-18, 18, 4001, dtype=F64).unsqueeze(-1)
        p = (-lik.log_loss(mu, v, mu + torch.sinh(s))).exp() * torch.cosh(s)
        total, tolerance = torch.trapezoid(p, s, dim=0), 1e-9
    else:
        top = 2 if name in ("probit", "logistic") else 4000
        y = torch.arange(top, dtype=F64).unsqueeze(-1)
        # Counts beyond 4000 have f > 8.3, 5.5 standard deviations out.
        total, tolerance = (-lik.log_loss(mu, v, y)).exp().sum(0), 1e-7
    torch.testing.assert_close(total, torch.ones(2, dtype=F64), rtol=0, atol=tolerance)


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


@pytest.mark.parametrize("mu", [-40.0, -1000.0])
def test_probit_elbo_loss_keeps_its_tail(mu):
    # -log Phi(f) = f^2/2 + log(-f) + log(2 pi)/2 + O(f^-2) there, so E = (mu^2 + v)/2 + ...
    m, v = t(mu).requires_grad_(), t(0.5)
    loss = Probit().elbo_loss(m.view(1), v.view(1), t([1.0]))
    (slope,) = torch.autograd.grad(loss.sum(), m)
    expected = (mu**2 + 0.5) / 2 + math.log(-mu) + math.log(2 * math.pi) / 2 + (1 - 0.25) / mu**2
    assert loss.item() == pytest.approx(expected, rel=1e-8)
    assert slope.item() == pytest.approx(mu + 1 / mu, rel=1e-5)


def table_1(lik: Likelihood, y: float, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """phi, phi', phi'' on the grid, from log p and its derivatives (phi' = phi l', phi'' = phi (l'^2 + l''))."""
    x = torch.tensor(f, requires_grad=True)
    h = 1e-4
    log_p = lik.log_prob(x, t(y))
    (slope,) = torch.autograd.grad(log_p.sum(), x)
    shifted = []
    for step in (-h, h):
        z = torch.tensor(f + step, requires_grad=True)
        shifted.append(torch.autograd.grad(lik.log_prob(z, t(y)).sum(), z)[0])
    bend = (shifted[1] - shifted[0]) / (2 * h)
    phi = log_p.detach().exp()
    return phi.numpy(), (phi * slope).numpy(), (phi * (slope**2 + bend)).numpy()


@every
def test_table_1_bounds_hold_on_a_dense_grid_and_are_tight_where_the_paper_says(name):
    kinds = [ALL[name]]
    if name == "gaussian":
        kinds += [Gaussian(t(2.0)), Gaussian(t(0.01))]
    if name == "student_t":
        kinds += [StudentT(t(2.0), t(1.0)), StudentT(t(0.1), t(30.0))]
    counts = [0.0, 1.0, 2.0, 3.0, 10.0, 100.0]
    for lik in kinds:
        for y in counts if name.startswith("poisson") else OBSERVED[name]:
            reach = 120.0 if name == "poisson_softplus" else 12.0
            grids = [np.linspace(-reach, reach + (y if reach > 100 else 0), 40001)]
            if name in ("gaussian", "student_t"):
                grids.append(y + np.linspace(-1, 1, 20001))
            phi, d1, d2 = (np.concatenate(parts) for parts in zip(*(table_1(lik, y, g) for g in grids), strict=True))
            b = [float(x) for x in lik.bounds(t(y))]
            slack = 1e-6 * max(abs(x) for x in b)
            assert phi.max() <= b[0] + slack
            assert b[1] - slack <= d1.min()
            assert d1.max() <= b[2] + slack
            assert b[3] - slack <= d2.min()
            assert d2.max() <= b[4] + slack
            if name in ("gaussian", "student_t"):
                reached = [phi.max(), d1.min(), d1.max(), d2.min(), d2.max()]
                np.testing.assert_allclose(reached, b, rtol=1e-3)
            if name == "probit":
                np.testing.assert_allclose(d1.max() if y else d1.min(), b[2] if y else b[1], rtol=1e-6)
                np.testing.assert_allclose([d2.min(), d2.max()], b[3:], rtol=1e-5)


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


def test_parameters_per_cell_meet_shared_observations():
    noise, scale, nu = t([[0.1], [0.5]]), t([[0.3], [2.0]]), t([[3.0], [5.0]])
    mu, v, y = torch.zeros(2, 5, dtype=F64), torch.ones(2, 5, dtype=F64), torch.linspace(-2, 2, 5, dtype=F64)
    for lik, alone in [
        (Gaussian(noise), lambda b: Gaussian(noise[b])),
        (StudentT(scale, nu), lambda b: StudentT(scale[b], nu[b])),
    ]:
        for method in ("log_loss", "elbo_loss"):
            both = getattr(lik, method)(mu, v, y)
            assert both.shape == (2, 5)
            for b in range(2):
                torch.testing.assert_close(both[b], getattr(alone(b), method)(mu[b], v[b], y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_gradients_in_the_likelihoods_own_parameters(name):
    mu, v, y = t([0.0, 1.0, -2.0]), t([0.2, 1.5, 40.0]), t([0.5, -6.0, 1.0])

    def loss(*parameters: torch.Tensor) -> torch.Tensor:
        return LIKELIHOODS[name](*parameters).log_loss(mu, v, y).sum()

    start = [t(0.3)] if name == "gaussian" else [t(0.5), t(4.0)]
    assert torch.autograd.gradcheck(loss, tuple(p.clone().requires_grad_() for p in start), rtol=1e-6, atol=1e-8)


DOMAIN = {
    "mu": hs.floats(-40, 40),
    "log_v": hs.floats(-12, 4),
    "y": hs.integers(0, 10_000),
}


@every
@settings(max_examples=60, derandomize=True)
@given(**DOMAIN)
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
