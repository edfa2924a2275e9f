"""What holds for every likelihood: densities, losses, moments, batching; -log E_q p(y|f) and its
gradient in the corners, against quadrature on panels that are halved until the integrand is smooth
on each; scores of predictive distributions against draws."""

import math
from functools import partial

import mpmath as mp
import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from scipy.special import lambertw

from dlmexp.core.gp.special import expectation, lambert_w_exp, log_ndtr
from dlmexp.core.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Logistic,
    Poisson,
    PoissonSoftplus,
    Probit,
    StudentT,
)
from dlmexp.core.likelihoods.calibration import LEVELS
from tests.support.product_density import F64, t


def log_softplus(f):
    return np.where(f < -30, f, np.log(np.logaddexp(0, np.maximum(f, -30))))


def counts(log_rate):
    """log p(y|f) of counts of this rate."""
    return lambda f, y: y * log_rate(f) - np.exp(np.minimum(log_rate(f), 700)) - math.lgamma(y + 1)


def students(nu, scale):
    return StudentT(t(scale), t(nu)), lambda f, y: st.t.logpdf(y, nu, f, scale)


ALL = {
    "gaussian": (Gaussian(t(0.3)), lambda f, y: st.norm.logpdf(y, f, math.sqrt(0.3))),
    "probit": (Probit(), lambda f, y: st.norm.logcdf((2 * y - 1) * f)),
    "poisson": (Poisson(), counts(lambda f: f)),
    "poisson_softplus": (PoissonSoftplus(), counts(log_softplus)),
    "logistic": (Logistic(), lambda f, y: st.logistic.logcdf((2 * y - 1) * f)),
    "student_t": students(4.0, 0.5),
}
OTHERS = {
    "cauchy": students(1.0, 0.1),
    "nearly_normal": students(60.0, 1.0),
    "sharp": students(3.0, 0.02),
}
BY_TASK = {"regression": [-2.0, 0.0, 3.5], "binary": [0.0, 1.0], "count": [0.0, 1.0, 7.0, 300.0]}
every = pytest.mark.parametrize(
    ("name", "lik", "observed"),
    [(name, lik, BY_TASK[lik.task]) for name, (lik, _) in ALL.items()],
    ids=list(ALL),
)
MODED = pytest.mark.parametrize("name", ["poisson", "poisson_softplus", "logistic"])


@every
def test_log_prob_against_scipy(name, lik, observed):
    f = np.linspace(-8, 8, 41)
    for y in observed:
        np.testing.assert_allclose(
            lik.log_prob(t(f), t(y)).numpy(), ALL[name][1](f, y), rtol=1e-11, atol=1e-12
        )


@MODED
def test_terms_are_the_derivatives_of_log_prob(name):
    lik = ALL[name][0]
    f = torch.linspace(-12, 6, 181, dtype=F64, requires_grad=True)
    for y in BY_TASK[lik.task]:
        at = lik.terms(f, t(y))
        (slope,) = torch.autograd.grad(lik.log_prob(f, t(y)).sum(), f)
        (bend,) = torch.autograd.grad(at.slope.sum(), f)
        torch.testing.assert_close(at.slope.detach(), slope, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(at.curvature.detach(), -bend, rtol=1e-9, atol=1e-12 * (1 + y))


@every
def test_peak_is_where_log_prob_reaches_log_p_max(name, lik, observed):
    y = t(observed)
    peak = lik.peak(y)
    at_peak = lik.log_prob(
        peak.clamp(-40, 40) if name != "poisson_softplus" else peak.clamp_min(-40), y
    )
    torch.testing.assert_close(at_peak, lik.log_p_max(y), rtol=1e-12, atol=1e-12)
    around = lik.log_prob(
        peak.clamp(-40, 400) + torch.linspace(-3, 3, 61, dtype=F64).unsqueeze(-1), y
    )
    assert (around <= lik.log_p_max(y) + 1e-12).all()


@every
def test_mean_against_monte_carlo_free_integration(name, lik, observed):
    mu, v = t([-1.0, 0.2, 2.0]), t([0.1, 1.0, 3.0])
    link = {
        "probit": torch.special.ndtr,
        "logistic": torch.sigmoid,
        "poisson": torch.exp,
        "poisson_softplus": lambda f: torch.logaddexp(f, torch.zeros_like(f)),
    }.get(name, lambda f: f)
    torch.testing.assert_close(
        lik.mean(mu, v), expectation(link, mu, v, nodes=120), rtol=1e-8, atol=1e-10
    )


@every
def test_elbo_loss_against_fine_integration(name, lik, observed):
    mu = torch.linspace(-3, 3, 7, dtype=F64).unsqueeze(-1)
    v, e = t([0.01, 0.3, 1.0]), torch.linspace(-9, 9, 3601, dtype=F64).view(-1, 1, 1)
    w = torch.exp(-e * e / 2)
    for y in observed:
        exact = -(w * lik.log_prob(mu + v.sqrt() * e, t(y))).sum(0) / w.sum(0)
        # 20 nodes are exact for smooth terms; student_t has a pole at distance scale sqrt(nu) = 1
        # from the real line.
        tolerance = {"student_t": 2e-3}.get(name, 1e-6)
        torch.testing.assert_close(lik.elbo_loss(mu, v, t([y])), exact, rtol=tolerance, atol=1e-7)


def with_gradients(loss, mu, v, y):
    """The losses of rows, and their gradients in mu and v."""
    mu, v = mu.clone().requires_grad_(), v.clone().requires_grad_()
    value = loss(mu, v, y)
    return torch.stack((value.detach(), *torch.autograd.grad(value.sum(), (mu, v))))


@every
def test_a_row_does_not_depend_on_its_neighbours_even_if_they_are_nan(name, lik, observed):
    g = torch.Generator().manual_seed(0)
    mu, v = (
        torch.randn(3, 40, generator=g, dtype=F64),
        torch.rand(3, 40, generator=g, dtype=F64) + 0.01,
    )
    y = t(observed)[torch.randint(len(observed), (3, 40), generator=g)]
    mu[1], v[2, ::2] = torch.nan, torch.nan

    def scores(mu, v, y):
        by_cell = LIKELIHOODS[name].from_hyper({"noise": torch.full((len(mu),), 0.3, dtype=F64)})
        return torch.stack(list(by_cell.calibration(*map(torch.atleast_2d, (mu, v, y))).values()))

    for rows in (
        partial(with_gradients, lik.log_loss),
        partial(with_gradients, lik.elbo_loss),
        scores,
    ):
        together = rows(mu, v, y)
        for b, i in [(0, 0), (0, 17), (2, 1), (2, 39)]:
            alone = rows(*(each[b, i].view(1) for each in (mu, v, y)))
            torch.testing.assert_close(
                together[:, b, i], alone.flatten(1)[:, 0], rtol=1e-10, atol=1e-12
            )
        assert together[0, 1].isnan().all()


@every
@settings(max_examples=40, derandomize=True)
@given(mu=hs.floats(-40, 40), log_v=hs.floats(-12, 4), y=hs.integers(0, 10_000))
def test_loss_is_finite_and_between_its_bounds_everywhere(name, lik, observed, mu, log_v, y):
    obs = t([float({"binary": y % 2, "regression": y / 100, "count": y}[lik.task])])
    m, v = t([mu]), t([10.0**log_v])
    found = with_gradients(lik.log_loss, m, v, obs)
    assert found.isfinite().all()
    loss = found[0].item()
    assert loss >= -lik.log_p_max(obs).item() - max(1e-9 * (1 + abs(loss)), 2e-5)
    # Jensen; where the 20-node ELBO term is itself an approximation (wide q), it is no witness.
    if log_v < 0 and name != "student_t":
        assert loss <= lik.elbo_loss(m, v, obs).item() * (1 + 1e-9) + 1e-6


NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def reference(log_p, peak: float, mu: float, v: float, y: float) -> tuple[float, float, float]:
    """Loss and its derivatives from the moments of q p, by 16-point Gauss-Legendre on panels in s =
    f - mu. Where the logarithm of the integrand counts and is not nearly straight, panels are
    halved."""
    panels = np.unique(
        np.append(np.sqrt(v) * np.linspace(-100, 100, 201), np.clip(peak, -1000, 1000) - mu)
    )
    while True:
        half = np.diff(panels) / 2
        middle = panels[:-1] + half
        s = middle[:, None] + half[:, None] * NODES
        log_w = np.log(half)[:, None] + np.log(WEIGHTS) + log_p(mu + s, y) - s * s / (2 * v)
        densities = log_w - np.log(WEIGHTS)
        rough = (np.ptp(densities, axis=1) > 1) & (densities.max(1) > densities.max() - 60)
        if not rough.any():
            break
        and_neighbours = np.convolve(rough, np.ones(3), "same") > 0
        panels = np.sort(np.append(panels, middle[and_neighbours]))
    top = log_w.max()
    w = np.exp(log_w - top)
    loss = -(top + np.log(w.sum()) - 0.5 * np.log(2 * np.pi * v))
    m1, m2 = (w * s).sum() / w.sum(), (w * s * s).sum() / w.sum()
    return loss, -m1 / v, (1 - m2 / v) / (2 * v)


CORNERS = {  # mu, v, y
    "count": [
        (0.0, 1.0, 0.0), (0.5, 0.3, 3.0), (2.0, 1e-2, 5000.0), (9.0, 1e-3, 10_000.0), (5.0, 2.0, 0.0),
        (-30.0, 9.0, 0.0), (-8.0, 9.0, 0.0), (3.0, 100.0, 7.0), (0.0, 1e4, 0.0), (-300.0, 1e4, 0.0),
        (0.0, 1e4, 10_000.0),
    ],
    "binary": [
        (0.0, 1.0, 1.0), (-40.0, 0.3, 1.0), (40.0, 2.0, 0.0), (-40.0, 100.0, 1.0), (30.0, 100.0, 1.0), (0.0, 1e4, 0.0),
        (-3000.0, 1e4, 1.0),
    ],
    "regression": [
        (0.0, 1.0, 0.3), (0.0, 0.01, 30.0), (0.0, 1.0, 6.0), (0.0, 1e4, 500.0), (0.0, 1e4, 0.0), (-2.0, 1e-2, 2.0),
    ],
}  # fmt: skip
CASES = [
    (name, *corner) for name, (lik, _) in (ALL | OTHERS).items() for corner in CORNERS[lik.task]
]
CASES += [("poisson_softplus", 1e4, 50.0, 10_000.0)]
CASES += [("sharp", 0.0, 1.0, 5.6)]  # an outlier at six standard deviations: two modes hold mass


@pytest.mark.parametrize(("name", "mu", "v", "y"), CASES)
def test_corners_against_gauss_legendre(name, mu, v, y):
    lik, log_p = (ALL | OTHERS)[name]
    exact = reference(log_p, lik.peak(t(y)).item(), mu, v, y)
    got = with_gradients(lik.log_loss, t([mu]), t([v]), t([y])).flatten().tolist()
    # The documented accuracy: rounding for v <= 10, 1e-9 to v = 100, 2e-5 at v = 10^4.
    value = 1e-10 if v <= 10 else 1e-9 if v <= 100 else 2e-5
    slope = 1e-7 if v <= 100 else 2e-4
    assert got[0] == pytest.approx(exact[0], rel=1e-11, abs=value)
    assert got[1] == pytest.approx(exact[1], rel=slope, abs=slope * 1e-2 / np.sqrt(v))
    assert got[2] == pytest.approx(exact[2], rel=10 * slope, abs=slope * 1e-1 / v)


@MODED
def test_the_brisk_rule_around_a_known_mode(name):
    lik = ALL[name][0]
    mus, vs = (
        [-150.0, -8.0, -2.0, 0.0, 1.0, 4.0, 8.0],
        [1e-12, 1e-4, 0.1, 0.5, 2.0, 10.0, 100.0, 1e4],
    )
    grid = torch.meshgrid(t(mus), t(vs), t([0.0, 1.0, 5.0, 60.0, 1e4]), indexing="ij")
    mu, v, y = (each.flatten() for each in grid)
    y = y.clamp_max(1) if name == "logistic" else y
    error = (lik.log_loss_around(lik.mode(mu, v, y)) - lik.log_loss(mu, v, y)).abs()
    assert error[v <= 2].max() < 1e-7
    assert error[(v <= 100) & (mu.abs() <= 8)].max() < 2e-6
    if name == "poisson":  # the only one that it is used for
        assert error.max() < 5e-4


@every
@pytest.mark.parametrize("v", [1e-12, 1e-5])
@pytest.mark.parametrize("mu", [-2.0, 6.0])
def test_narrow_q_is_a_taylor_series(name, lik, observed, v, mu):
    """log E p = l + v (l'' + l'^2)/2 + O(v^2), its derivatives l' + v (...) and (l'' + l'^2)/2 +
    O(v)."""
    y = t({"count": 40.0, "regression": 1.5, "binary": 1.0}[lik.task])
    f = t([mu - 1e-5, mu, mu + 1e-5]).requires_grad_()
    value = lik.log_prob(f, y)
    (slopes,) = torch.autograd.grad(value.sum(), f)
    slope, bend = slopes[1].item(), (slopes[2] - slopes[0]).item() / 2e-5
    half = (bend + slope**2) / 2
    got = with_gradients(lik.log_loss, t([mu]), t([v]), y.view(1)).flatten().tolist()
    error = v * (1 + slope**4)
    assert got[0] == pytest.approx(-(value[1].item() + v * half), rel=1e-11, abs=v * error + 1e-10)
    assert got[1] == pytest.approx(-slope, rel=1e-9, abs=10 * error)
    assert got[2] == pytest.approx(-half, rel=1e-6, abs=10 * error)


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
    at = t(x).requires_grad_()
    value = log_ndtr(at)
    assert value.item() == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert torch.autograd.grad(value, at)[0].item() == pytest.approx(slope, rel=1e-11, abs=1e-300)


def test_lambert_w_against_scipy_and_where_e_to_the_t_is_no_number():
    x = np.linspace(-600, 600, 4001)
    np.testing.assert_allclose(lambert_w_exp(t(x)).numpy(), lambertw(np.exp(x)).real, rtol=1e-12)
    large = torch.logspace(3, 9, 61, dtype=F64)
    w = lambert_w_exp(large)
    torch.testing.assert_close(w + w.log(), large, rtol=1e-13, atol=0)
    torch.testing.assert_close(
        lambert_w_exp(-large), torch.full_like(w, torch.finfo(F64).tiny), rtol=1e-12, atol=0
    )


DRAWS = 200_000
# mu, v, y: narrow and wide q, counts from 0 to thousands (those beyond 512 are tabulated in
# blocks), y in and far out.
REAL = [(0.0, 0.01, 0.1), (1.0, 2.0, -1.0), (-0.5, 0.2, 4.0)]
COUNTS = [
    (2.3, 0.02, 8), (2.3, 0.02, 60), (-3.0, 0.5, 0), (-3.0, 4.0, 1), (0.0, 1.0, 3), (5.0, 0.01, 160), (5.0, 0.01, 20),
    (3.0, 0.5, 10), (4.0, 1.0, 30), (6.5, 1e-4, 700), (8.6, 1e-5, 5400), (7.5, 0.02, 1500),
]  # fmt: skip
SCORED = [(each, *case) for each in (Gaussian(t(0.3)), StudentT(t(0.5), t(4.0))) for case in REAL]
SCORED += [(each, *case) for each in (Poisson(), PoissonSoftplus()) for case in COUNTS]


def drawn(likelihood, mu, v):
    """Draws of y from the predictive distribution."""
    rng = np.random.default_rng(1)
    f = mu + np.sqrt(v) * rng.normal(size=DRAWS)
    if isinstance(likelihood, Gaussian):
        return f + np.sqrt(likelihood.noise.item()) * rng.normal(size=DRAWS)
    if isinstance(likelihood, StudentT):
        return f + likelihood.scale.item() * rng.standard_t(likelihood.nu.item(), size=DRAWS)
    return rng.poisson(likelihood.conditional_mean(t(f)).numpy()).astype(float)


@pytest.mark.parametrize(
    ("likelihood", "mu", "v", "y"), SCORED, ids=lambda each: getattr(each, "name", None)
)
def test_scores_against_draws(likelihood, mu, v, y):
    draws, real = drawn(likelihood, mu, v), likelihood.task == "regression"
    found = {
        name: value.item()
        for name, value in likelihood.calibration(*(t([[x]]) for x in (mu, v, y))).items()
    }
    first, second = np.split(draws, 2)
    terms = (
        np.abs(first - y) + np.abs(second - y) - np.abs(first - second)
    ) / 2  # E|X - y| - E|X - X'|/2
    # 2e-3: what tabulating in blocks may cost (`count_calibration`).
    error = 5 * terms.std() / np.sqrt(len(terms))
    assert found["crps"] == pytest.approx(terms.mean(), abs=error, rel=1e-9 if real else 2e-3)
    for level in LEVELS if real else (95,):
        ends = (1 - level / 100) / 2, (1 + level / 100) / 2
        low, high = np.quantile(draws, ends, method="linear" if real else "inverted_cdf")
        # An empirical quantile's error is sqrt(p (1 - p) / draws) / density: below 1 % of the width
        # here.
        assert found[f"width_{level}"] == pytest.approx(
            high - low, rel=0.017 if real else 0.02, abs=0 if real else 1
        )
        if min(abs(y - low), abs(y - high)) > 0.02 * (high - low):
            assert found[f"coverage_{level}"] == float(low <= y <= high)
        if real:
            inside = np.mean(np.abs(draws - mu) <= found[f"width_{level}"] / 2)
            assert inside == pytest.approx(level / 100, abs=5 * np.sqrt(0.25 / DRAWS))
