"""Metrics against their definitions, row by row."""

import pytest
import torch

import dlmexp.training.metrics as metrics
from dlmexp.gp.posterior import predict
from dlmexp.training.metrics import Evaluation, evaluate, evaluate_finally, metrics_of_cells, reliability
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


def test_square_loss_has_no_nll():
    made, posterior, mu, _, y = _evaluated("gaussian", "sq_dlm", "collapsed")
    found = _metrics(made, posterior, "test")
    assert [set(cell) for cell in found] == [{"mse"}] * 3
    assert found[1]["mse"] == pytest.approx((mu - y).square().mean(-1)[1].item(), rel=1e-12)


def test_rows_in_pieces_change_nothing(monkeypatch):
    made, posterior, *_ = _evaluated("probit")
    whole = _metrics(made, posterior, "validation")
    monkeypatch.setattr(metrics, "ENTRIES_AT_ONCE", 3 * 6 * 2)
    for one, other in zip(whole, _metrics(made, posterior, "validation"), strict=True):
        assert one == pytest.approx(other, rel=1e-12)


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
    for i, cell in enumerate(final):
        assert set(cell.metrics) == {"validation", "test"}
        for of_part in cell.metrics.values():
            found = {name for name in of_part if not name.startswith("recalibrated_")}
            assert found == set(plain[i]) | SCORES[likelihood]
        assert {name: cell.metrics["test"][name] for name in plain[i]} == pytest.approx(plain[i], rel=1e-12)
        for name, value in scores.items():
            assert cell.metrics["test"][name] == pytest.approx(value[i].mean().item(), rel=1e-12)
        assert bool(cell.reliability) == ("ece" in SCORES[likelihood])
    if "ece" in SCORES[likelihood]:
        ece = reliability(made.model.likelihood.from_hyper(posterior.hyper).mean(mu, v), y).ece().tolist()
        assert [cell.metrics["test"]["ece"] for cell in final] == pytest.approx(ece, rel=1e-12)


def test_square_loss_has_no_calibration():
    made, posterior, *_ = _evaluated("gaussian", "sq_dlm", "collapsed")
    for cell in evaluate_finally(made, posterior).read():
        assert [set(metrics) for metrics in cell.metrics.values()] == [{"mse"}] * 2


@pytest.mark.parametrize("likelihood", ["probit", "poisson"])
def test_calibration_of_rows_in_pieces(likelihood, monkeypatch):
    made, posterior, *_ = _evaluated(likelihood)
    whole = evaluate_finally(made, posterior).read()
    monkeypatch.setattr(metrics, "ENTRIES_AT_ONCE", 3 * 6 * 2)
    for one, other in zip(whole, evaluate_finally(made, posterior).read(), strict=True):
        assert one.metrics["test"] == pytest.approx(other.metrics["test"], rel=1e-12)


def test_a_part_without_metrics_has_none_of_every_cell():
    assert [final.metrics for final in Evaluation(2, {"test": {}}, None).read()] == [{"test": {}}, {"test": {}}]
