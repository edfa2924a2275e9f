"""Metrics against their definitions, row by row; the ECE against a loop; the trivial predictor against SciPy; what
recalibrates predictions against brute force on the same rows."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.optimize import minimize_scalar

import dlmexp.training.metrics as metrics
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.gp.posterior import predict
from dlmexp.training.metrics import (
    BINS,
    best_factor,
    evaluate,
    evaluate_finally,
    metrics_of_cells,
    reliability,
    rescale,
    trivial_metrics,
)
from tests.support.small_programs import program


def _metrics(made, posterior, part):
    return metrics_of_cells(evaluate(made, posterior, part), len(made.beta))


def _evaluated(likelihood, objective="log_dlm", kind="joint"):
    made = program(kind, index=(0, 1, 1), likelihood=likelihood, objective=objective)
    values = made.initial()
    if "m" in values:
        values["m"] = torch.randn(values["m"].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    posterior = made.posterior(values, torch.full_like(made.beta, 1e-6))
    X, y = (part[made.split.index] for part in made.split.parts["test"])
    hyper, m, L, jitter = posterior
    mu, v = predict(made.model.kernel, hyper, m, L, jitter, X)
    return made, posterior, mu, v, y


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
def test_definitions(likelihood):
    made, posterior, mu, v, y = _evaluated(likelihood)
    found = _metrics(made, posterior, "test")
    if likelihood == "gaussian":
        noise = posterior.hyper["noise"][:, None]
        nll = -torch.distributions.Normal(mu, (v + noise).sqrt()).log_prob(y)
        name, own = "mse", (mu - y).square()
    elif likelihood == "probit":
        p = torch.special.ndtr(mu / (1 + v).sqrt())
        nll = -torch.where(y == 1, p, 1 - p).log()
        name, own = "error", ((p > 0.5) != (y == 1)).double()
    else:
        # A fine trapezoidal rule over +- 12 standard deviations.
        e = torch.linspace(-12, 12, 4001, dtype=torch.float64)
        f = mu[..., None] + v.sqrt()[..., None] * e
        log_p = y[..., None] * f - f.exp() - torch.lgamma(y + 1)[..., None]
        nll = -torch.trapezoid((log_p - e.square() / 2).exp() / (2 * torch.pi) ** 0.5, e).log()
        mean = (mu + v / 2).exp()
        name, own = "mre", (mean - y).abs() / y.clamp(min=1)
    for i, cell in enumerate(found):
        assert set(cell) == {"nll", name}
        assert cell["nll"] == pytest.approx(nll[i].mean().item(), rel=1e-8)
        assert cell[name] == pytest.approx(own[i].mean().item(), rel=1e-12)


REGRESSION = {"crps"} | {f"{what}_{level}" for what in ("coverage", "width") for level in (50, 90, 95)}
SCORES = {
    "gaussian": REGRESSION, "student_t": REGRESSION, "probit": {"brier", "ece"}, "logistic": {"brier", "ece"},
    "poisson": {"crps", "coverage_95", "width_95"}, "poisson_softplus": {"crps", "coverage_95", "width_95"},
}  # fmt: skip


@pytest.mark.parametrize("likelihood", SCORES)
def test_the_end_has_calibration_beside_the_metrics_of_learning_curves(likelihood):
    made, posterior, mu, v, y = _evaluated(likelihood)
    plain, final = _metrics(made, posterior, "test"), evaluate_finally(made, posterior).read()
    scores = made.model.likelihood.from_hyper(posterior.hyper).calibration(mu, v, y)
    for i, (of_cell, bins) in enumerate(final):
        assert set(of_cell) == {"validation", "test"}
        for of_part in of_cell.values():
            found = {name for name in of_part if not name.startswith("recalibrated_")}
            assert found == set(plain[i]) | SCORES[likelihood]
        assert {name: of_cell["test"][name] for name in plain[i]} == pytest.approx(plain[i], rel=1e-12)
        for name, value in scores.items():
            assert of_cell["test"][name] == pytest.approx(value[i].mean().item(), rel=1e-12)
        assert bool(bins) == ("ece" in SCORES[likelihood])
    if "ece" in SCORES[likelihood]:
        ece = reliability(made.model.likelihood.from_hyper(posterior.hyper).mean(mu, v), y).ece().tolist()
        assert [of_cell["test"]["ece"] for of_cell, _ in final] == pytest.approx(ece, rel=1e-12)


def test_square_loss_has_no_calibration():
    made, posterior, *_ = _evaluated("gaussian", "sq_dlm", "collapsed")
    for of_cell, _ in evaluate_finally(made, posterior).read():
        assert [set(of_part) for of_part in of_cell.values()] == [{"mse"}] * 2


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["probit", "poisson"])
def test_calibration_of_rows_in_pieces(likelihood, monkeypatch):
    made, posterior, *_ = _evaluated(likelihood)
    whole = evaluate_finally(made, posterior).read()
    monkeypatch.setattr(metrics, "ENTRIES_AT_ONCE", 3 * 6 * 2)
    for one, other in zip(whole, evaluate_finally(made, posterior).read(), strict=True):
        assert one[0]["test"] == pytest.approx(other[0]["test"], rel=1e-12)


def plain(p: np.ndarray, y: np.ndarray) -> float:
    """The ECE of distinct probabilities, bin by bin."""
    order = np.argsort(p, kind="stable")
    ends = [len(p) * b // BINS for b in range(BINS + 1)]
    total = 0.0
    for first, last in itertools.pairwise(ends):
        rows = order[first:last]
        if len(rows):
            total += len(rows) * abs(p[rows].mean() - y[rows].mean())
    return total / len(p)


@pytest.mark.parametrize("rows", [1, 7, 15, 100, 1000])
def test_against_a_loop(rows):
    rng = np.random.default_rng(rows)
    p = rng.random((3, rows))
    y = (rng.random((3, rows)) < p**2).astype(float)
    found = reliability(torch.from_numpy(p), torch.from_numpy(y))
    assert found.ece().tolist() == pytest.approx([plain(*pair) for pair in zip(p, y, strict=True)], rel=1e-12)
    assert found.rows.sum(-1).tolist() == [rows] * 3
    assert found.rows.max() - found.rows.min() <= 1


def test_ties_share_their_classes_so_that_order_does_not_matter():
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.integers(0, 4, 200) / 4)
    y = torch.from_numpy((rng.random(200) < 0.4).astype(float))
    order = torch.from_numpy(rng.permutation(200))
    both = reliability(torch.stack((p, p[order])), torch.stack((y, y[order])))
    assert torch.allclose(both.y[0], both.y[1])
    constant = torch.full_like(p, 0.7)[None]
    assert reliability(constant, y[None]).ece().item() == pytest.approx(abs(0.7 - y.mean().item()), rel=1e-12)


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


def rows(task):
    g = torch.Generator().manual_seed(3)
    mu, v = torch.randn(2, 80, generator=g).double(), 0.1 + torch.rand(2, 80, generator=g).double()
    f = 1.5 * mu + torch.randn(2, 80, generator=g)
    y = {"regression": f, "binary": (f > 0).double(), "count": f.exp().round()}[task]
    hyper = {"noise": torch.tensor([0.2, 2.0]).double(), "mean": torch.zeros(2).double()}
    return hyper, mu, v, y


def definition(name, hyper, i, factor, mu, v, y):
    """The mean NLL of cell i with its factor, written out for its task."""
    likelihood = LIKELIHOODS[name]
    if name == "gaussian":
        return -torch.distributions.Normal(mu, (factor * (v + hyper["noise"][i])).sqrt()).log_prob(y).mean()
    if name == "poisson":
        return likelihood().log_loss(mu, factor * v, y).mean()
    p = torch.special.ndtr(mu / (1 + v).sqrt())
    p = torch.sigmoid(torch.logit(p) / factor)
    return -torch.where(y == 1, p, 1 - p).log().mean()


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson"])
def test_against_brute_force(name):
    likelihood = LIKELIHOODS[name]
    hyper, mu, v, y = rows(likelihood.task)
    factor = best_factor(likelihood, hyper, mu, v, y)
    nll = rescale(likelihood, hyper, factor, mu, v, y).nll.mean(-1)
    for i in range(2):

        def loss(log, i=i):
            return float(definition(name, hyper, i, np.exp(log), mu[i], v[i], y[i]))

        best: Any = minimize_scalar(loss, bounds=(-7, 7), method="bounded", options={"xatol": 1e-8})
        assert np.log(float(factor[i])) == pytest.approx(best.x, abs=1e-3)
        assert float(nll[i]) == pytest.approx(best.fun, abs=1e-7)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
def test_recorded_of_every_fit_and_never_worse_on_the_validation_rows(likelihood):
    made = program("joint", index=(0, 1, 1), likelihood=likelihood)
    posterior = made.posterior(made.initial(), torch.full_like(made.beta, 1e-6))
    for of_cell, _ in evaluate_finally(made, posterior).read():
        assert of_cell["validation"]["recalibrated_nll"] <= of_cell["validation"]["nll"] + 1e-9
        assert np.isfinite(of_cell["test"]["recalibrated_nll"])
