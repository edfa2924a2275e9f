"""Everything learned together: initial values, and the objective written out with dense matrices."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.gp.posterior import marginals, projection
from dlmexp.training.program import constrain, unsoftplus
from tests.support.small_programs import M, program


def test_initial_values():
    made = program(index=(0, 1, 1), likelihood="gaussian")
    values = constrain(made.initial(), made.positive)
    assert torch.equal(values["Z"], made.split.X[:, :M][made.split.index])
    for name, expected in {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "m": 0.0}.items():
        torch.testing.assert_close(values[name], torch.full_like(values[name], expected), rtol=1e-12, atol=0)
    assert torch.equal(values["L"], torch.eye(M, dtype=torch.float64).expand(3, M, M))
    assert "mean" not in values
    assert constrain(program().initial(), made.positive)["mean"].tolist() == [0, 0, 0]


def test_ard_has_a_lengthscale_per_feature():
    assert program(ard=True).initial()["lengthscale"].shape == (3, 2)


def _dense(made, values):
    """The log-loss objective with an unwhitened posterior, by dense solves, for each cell alone."""
    found = []
    for i in range(len(made.beta)):
        c = {name: value[i] for name, value in constrain(values, made.positive).items()}
        X, y = made.split.X[made.split.index[i]], made.split.y[made.split.index[i]]

        def k(a, b, c=c):
            return c["outputscale"] * torch.exp(-0.5 * torch.cdist(a / c["lengthscale"], b / c["lengthscale"]).square())

        Kuu = k(c["Z"], c["Z"])
        Kuu = Kuu + FIRST_JITTER * Kuu.diagonal().mean() * torch.eye(M, dtype=torch.float64)
        Luu, Kuf = torch.linalg.cholesky(Kuu), k(c["Z"], X)
        m, S = (Luu @ c["m"], Luu @ c["L"] @ c["L"].T @ Luu.T) if made.model.whitened else (c["m"], c["L"] @ c["L"].T)
        W = torch.linalg.solve(Kuu, Kuf)
        mu, v = c["mean"] + W.T @ m, c["outputscale"] - (Kuf * W).sum(0) + (W * (S @ W)).sum(0)
        loss = -torch.special.log_ndtr((2 * y - 1) * mu / (1 + v).sqrt()).mean()
        q = torch.distributions.MultivariateNormal(m, S)
        prior = torch.distributions.MultivariateNormal(torch.zeros_like(m), Kuu)
        found.append(loss + made.beta[i] * torch.distributions.kl_divergence(q, prior) / made.n)
    return torch.stack(found)


@pytest.mark.parametrize("whitened", [True, False])
def test_objective_written_out(whitened):
    made = program(index=(0, 1, 1), whitened=whitened)
    g = torch.Generator().manual_seed(2)
    values = made.initial()
    for name, value in values.items():
        values[name] = value + 0.1 * torch.randn(value.shape, generator=g, dtype=value.dtype)
    value = made.objective(values, torch.full_like(made.beta, FIRST_JITTER), torch.tensor(0))
    torch.testing.assert_close(value.objective, _dense(made, values), rtol=1e-9, atol=1e-12)
    assert value.ok.all()
    assert value.acceptance.tolist() == [0, 0, 0]


def test_both_parameterisations_start_at_the_prior():
    at = [
        made.objective(made.initial(), torch.full_like(made.beta, FIRST_JITTER), torch.tensor(0)).objective
        for made in (program(whitened=True), program(whitened=False))
    ]
    torch.testing.assert_close(at[0], at[1], rtol=1e-10, atol=1e-12)
    # KL is zero at the prior, so beta makes no difference.
    torch.testing.assert_close(at[0], at[0][:1].expand(3), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("likelihood", ["probit", "logistic"])
def test_a_larger_outputscale_always_helps_log_dlm_that_classifies_all_rows_right(likelihood):
    """What `Objective.joint_binary_note` says: with s times c^2 and the mean times c, f is c times as large, and KL is
    what it was."""
    made = program(betas=(1.0,), index=(0,), likelihood=likelihood)
    values = made.initial()
    values["m"] = torch.randn(values["m"].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values["mean"] = torch.full_like(values["mean"], 0.3)
    hyper, (m, L) = made.constrained(values)
    jitter = torch.full_like(made.beta, FIRST_JITTER)
    mu, _ = marginals(projection(made.model.kernel, hyper, made.split.X, jitter), hyper["mean"], m, L)
    right = replace(made, split=replace(made.split, y=(mu > 0).double()))

    def objective(c):
        scaled = {**values, "mean": c * values["mean"], "outputscale": unsoftplus(c**2 * hyper["outputscale"])}
        return float(right.objective(scaled, jitter, torch.tensor(0)).objective)

    found = [objective(c) for c in (1.0, 2.0, 4.0, 8.0, 16.0)]
    assert all(later < earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize(("objective", "unbounded"), [("log_dlm", True), ("elbo", False)])
def test_log_dlm_for_regression_falls_without_bound_below_beta_1(objective, unbounded):
    """What `Objective.joint_interpolation_note` says. With Z at M training rows, q(u) = N(y, e^2 I) and noise e^2, each
    of these rows adds log e to the loss, and beta KL adds -beta M log e: together (1 - beta) M log e. The ELBO divides
    the variances of the other rows by the noise, and rises."""
    made = program(betas=(0.25, 1.0, 4.0), index=(0, 0, 0), likelihood="gaussian", objective=objective, whitened=False)
    values, M = made.initial(), made.model.M
    values["Z"] = made.split.X[made.split.index][:, :M].clone()
    values["m"] = made.split.y[made.split.index][:, :M].clone()
    found = []
    for e in (1e-3, 1e-4):
        values["L"] = e * torch.eye(M, dtype=torch.float64).repeat(3, 1, 1)
        values["noise"] = unsoftplus(torch.full((3,), e**2, dtype=torch.float64))
        found.append(made.objective(values, torch.full_like(made.beta, 1e-15), torch.tensor(0)).objective)
    change = (found[1] - found[0]).detach()
    if unbounded:
        expected = (1 - made.beta) * M * math.log(0.1) / made.n
        torch.testing.assert_close(change, expected, rtol=0.02, atol=2e-3)
    else:
        assert (change > 0).all()
