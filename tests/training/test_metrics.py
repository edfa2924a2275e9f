"""Metrics against their definitions, row by row."""

import pytest
import torch

import dlmexp.training.metrics as metrics
from dlmexp.gp.predict import predict
from dlmexp.training.metrics import evaluate
from tests.support.small_programs import program


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
    found = evaluate(made, posterior, "test")
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
    found = evaluate(made, posterior, "test")
    assert [set(cell) for cell in found] == [{"mse"}] * 3
    assert found[1]["mse"] == pytest.approx((mu - y).square().mean(-1)[1].item(), rel=1e-12)


def test_rows_in_pieces_change_nothing(monkeypatch):
    made, posterior, *_ = _evaluated("probit")
    whole = evaluate(made, posterior, "validation")
    monkeypatch.setattr(metrics, "ENTRIES_AT_ONCE", 3 * 6 * 2)
    for one, other in zip(whole, evaluate(made, posterior, "validation"), strict=True):
        assert one == pytest.approx(other, rel=1e-13)
