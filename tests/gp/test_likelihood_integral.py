"""-log E_q p(y|f) and its gradient in the corners, against composite Gauss-Legendre quadrature and mpmath."""

import numpy as np
import pytest
import scipy.stats as st
import torch
from scipy.optimize import root_scalar
from scipy.special import expit, gammaln, log_expit

from dlmexp.gp.likelihoods import Logistic, Poisson, PoissonSoftplus, Probit, StudentT

F64 = torch.float64
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
LIKELIHOODS = {
    "poisson": Poisson(),
    "poisson_softplus": PoissonSoftplus(),
    "logistic": Logistic(),
    "probit": Probit(),
    "student_t": StudentT(torch.tensor(0.5, dtype=F64), torch.tensor(4.0, dtype=F64)),
    "cauchy": StudentT(torch.tensor(0.1, dtype=F64), torch.tensor(1.0, dtype=F64)),
    "nearly_normal": StudentT(torch.tensor(1.0, dtype=F64), torch.tensor(60.0, dtype=F64)),
    "sharp": StudentT(torch.tensor(0.02, dtype=F64), torch.tensor(3.0, dtype=F64)),
}


def log_softplus(f):
    return np.where(f < -30, f, np.log(np.logaddexp(0, np.maximum(f, -30))))


def log_p(name: str, f: np.ndarray, y: float) -> np.ndarray:
    if name == "poisson":
        return y * f - np.exp(np.minimum(f, 700)) - gammaln(y + 1)
    if name == "poisson_softplus":
        return y * log_softplus(f) - np.logaddexp(0, f) - gammaln(y + 1)
    if name == "logistic":
        return log_expit((2 * y - 1) * f)
    if name == "probit":
        return st.norm.logcdf((2 * y - 1) * f)
    lik = LIKELIHOODS[name]
    assert isinstance(lik, StudentT)
    return st.t.logpdf(y, lik.nu.item(), f, lik.scale.item())


def log_p_slope(name: str, f: float, y: float) -> float:
    if name == "poisson":
        return y - np.exp(min(f, 700))
    if name == "poisson_softplus":
        return y * float(expit(f) / np.logaddexp(0, f) if f > -30 else 1.0) - float(expit(f))
    return (2 * y - 1) * float(expit(-(2 * y - 1) * f))


def reference(name: str, mu: float, v: float, y: float) -> tuple[float, float, float]:
    """Loss and its derivatives from the moments of q p, by 16-point Gauss-Legendre on some thousand panels."""
    sd = np.sqrt(v)
    offsets = [sd * np.linspace(-40, 40, 801)]
    if name in ("poisson", "poisson_softplus", "logistic"):
        end = v * log_p_slope(name, mu, y)
        low, high = max(min(end, 0), -abs(mu) - 1000), max(end, 0)
        found = root_scalar(
            lambda s: s - v * log_p_slope(name, mu + s, y), bracket=(low, high), xtol=1e-14 * (high - low) + 1e-300
        )
        root = float(found.root)
        h = max(abs(mu), 1) * 1e-5
        bend = (log_p_slope(name, mu + root - h, y) - log_p_slope(name, mu + root + h, y)) / (2 * h)
        local = 1 / np.sqrt(max(bend, 0) + 1 / v)
        offsets += [root + local * np.linspace(-60, 60, 601), np.linspace(-40, 40, 161) - mu]
        offsets += [np.sinh(np.linspace(-9, 9, 181)) - mu]
    elif name != "probit":
        offsets.append(y - mu + LIKELIHOODS[name].scale.item() * np.sinh(np.linspace(-14, 14, 561)))
    else:
        offsets += [
            np.linspace(-40, 40, 161) - mu,
            sd**2 / (1 + sd**2) * -mu + np.linspace(-12, 12, 241) * sd / np.sqrt(1 + v),
        ]
    edges = np.unique(np.concatenate(offsets))
    half = np.diff(edges) / 2
    s = (edges[:-1] + half)[:, None] + half[:, None] * NODES
    log_w = np.log(half)[:, None] + np.log(WEIGHTS) + log_p(name, mu + s, y) - s * s / (2 * v)
    top = log_w.max()
    w = np.exp(log_w - top)
    total = w.sum()
    loss = -(top + np.log(total) - 0.5 * np.log(2 * np.pi * v))
    m1, m2 = (w * s).sum() / total, (w * s * s).sum() / total
    return loss, -m1 / v, (1 - m2 / v) / (2 * v)


def ours(name: str, mu: float, v: float, y: float) -> tuple[float, float, float]:
    m, w = (torch.tensor([x], dtype=F64, requires_grad=True) for x in (mu, v))
    loss = LIKELIHOODS[name].log_loss(m, w, torch.tensor([y], dtype=F64))
    d_mu, d_v = torch.autograd.grad(loss.sum(), (m, w))
    return loss.item(), d_mu.item(), d_v.item()


COUNT_CORNERS = [  # mu, v, y
    (0.0, 1.0, 0.0),
    (0.5, 0.3, 3.0),
    (2.0, 1e-2, 5000.0),
    (9.0, 1e-3, 10_000.0),
    (5.0, 2.0, 0.0),
    (-30.0, 9.0, 0.0),
    (-8.0, 9.0, 0.0),
    (3.0, 100.0, 7.0),
    (0.0, 1e4, 0.0),
    (-300.0, 1e4, 0.0),
    (0.0, 1e4, 10_000.0),
]
BINARY_CORNERS = [
    (0.0, 1.0, 1.0),
    (-40.0, 0.3, 1.0),
    (40.0, 2.0, 0.0),
    (-40.0, 100.0, 1.0),
    (30.0, 100.0, 1.0),
    (0.0, 1e4, 0.0),
    (-3000.0, 1e4, 1.0),
]
REAL_CORNERS = [
    (0.0, 1.0, 0.3),
    (0.0, 0.01, 30.0),
    (0.0, 1.0, 6.0),
    (0.0, 1e4, 500.0),
    (0.0, 1e4, 0.0),
    (-2.0, 1e-2, 2.0),
]
CASES = [
    *(("poisson", *c) for c in COUNT_CORNERS),
    *(("poisson_softplus", *c) for c in COUNT_CORNERS),
    ("poisson_softplus", 1e4, 50.0, 10_000.0),
    *(("logistic", *c) for c in BINARY_CORNERS),
    *(("probit", *c) for c in BINARY_CORNERS),
    *(("student_t", *c) for c in REAL_CORNERS),
    *(("cauchy", *c) for c in REAL_CORNERS),
    *(("nearly_normal", *c) for c in REAL_CORNERS),
    ("sharp", 0.0, 1.0, 5.6),  # an outlier at six standard deviations: two modes hold mass
]


@pytest.mark.parametrize(("name", "mu", "v", "y"), CASES)
def test_corners_against_gauss_legendre(name, mu, v, y):
    exact, got = reference(name, mu, v, y), ours(name, mu, v, y)
    # The documented accuracy: rounding for v <= 10, 1e-9 to v = 100, 2e-5 at v = 10^4.
    value = 1e-10 if v <= 10 else 1e-9 if v <= 100 else 2e-5
    slope = 1e-7 if v <= 100 else 2e-4
    assert got[0] == pytest.approx(exact[0], rel=1e-11, abs=value)
    assert got[1] == pytest.approx(exact[1], rel=slope, abs=slope * 1e-2 / np.sqrt(v))
    assert got[2] == pytest.approx(exact[2], rel=10 * slope, abs=slope * 1e-1 / v)


@pytest.mark.parametrize("name", ["poisson", "poisson_softplus", "logistic"])
def test_the_brisk_rule_around_a_known_mode(name):
    lik = LIKELIHOODS[name]
    mus, vs = [-150.0, -8.0, -2.0, 0.0, 1.0, 4.0, 8.0], [1e-12, 1e-4, 0.1, 0.5, 2.0, 10.0, 100.0, 1e4]
    grid = (torch.tensor(values, dtype=F64) for values in (mus, vs, [0.0, 1.0, 5.0, 60.0, 1e4]))
    mu, v, y = (t.flatten() for t in torch.meshgrid(*grid, indexing="ij"))
    y = y.clamp_max(1) if name == "logistic" else y
    error = (lik.log_loss_around(lik.mode(mu, v, y)) - lik.log_loss(mu, v, y)).abs()
    assert error[v <= 2].max() < 1e-7
    assert error[(v <= 100) & (mu.abs() <= 8)].max() < 2e-6
    if name == "poisson":  # the only one that it is used for
        assert error.max() < 5e-4


@pytest.mark.parametrize("name", ["poisson", "poisson_softplus", "logistic", "probit", "student_t"])
@pytest.mark.parametrize("v", [1e-12, 1e-5])
@pytest.mark.parametrize("mu", [-2.0, 6.0])
def test_narrow_q_is_a_taylor_series(name, v, mu):
    # log E p = l + v (l'' + l'^2)/2 + O(v^2), its derivatives l' + v (...) and (l'' + l'^2)/2 + O(v).
    lik = LIKELIHOODS[name]
    y = {"poisson": 40.0, "poisson_softplus": 40.0, "student_t": 1.5}.get(name, 1.0)
    f = torch.tensor([mu], dtype=F64, requires_grad=True)
    h = 1e-5
    value = lik.log_prob(f, torch.tensor([y], dtype=F64))
    (slope,) = torch.autograd.grad(value.sum(), f)
    ends = [torch.tensor([mu + d], dtype=F64, requires_grad=True) for d in (-h, h)]
    bends = [torch.autograd.grad(lik.log_prob(e, torch.tensor([y], dtype=F64)).sum(), e)[0] for e in ends]
    bend = (bends[1] - bends[0]) / (2 * h)
    half = (bend + slope**2) / 2
    scale = 1 + slope.abs().item() ** 4
    got = ours(name, mu, v, y)
    assert got[0] == pytest.approx(-(value + v * half).item(), rel=1e-11, abs=v * v * scale + 1e-10)
    assert got[1] == pytest.approx(-slope.item(), rel=1e-9, abs=10 * v * scale)
    assert got[2] == pytest.approx(-half.item(), rel=1e-6, abs=10 * v * scale)
