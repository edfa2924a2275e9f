"""The trivial predictor against NumPy and SciPy, written out."""

import numpy as np
import pytest
from scipy import integrate, stats

from dlmexp.training.metrics import trivial_metrics

RNG = np.random.default_rng(0)


def test_regression():
    y, t = RNG.normal(0.3, 2.0, 50), RNG.normal(size=400)
    found = trivial_metrics("regression", y, {"validation": t[:0], "test": t})
    assert set(found) == {"test"}
    predicted = stats.norm(y.mean(), y.std())
    assert found["test"]["nll"] == pytest.approx(-stats.norm.logpdf(t, y.mean(), y.std()).mean())
    assert found["test"]["mse"] == pytest.approx(((t - y.mean()) ** 2).mean())
    low, high = predicted.interval(0.9)
    assert found["test"]["coverage_90"] == pytest.approx(((low <= t) & (t <= high)).mean())
    assert found["test"]["width_90"] == pytest.approx(high - low)
    x = np.linspace(-30, 30, 60001)
    crps = np.mean([integrate.trapezoid((predicted.cdf(x) - (x >= one)) ** 2, x) for one in t[:20]])
    assert trivial_metrics("regression", y, {"test": t[:20]})["test"]["crps"] == pytest.approx(crps, rel=1e-3)


def test_binary():
    y, t = np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 1, 0, 0])
    found = trivial_metrics("binary", y, {"test": t})["test"]
    assert found == pytest.approx(
        {"nll": -(2 * np.log(0.25) + 3 * np.log(0.75)) / 5, "error": 0.4, "brier": (2 * 0.75**2 + 3 * 0.25**2) / 5,
         "ece": 0.15}
    )  # fmt: skip


def test_counts():
    y, t = RNG.poisson(4.0, 60).astype(float), RNG.poisson(5.0, 300).astype(float)
    found = trivial_metrics("count", y, {"test": t})["test"]
    predicted, k = stats.poisson(y.mean()), np.arange(200)
    assert found["nll"] == pytest.approx(-stats.poisson.logpmf(t, y.mean()).mean())
    assert found["mre"] == pytest.approx((np.abs(t - y.mean()) / np.maximum(1, t)).mean())
    crps = [((predicted.cdf(k) - (k >= one)) ** 2).sum() for one in t]
    assert found["crps"] == pytest.approx(np.mean(crps), rel=1e-6)
    low, high = predicted.ppf([0.025, 0.975])
    assert found["width_95"] == high - low
    assert found["coverage_95"] == pytest.approx(((low <= t) & (t <= high)).mean())


@pytest.mark.parametrize(
    ("task", "value", "nll"),
    [("regression", 0.0, np.log(2 * np.pi) / 2 + 0.5), ("binary", 0.0, np.log(10)), ("binary", 1.0, -np.log(0.9)),
     ("count", 0.0, 1 / 9 + np.log(9))],
)  # fmt: skip
def test_targets_that_are_all_equal(task, value, nll):
    """n = 8: variance 1, a share of 1/10, a rate of 1/9."""
    found = trivial_metrics(task, np.full(8, value), {"test": np.array([1.0])})["test"]
    assert found["nll"] == pytest.approx(nll)
    assert all(np.isfinite(list(found.values())))
