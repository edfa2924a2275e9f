"""The log loss and its derivatives by quadrature on panels that are halved until all is smooth."""

import numpy as np
import pytest

from dlmexp.core.likelihoods import Likelihood
from tests.support.likelihood_cases import Density, with_gradients
from tests.support.product_density import t

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def log_loss_by_panels(
    log_p: Density, peak: float, mu: float, v: float, y: float
) -> tuple[float, float, float]:
    """Return the loss and its derivatives in mu and v from the moments of q p.

    By 16-point Gauss-Legendre on panels in s = f - mu. Where the logarithm of the integrand counts
    and is not nearly straight, panels are halved.
    """
    wide = np.sqrt(v) * np.linspace(-100, 100, 201)
    panels = np.unique(np.append(wide, np.clip(peak, -1000, 1000) - mu))
    while True:
        half = np.diff(panels) / 2
        middle = panels[:-1] + half
        s = middle[:, None] + half[:, None] * NODES
        log_density = log_p(mu + s, y) - s * s / (2 * v)
        log_w = np.log(half)[:, None] + np.log(WEIGHTS) + log_density
        by_panel = log_w - np.log(WEIGHTS)
        counts = by_panel.max(1) > by_panel.max() - 60
        rough = (np.ptp(by_panel, axis=1) > 1) & counts
        if not rough.any():
            break
        and_neighbours = np.convolve(rough, np.ones(3), "same") > 0
        panels = np.sort(np.append(panels, middle[and_neighbours]))
    top = log_w.max()
    w = np.exp(log_w - top)
    loss = -(top + np.log(w.sum()) - 0.5 * np.log(2 * np.pi * v))
    m1 = (w * s).sum() / w.sum()
    m2 = (w * s * s).sum() / w.sum()
    return loss, -m1 / v, (1 - m2 / v) / (2 * v)


def assert_log_loss_is_exact(
    likelihood: Likelihood, log_p: Density, mu: float, v: float, y: float
) -> None:
    """Check the documented accuracy: rounding for v <= 10, 1e-9 to v = 100, 2e-5 at v = 10^4."""
    peak = likelihood.peak(t(y)).item()
    loss, d_mu, d_v = log_loss_by_panels(log_p, peak, mu, v, y)
    computed = with_gradients(likelihood.log_loss, t([mu]), t([v]), t([y])).flatten().tolist()
    if v <= 10:
        value = 1e-10
    elif v <= 100:
        value = 1e-9
    else:
        value = 2e-5
    slope = 1e-7 if v <= 100 else 2e-4
    assert computed[0] == pytest.approx(loss, rel=1e-11, abs=value)
    assert computed[1] == pytest.approx(d_mu, rel=slope, abs=slope * 1e-2 / np.sqrt(v))
    assert computed[2] == pytest.approx(d_v, rel=10 * slope, abs=slope * 1e-1 / v)
