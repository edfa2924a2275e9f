"""What programs compute: the objective written out with dense matrices, and the variants against each other."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from dlmexp.estimators import UPS, Exact
from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.gp.posterior import kl, marginals, projection
from dlmexp.training.program import constrain, unconstrain, unsoftplus
from dlmexp.training.state import Settings
from dlmexp.training.variants import Fixed, solve
from tests.support.small_programs import M, held, program, trained


def test_initial_values():
    made = program(index=(0, 1, 1), likelihood="gaussian")
    values = constrain(made.initial(), made.positive)
    assert torch.equal(values["Z"], made.split.X[:, :M][made.split.index])
    for name, expected in {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "m": 0.0}.items():
        torch.testing.assert_close(values[name], torch.full_like(values[name], expected), rtol=1e-12, atol=0)
    assert torch.equal(values["L"], torch.eye(M, dtype=torch.float64).expand(3, M, M))
    assert "mean" not in values
    assert constrain(program().initial(), made.positive)["mean"].tolist() == [0, 0, 0]


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
    assert value.acceptance is None


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


INDEX, BETAS = (0, 0, 1, 1, 1), (5.0, 0.5, 7.0, 1.0, 0.1)


def _pair(whitened=True, minibatch=None, likelihood="probit"):
    fixed = program("fixed", BETAS, INDEX, whitened=whitened, minibatch=minibatch, likelihood=likelihood)
    joint = program("joint", BETAS, INDEX, whitened=whitened, minibatch=minibatch, likelihood=likelihood)
    g = torch.Generator().manual_seed(5)
    q = fixed.initial()
    q["m"] = torch.randn(q["m"].shape, generator=g, dtype=torch.float64)
    q["L"] = q["L"] + 0.2 * torch.randn(q["L"].shape, generator=g, dtype=torch.float64).tril()
    hyper = {name: value[fixed.split.index] for name, value in unconstrain(held(2), joint.positive).items()}
    if likelihood == "probit":
        del hyper["noise"]
    return fixed, joint, q, hyper | q


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("minibatch", [None, 10])
def test_equals_joint_with_the_same_hyperparameters(whitened, minibatch):
    fixed, joint, q, everything = _pair(whitened, minibatch)
    jitter, iteration = torch.full((5,), FIRST_JITTER, dtype=torch.float64), torch.tensor(4)
    for each in (fixed, joint):
        each.load_minibatch(4)
    ours, theirs = fixed.objective(q, jitter, iteration), joint.objective(everything, jitter, iteration)
    torch.testing.assert_close(ours.objective, theirs.objective, rtol=1e-11, atol=1e-12)
    for mine, other in zip(fixed.posterior(q, jitter)[1:3], joint.posterior(everything, jitter)[1:3], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)


def test_the_jitter_it_needs_is_found_once_for_all():
    """Inputs so far from the origin that rounding makes the kernel matrix indefinite by more than 1e-6."""
    fixed = program("fixed", BETAS, INDEX)
    assert isinstance(fixed, Fixed)
    hyper = fixed.hyper | {"Z": fixed.hyper["Z"] * 1e-3 + 2e5}
    made = Fixed(fixed.model, fixed.split, fixed.beta, hyper)
    assert (made.jitter > FIRST_JITTER).all()
    value = made.objective(made.initial(), torch.full((5,), FIRST_JITTER, dtype=torch.float64), torch.tensor(0))
    assert value.ok.all()
    assert value.objective.isfinite().all()


def test_is_the_explicit_objective_at_the_posterior_it_returns():
    made = program("collapsed", likelihood="gaussian", objective="elbo", index=(0, 1, 1))
    jitter, index = torch.full_like(made.beta, FIRST_JITTER), made.split.index
    hyper, m, L, _ = made.posterior(made.initial(), jitter)
    mu, v = marginals(projection(made.model.kernel, hyper, made.split.X[index], jitter), hyper["mean"], m, L)
    loss = made.model.likelihood.from_hyper(hyper).elbo_loss(mu, v, made.split.y[index]).mean(-1)
    value = made.objective(made.initial(), jitter, torch.tensor(0)).objective
    torch.testing.assert_close(value, loss + made.beta * kl(m, L) / made.n, rtol=1e-10, atol=1e-12)


def test_against_the_normal_equations():
    betas, index = (10.0, 1.0, 0.1, 1.0), (0, 0, 1, 1)
    made = program("fixed", betas, index, likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    found = list(solve(made))
    assert [f.cell for f in found] == [0, 1, 2, 3]
    X_test, y_test = made.split.parts["test"]
    for f, beta, s in zip(found, betas, index, strict=True):
        h = {name: value[s].numpy() for name, value in made.hyper.items()}

        def k(a, b, h=h):
            distance = ((a[:, None] - b[None]) ** 2).sum(-1)
            return h["outputscale"] * np.exp(-0.5 * distance / h["lengthscale"] ** 2)

        Luu = np.linalg.cholesky(k(h["Z"], h["Z"]) + 1e-6 * h["outputscale"] * np.eye(M))
        A = np.linalg.solve(Luu, k(h["Z"], made.split.X[s].numpy()))
        y = made.split.y[s].numpy() - h["mean"]
        m = np.linalg.solve(A @ A.T + beta * np.eye(M), A @ y)
        objective = 0.5 * np.sum((y - A.T @ m) ** 2) + 0.5 * beta * m @ m
        assert f.objective[-1] == pytest.approx(objective / made.n, rel=1e-9)
        mu = h["mean"] + np.linalg.solve(Luu, k(h["Z"], X_test[s].numpy())).T @ m
        assert f.metrics["test"] == pytest.approx({"mse": np.mean((mu - y_test[s].numpy()) ** 2)}, rel=1e-8)
        assert f.stopped == "closed form"
        assert not f.failed


def test_only_the_lower_triangle_of_q_counts():
    raw = torch.arange(9.0).reshape(1, 3, 3)
    assert torch.equal(constrain({"L": raw}, ())["L"], raw.tril())


@pytest.mark.parametrize("kind", ["joint", "fixed"])
def test_minibatch_objectives_average_to_the_whole_one(kind):
    # 30 rows in batches of 10: an epoch is three steps and every row is in exactly one of them.
    whole, parts = program(kind), program(kind, minibatch=10)
    jitter, values = torch.full_like(whole.beta, 1e-6), whole.initial()
    values["m"] = values["m"] + 0.3
    seen = []
    for iteration in range(3):
        parts.load_minibatch(iteration)
        seen.append(parts.objective(values, jitter, torch.tensor(iteration)).objective)
    expected = whole.objective(values, jitter, torch.tensor(0)).objective
    torch.testing.assert_close(torch.stack(seen).mean(0), expected, rtol=1e-12, atol=1e-12)


def test_only_the_rejection_sampler_can_not_be_captured():
    assert program(estimator=Exact()).capturable
    assert program(estimator=UPS(2)).capturable
    assert not program(estimator=UPS(2, "rejection")).capturable


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "objective"), [("joint", "log_dlm"), ("collapsed", "fitc")])
def test_noise_that_would_fall_below_stays_above(kind, objective):
    def noise_of(floor):
        made = program(kind, likelihood="gaussian", objective=objective)
        made.model.noise_floor = floor
        made.split.y[:] = torch.sin(made.split.X[..., 0])  # nothing random in it
        made.__post_init__()
        steps = Settings(lr=0.1, iterations=150, window=None)
        return torch.tensor([float(one.hyperparameters["noise"]) for one in trained(made, steps).values()])

    floor = 0.08
    assert noise_of(None).min() < 0.8 * floor
    assert floor <= noise_of(floor).min() < 1.3 * floor
