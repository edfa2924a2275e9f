"""Metrics against their definitions, row by row; the ECE against a loop; the trivial predictor
against SciPy; what recalibrates predictions against brute force on the same rows."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize_scalar

from dlmexp.core.folds import PROFILE_LOGS
from dlmexp.core.gp.posterior import marginals, projection
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.training import metrics, recalibration
from dlmexp.core.training.metrics import evaluate, reliability, trivial_metrics
from tests.support.small_programs import program


def _evaluated(likelihood, objective="log_dlm", kind="joint"):
    """A program, a posterior, its marginals at the test rows with their targets, and the metrics
    there."""
    made = program(kind, index=(0, 1, 1), likelihood=likelihood, objective=objective)
    values = made.initial()
    if "m" in values:
        values["m"] = torch.randn(
            values["m"].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
    posterior = made.posterior(values, torch.full_like(made.beta, 1e-6))
    X, y = (part[made.data.split_index] for part in made.data.parts["test"])
    hyper, m, L, jitter = posterior
    mu, v = marginals(projection(made.model.kernel, hyper, X, jitter), hyper["mean"], m, L)
    cells = [by_part["test"] for by_part, _ in evaluate(made, posterior, False, ("test",)).read()]
    return made, posterior, mu, v, y, cells


REGRESSION = {"crps"} | {
    f"{what}_{level}" for what in ("coverage", "width") for level in (50, 90, 95)
}
BINARY, COUNT = {"brier", "ece"}, {"crps", "coverage_95", "width_95"}


@pytest.mark.parametrize(
    ("likelihood", "names"),
    [("gaussian", REGRESSION), ("student_t", REGRESSION), ("probit", BINARY), ("logistic", BINARY), ("poisson", COUNT),
     ("poisson_softplus", COUNT)],
)  # fmt: skip
def test_the_end_has_calibration_beside_the_metrics_of_learning_curves(
    likelihood, names, monkeypatch
):
    """Means over rows of what the likelihood defines; also where the rows are evaluated two at a
    time."""
    made, posterior, mu, v, y, plain = _evaluated(likelihood)
    monkeypatch.setattr(metrics, "ENTRIES_AT_ONCE", 3 * 6 * 2)
    with_hyper = made.model.likelihood.from_hyper(posterior.hyper)
    own = {"nll": with_hyper.log_loss(mu, v, y)}
    own |= {name: metric(with_hyper, mu, v, y) for name, metric in with_hyper.metrics.items()}
    scores = own | with_hyper.calibration(mu, v, y)
    if names is BINARY:
        scores["ece"] = reliability(with_hyper.mean(mu, v), y).ece()[:, None]
    for i, (by_part, bins) in enumerate(evaluate(made, posterior).read()):
        assert set(by_part) == {"validation", "test"}
        for of_part in by_part.values():
            assert {name for name in of_part if not name.startswith("recalibrated_")} == {
                *plain[i],
                *names,
            }
        expected = {name: score[i].mean().item() for name, score in scores.items()}
        assert plain[i] == pytest.approx({name: expected[name] for name in own}, rel=1e-10)
        assert {name: by_part["test"][name] for name in expected} == pytest.approx(
            expected, rel=1e-10
        )
        assert bool(bins) == (names is BINARY)
        assert by_part["validation"]["recalibrated_nll"] <= by_part["validation"]["nll"] + 1e-9
        assert np.isfinite(by_part["test"]["recalibrated_nll"])


def test_square_loss_has_no_calibration():
    made, posterior, *_ = _evaluated("gaussian", "sq_dlm", "collapsed")
    for by_part, _ in evaluate(made, posterior).read():
        assert [set(of_part) for of_part in by_part.values()] == [{"mse"}] * 2


@pytest.mark.parametrize("rows", [1, 7, 15, 100, 1000])
def test_ece_against_a_loop(rows):
    rng = np.random.default_rng(rows)
    p = rng.random((3, rows))
    y = (rng.random((3, rows)) < p**2).astype(float)
    found = reliability(torch.from_numpy(p), torch.from_numpy(y))
    ends = [rows * b // metrics.BINS for b in range(1, metrics.BINS)]
    for i in range(3):
        bins = [each for each in np.split(np.argsort(p[i]), ends) if len(each)]
        gaps = [len(each) * abs(p[i, each].mean() - y[i, each].mean()) for each in bins]
        assert float(found.ece()[i]) == pytest.approx(sum(gaps) / rows, rel=1e-12)
        assert sorted(found.rows[i][found.rows[i] > 0].tolist()) == sorted(map(len, bins))


def test_ties_share_their_classes_so_that_order_does_not_matter():
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.integers(0, 4, 200) / 4)
    y = torch.from_numpy((rng.random(200) < 0.4).astype(float))
    order = torch.from_numpy(rng.permutation(200))
    both = reliability(torch.stack((p, p[order])), torch.stack((y, y[order])))
    assert torch.allclose(both.y[0], both.y[1])
    constant = torch.full_like(p, 0.7)[None]
    assert reliability(constant, y[None]).ece().item() == pytest.approx(
        abs(0.7 - y.mean().item()), rel=1e-12
    )


@pytest.mark.parametrize("task", ["regression", "count"])
def test_the_trivial_predictor_against_scipy(task):
    rng = np.random.default_rng(0)
    if task == "regression":
        y, t, level = rng.normal(0.3, 2.0, 50), rng.normal(size=40), 90
        fitted: Any = stats.norm(y.mean(), y.std())
        nll, name, own = -fitted.logpdf(t), "mse", (t - y.mean()) ** 2
        grid = np.linspace(-30, 30, 20001)
    else:
        y, t, level = rng.poisson(4.0, 60).astype(float), rng.poisson(5.0, 40).astype(float), 95
        fitted = stats.poisson(y.mean())
        nll, name, own = -fitted.logpmf(t), "mre", np.abs(t - y.mean()) / np.maximum(1, t)
        grid = np.arange(200.0)
    found = trivial_metrics(task, y, {"validation": t[:0], "test": t})
    assert set(found) == {"test"}
    low, high = fitted.interval(level / 100)
    crps = ((fitted.cdf(grid) - (grid >= t[:, None])) ** 2).sum(1) * (grid[1] - grid[0])
    expected = {
        "nll": nll,
        name: own,
        f"coverage_{level}": (low <= t) & (t <= high),
        f"width_{level}": high - low,
    }
    for each, rows in expected.items():
        assert found["test"][each] == pytest.approx(np.mean(rows), rel=1e-9)
    assert found["test"]["crps"] == pytest.approx(crps.mean(), rel=1e-3)


def test_the_trivial_predictor_of_classes():
    y, t = np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 1, 0, 0])
    nll, brier = -(2 * np.log(0.25) + 3 * np.log(0.75)) / 5, (2 * 0.75**2 + 3 * 0.25**2) / 5
    expected = {"nll": nll, "error": 0.4, "brier": brier, "ece": 0.15}
    assert trivial_metrics("binary", y, {"test": t})["test"] == pytest.approx(expected)


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


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson"])
def test_the_recalibrating_factor_against_brute_force(name, monkeypatch):
    likelihood, g = LIKELIHOODS[name], torch.Generator().manual_seed(3)
    mu, v = torch.randn(2, 80, generator=g).double(), 0.1 + torch.rand(2, 80, generator=g).double()
    f = 1.5 * mu + torch.randn(2, 80, generator=g)
    y = {"gaussian": f, "probit": (f > 0).double(), "poisson": f.exp().round()}[name]
    hyper = {"noise": torch.tensor([0.2, 2.0]).double(), "mean": torch.zeros(2).double()}

    def nll(log, i):
        """The mean NLL of cell i with the factor exp(log), written out."""
        factor = np.exp(log)
        if name == "gaussian":
            scale = (factor * (v[i] + hyper["noise"][i])).sqrt()
            return -float(torch.distributions.Normal(mu[i], scale).log_prob(y[i]).mean())
        if name == "poisson":
            return float(LIKELIHOODS[name]().log_loss(mu[i], factor * v[i], y[i]).mean())
        p = torch.special.ndtr(mu[i] / (1 + v[i]).sqrt())
        p = torch.sigmoid(torch.logit(p) / factor)
        return -float(torch.where(y[i] == 1, p, 1 - p).log().mean())

    factor = recalibration.best_factor(likelihood, hyper, mu, v, y)
    monkeypatch.setattr(recalibration, "ENTRIES_AT_ONCE", 1)
    assert torch.equal(recalibration.best_factor(likelihood, hyper, mu, v, y), factor), "in pieces"
    found = recalibration.rescale(likelihood, hyper, factor, mu, v, y).nll.mean(-1)
    for i in range(2):
        best: Any = minimize_scalar(
            nll, args=(i,), bounds=(-7, 7), method="bounded", options={"xatol": 1e-8}
        )
        assert np.log(float(factor[i])) == pytest.approx(best.x, abs=1e-3)
        assert float(found[i]) == pytest.approx(best.fun, abs=1e-7)
    profile = recalibration.loss_profile(likelihood, hyper, mu, v, y)
    for i in range(2):
        expected = [80 * nll(log, i) for log in PROFILE_LOGS[16:33]]
        assert profile[i, 16:33].tolist() == pytest.approx(expected, rel=1e-6)
