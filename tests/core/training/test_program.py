"""What programs compute: the objective written out with dense matrices, the variants against each
other, float32 rows against float64 ones."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from dlmexp.core.estimators import UPS, Exact, Quadrature
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.gp.posterior import marginals, projection
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.parameters import constrain, unconstrain, unsoftplus
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.step import step
from tests.support.small_programs import (
    PROGRAMS,
    M,
    held,
    in_float32,
    perturbed,
    program,
    trained,
    value_of,
)

EYE = torch.eye(M, dtype=torch.float64)


def test_initial_values():
    made = program(index=(0, 1, 1), likelihood="gaussian")
    values = constrain(made.initial(), made.parameters)
    assert torch.equal(values["Z"], made.data.X[:, :M][made.data.split_index])
    for name, expected in {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "m": 0.0}.items():
        torch.testing.assert_close(
            values[name], torch.full_like(values[name], expected), rtol=1e-12, atol=0
        )
    assert torch.equal(values["L"], EYE.expand(3, M, M))
    assert "mean" not in values
    assert constrain(program().initial(), made.parameters)["mean"].tolist() == [0, 0, 0]


def _kernel(a, b, hyper):
    return hyper["outputscale"] * torch.exp(
        -0.5 * torch.cdist(a, b).square() / hyper["lengthscale"] ** 2
    )


def _dense(made, values, i):
    """The log-loss objective of cell i by dense solves; entries above the diagonal of L do not
    count."""
    c = {name: value[i] for name, value in constrain(values, made.parameters).items()}
    X, y = made.data.X[made.data.split_index[i]], made.data.y[made.data.split_index[i]]
    L = values["L"][i].tril()
    Kuu = _kernel(c["Z"], c["Z"], c) + FIRST_JITTER * c["outputscale"] * EYE
    Luu, Kuf = torch.linalg.cholesky(Kuu), _kernel(c["Z"], X, c)
    m, S = (Luu @ c["m"], Luu @ L @ L.T @ Luu.T) if made.model.whitened else (c["m"], L @ L.T)
    W = torch.linalg.solve(Kuu, Kuf)
    mu, v = c["mean"] + W.T @ m, c["outputscale"] - (Kuf * W).sum(0) + (W * (S @ W)).sum(0)
    loss = -torch.special.log_ndtr((2 * y - 1) * mu / (1 + v).sqrt()).mean()
    q, prior = (
        torch.distributions.MultivariateNormal(*each)
        for each in ((m, S), (torch.zeros_like(m), Kuu))
    )
    return loss + made.beta[i] * torch.distributions.kl_divergence(q, prior) / made.n


@pytest.mark.parametrize("whitened", [True, False])
def test_objective_written_out(whitened):
    made = program(index=(0, 1, 1), whitened=whitened)
    values = perturbed(made.initial(), 0.1)
    value = value_of(made, values)
    expected = torch.stack([_dense(made, values, i) for i in range(3)])
    torch.testing.assert_close(value.per_row, expected, rtol=1e-9, atol=1e-12)
    assert value.ok.all()
    assert value.acceptance is None


@pytest.mark.parametrize("likelihood", ["probit", "logistic"])
def test_a_larger_outputscale_always_helps_log_dlm_that_classifies_all_rows_right(likelihood):
    """What `Notes.binary` says: with s times c^2 and the mean times c, f is c times
    as large, and KL is what it was."""
    made = program(betas=(1.0,), index=(0,), likelihood=likelihood)
    values = made.initial()
    values |= perturbed({"m": values["m"]}, 1.0) | {"mean": torch.full_like(values["mean"], 0.3)}
    hyper, (m, L) = made.hyperparameters(values), made.q(values)
    jitter = torch.full_like(made.beta, FIRST_JITTER)
    mu, _ = marginals(
        projection(made.model.kernel, hyper, made.data.X, jitter), hyper["mean"], m, L
    )
    right = replace(made, data=replace(made.data, y=(mu > 0).double()))

    def objective(c):
        scaled = {
            **values,
            "mean": c * values["mean"],
            "outputscale": unsoftplus(c**2 * hyper["outputscale"]),
        }
        return float(value_of(right, scaled).per_row)

    found = [objective(c) for c in (1.0, 2.0, 4.0, 8.0, 16.0)]
    assert all(later < earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize(("objective", "unbounded"), [("log_dlm", True), ("elbo", False)])
def test_log_dlm_for_regression_falls_without_bound_below_beta_1(objective, unbounded):
    """What `Notes.regression_below_one` says. With Z at M training rows, q(u) = N(y, e^2 I)
    and noise e^2, each of these rows adds log e to the loss, and beta KL adds -beta M log e:
    together (1 - beta) M log e. The ELBO divides the variances of the other rows by the noise, and
    rises."""
    made = program(
        betas=(0.25, 1.0, 4.0), likelihood="gaussian", objective=objective, whitened=False
    )
    X, y = (part[made.data.split_index][:, :M].clone() for part in (made.data.X, made.data.y))
    found = []
    for e in (1e-3, 1e-4):
        noise = unsoftplus(torch.full((3,), e**2, dtype=torch.float64))
        values = made.initial() | {"Z": X, "m": y, "L": e * EYE.repeat(3, 1, 1), "noise": noise}
        found.append(value_of(made, values, jitter=1e-15).per_row)
    change = (found[1] - found[0]).detach()
    if unbounded:
        expected = (1 - made.beta) * M * math.log(0.1) / made.n
        torch.testing.assert_close(change, expected, rtol=0.02, atol=2e-3)
    else:
        assert (change > 0).all()


FIVE = {"betas": (5.0, 0.5, 7.0, 1.0, 0.1), "index": (0, 0, 1, 1, 1)}


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("minibatch", [None, 10])
def test_fixed_equals_joint_with_the_same_hyperparameters(whitened, minibatch):
    fixed, joint = (
        program(kind, **FIVE, whitened=whitened, minibatch=minibatch) for kind in ("fixed", "joint")
    )
    q = perturbed(fixed.initial(), 0.2)
    hyper = {
        name: value[fixed.data.split_index]
        for name, value in unconstrain(held(2), joint.parameters).items()
    }
    everything = {**hyper, **q}
    del everything["noise"]
    ours, theirs = value_of(fixed, q, 4), value_of(joint, everything, 4)
    torch.testing.assert_close(ours.per_row, theirs.per_row, rtol=1e-11, atol=1e-12)
    jitter = torch.full_like(fixed.beta, FIRST_JITTER)
    for mine, other in zip(
        fixed.posterior(q, jitter)[1:3], joint.posterior(everything, jitter)[1:3], strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)


def test_the_jitter_that_fixed_hyperparameters_need_is_found_once_for_all():
    """Inputs so far from the origin that rounding makes the kernel matrix indefinite by more than
    1e-6."""
    fixed = program("fixed", **FIVE)
    assert isinstance(fixed, Fixed)
    made = replace(fixed, hyper=fixed.hyper | {"Z": fixed.hyper["Z"] * 1e-3 + 2e5})
    assert (made.jitter > FIRST_JITTER).all()
    value = value_of(made, made.initial())
    assert value.ok.all()
    assert value.per_row.isfinite().all()


@pytest.mark.parametrize("kind", ["joint", "fixed"])
def test_minibatch_objectives_average_to_the_whole_one(kind):
    """30 rows in batches of 10: an epoch is three steps and every row is in exactly one of them."""
    whole, parts = program(kind), program(kind, minibatch=10)
    values = perturbed(whole.initial(), 0.3)
    seen = [value_of(parts, values, iteration).per_row for iteration in range(3)]
    torch.testing.assert_close(
        torch.stack(seen).mean(0), value_of(whole, values).per_row, rtol=1e-12, atol=1e-12
    )


def test_only_the_rejection_sampler_can_not_be_captured():
    assert all(program(estimator=each).capturable for each in (Exact(), UPS(2)))
    assert not program(estimator=UPS(2, "rejection")).capturable


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "objective"), [("joint", "log_dlm"), ("collapsed", "fitc")])
def test_noise_that_would_fall_below_stays_above(kind, objective):
    def noise_of(floor):
        made = program(
            kind,
            betas=(1.0, 0.5, 0.1),
            likelihood="gaussian",
            objective=objective,
            noise_floor=floor,
        )
        without_noise = torch.sin(made.data.X[..., 0])
        made = replace(made, data=replace(made.data, y=without_noise))
        ends = trained(made, Settings(lr=0.2, iterations=50, window=None)).values()
        return np.array([float(finished.hyperparameters["noise"]) for finished in ends])

    floor = 0.08
    assert noise_of(None).min() < 0.8 * floor
    assert floor <= noise_of(floor).min() < 1.3 * floor


ARD = {"likelihood": "gaussian", "ard": True, "kernel": "matern52"}
STUDENT = {"likelihood": "student_t", "estimator": Quadrature(8)}
CASES = {
    kind: PROGRAMS[kind]
    for kind in ("joint", "ups", "counts", "ups of counts", "regression", "elbo", "power EP")
}
CASES |= {"fixed": PROGRAMS["fixed"], "ARD, Matern": ARD, "Student's t": STUDENT}
SAMPLED = ("gaussian", "poisson_softplus", "logistic", "student_t")
CASES |= {
    f"ups, {likelihood}": {"estimator": UPS(3), "likelihood": likelihood} for likelihood in SAMPLED
}
SETTINGS = Settings(lr=0.05, iterations=12, window=None, epsilon=1e-6)


def _gradients(made, values):
    """Objectives and their gradients by name."""
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    value = value_of(made, leaves)
    assert value.ok.all()
    gradients = torch.autograd.grad(
        value.per_row.sum(), list(leaves.values()), materialize_grads=True
    )
    return value.per_row.detach(), dict(zip(leaves, gradients, strict=True))


@pytest.mark.parametrize("kind", ["joint", "counts", "regression"])
def test_inducing_inputs_have_no_gradient_at_the_start(kind):
    """Where q is the prior. Adam divides a gradient by its own size, and would make a step of
    rounding errors."""
    made = in_float32(program(**PROGRAMS[kind], n=31))
    assert not _gradients(made, made.initial())[1]["Z"].any()


@pytest.mark.parametrize("kind", CASES)
def test_objective_and_gradient_are_those_of_float64(kind):
    wide = program(**CASES[kind], n=31)  # no other dimension is as long
    state = State.fresh(wide.initial(), SETTINGS)
    for _ in range(8):  # away from the start, where some gradients are zero
        step(wide, state, SETTINGS)
    (objective, gradients), (rounded, theirs) = (
        _gradients(made, state.values) for made in (wide, in_float32(wide))
    )
    torch.testing.assert_close(rounded, objective, rtol=0, atol=2e-6)
    for name, expected in gradients.items():
        size = max(float(expected.abs().max()), 1e-3)
        torch.testing.assert_close(theirs[name], expected, rtol=0, atol=1e-3 * size)
