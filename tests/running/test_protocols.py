"""Protocols in training: where cells start, how they step, and `released` against a plain loop of its own."""

import math
from typing import cast

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from dlmexp.data.dataset import Dataset
from dlmexp.data.spec import Task
from dlmexp.data.splits import prepare
from dlmexp.plan import grid
from dlmexp.plan.compose import compose
from dlmexp.running.device import select_target
from dlmexp.running.programs import program, settings
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from dlmexp.training.rows import Minibatches
from dlmexp.training.solve import solve
from dlmexp.training.train import Training
from tests.support.small_programs import stopped_cells

CPU = select_target("cpu", "float64")
ROWS, N, M, STEPS = 300, 60, 8, 50


def planned(dataset, protocol, *words):
    """The cells of every method by name, and their splits."""
    cfg = compose([
        f"dataset={dataset}", f"protocol={protocol}", "seeds=[0]", f"sizes=[{N}]", f"dataset.{dataset}.M={M}", *words
    ])  # fmt: skip
    spec = cfg.dataset[dataset]
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=ROWS)
    data = Dataset(dataset, cast(Task, spec.task), X, f if spec.task == "regression" else (f > 0).astype(float), "sum")
    cells = {some.method: some.cells for some in grid.candidates(cfg, spec, data)}
    return cells, prepare(data, spec, 0, N)


def made(cells, split, base=None):
    return program(cells, lambda _: split, lambda _: base or {}, CPU)


@pytest.mark.parametrize("protocol", ["paper", "released", "converged"])
def test_where_regression_starts_and_how_it_steps(protocol):
    cells, split = planned("cadata", protocol, "method=[elbo,beta_elbo,joint_log_dlm,joint_sq_dlm]")
    rows = torch.tensor(split.X_train[-M:] if protocol == "released" else split.X_train[:M])
    for method, some in cells.items():
        start = made(some[:2], split)
        explicit = method == "joint_log_dlm" or (protocol == "released" and method == "beta_elbo")
        assert isinstance(start, Joint if explicit else Collapsed)
        hyper = start.hyperparameters(start.initial())
        for name in ("lengthscale", "outputscale"):
            torch.testing.assert_close(hyper[name], torch.ones_like(hyper[name]))
        noise = 1.0 if protocol == "released" and method in ("beta_elbo", "joint_log_dlm") else 0.1
        torch.testing.assert_close(hyper["noise"], torch.full_like(hyper["noise"], noise))
        assert torch.equal(hyper["Z"][0], rows)
        how = settings(some[0], CPU)
        assert (how.lr, how.criterion) == (0.1, {"paper": "mean", "released": "sum", "converged": "relative"}[protocol])
        assert how.iterations == (20_000 if protocol == "converged" else 5000)
        assert how.final_lr == (1e-4 if protocol == "converged" else None)
        assert (how.epsilon, how.resolution) == ((1e-6, 1 / 256) if protocol == "converged" else (1e-8, None))
        assert protocol == "converged" or how.window == 50


@pytest.mark.parametrize("protocol", ["paper", "released", "converged"])
@pytest.mark.parametrize("dataset", ["banana", "abalone"])
def test_where_other_data_starts_and_how_it_steps(dataset, protocol):
    cells, split = planned(dataset, protocol, "method=[elbo,joint_log_dlm]")
    for some in cells.values():
        start = made(some[:2], split)
        values = start.initial()
        hyper = start.hyperparameters(values)
        expected = math.log(2) if protocol == "released" else 1.0
        assert hyper["lengthscale"][0].tolist() == [pytest.approx(expected)]
        assert float(hyper["outputscale"][0]) == pytest.approx(expected)
        assert torch.equal(hyper["Z"][0], torch.tensor(split.X_train[:M]))
        assert start.model.whitened == (protocol != "released")
        assert torch.equal(values["L"][0], torch.eye(M).double()) == start.model.whitened
        how = settings(some[0], CPU)
        assert how.lr == (0.01 if protocol == "released" else 0.1)
        assert protocol == "converged" or (how.window, how.iterations, how.criterion) == (20, 3000, "mean")


def test_minibatches_of_released_are_drawn_afresh_without_replacement():
    words = ["method=[beta_elbo,joint_log_dlm]", "training.regression.minibatch=20"]
    for some in planned("cadata", "released", *words)[0].values():
        assert (some[0].minibatch, some[0].lr) == (20, 0.1)
    cells, split = planned("cadata", "released", *words)
    start = made(cells["joint_log_dlm"][:1], split)
    drawn = Minibatches(start.split, 20, afresh=True)
    rows = [drawn.rows(i)[0].tolist() for i in range(30)]
    assert all(len(set(each)) == 20 for each in rows)
    assert len({row for each in rows[:3] for row in each}) < 60, "three draws are no epoch"
    assert {row for each in rows for row in each} == set(range(N))
    start.load_minibatch(7)
    assert start._rows is not None
    assert start._rows[0].tolist() == rows[7]


def after_fifty_steps(dataset, method, base=None):
    words = [f"method=[{method}]", *(f"training.{kind}.max_iterations={STEPS}" for kind in ("regression", "binary"))]
    cells, split = planned(dataset, "released", *words, "beta=list", "beta.values=[0.7]")
    start = made(cells[method], split, base)
    if isinstance(start, Fixed):
        (found,) = solve(start)
    else:
        how = settings(cells[method][0], CPU)
        (found,) = stopped_cells(Training.start(start, how), how)
        assert (found.iterations, found.stopped) == (STEPS, "limit")
    return found, split


def plainly(split, task, objective, noise, beta, start=1.0):
    """Fifty steps of Adam on the objective, with dense matrices and torch's own distributions; hyperparameters, and the
    mean of -log p(y*) on the test rows. In regression q is whitened, on binary data it is q(u) from the prior."""
    X, y, Xt, yt = (torch.tensor(a) for a in (split.X_train, split.y_train, split.X_test, split.y_test))

    def inverse(value):
        return torch.tensor(math.log(math.expm1(value))).double()

    regression, eye = task == "regression", torch.eye(M).double()
    raw = {"l": inverse(start), "s": inverse(start), "Z": (X[-M:] if regression else X[:M]).clone()}
    raw |= {"noise": inverse(noise)} if regression else {"mean": torch.tensor(0.0).double()}

    def matrices(inputs):
        l, s = softplus(raw["l"]), softplus(raw["s"])
        Kuu, Kuf = (
            s * torch.exp(-0.5 * ((raw["Z"][:, None] - b[None]) ** 2).sum(-1) / l**2) for b in (raw["Z"], inputs)
        )
        Luu = torch.linalg.cholesky(Kuu + 1e-6 * s * eye)
        return Luu, torch.linalg.solve_triangular(Luu, Kuf, upper=False), s

    def predictive(inputs):
        Luu, A, s = matrices(inputs)
        m, L = raw["m"], raw["L"].tril()
        if not regression:
            m, L = torch.linalg.solve(Luu, m), torch.linalg.solve(Luu, L)
        v = s - (A**2).sum(0) + ((L.T @ A) ** 2).sum(0)
        kl = torch.distributions.kl_divergence(
            torch.distributions.MultivariateNormal(m, scale_tril=L), torch.distributions.MultivariateNormal(0 * m, eye)
        )
        return raw.get("mean", 0.0) + A.T @ m, v, kl

    def log_loss(mu, v, target):
        if regression:
            return -torch.distributions.Normal(mu, (v + softplus(raw["noise"])).sqrt()).log_prob(target)
        return -torch.special.log_ndtr((2 * target - 1) * mu / (1 + v).sqrt())

    def loss():
        if objective == "elbo":  # Titsias' bound at beta = 1
            _, A, s = matrices(X)
            sigma2 = softplus(raw["noise"])
            evidence = torch.distributions.MultivariateNormal(
                torch.zeros(N).double(), A.T @ A + sigma2 * torch.eye(N).double()
            ).log_prob(y)
            return (-evidence + (N * s - (A**2).sum()) / (2 * sigma2)) / N
        mu, v, kl = predictive(X)
        return log_loss(mu, v, y).mean() + beta * kl / N

    if objective != "elbo":
        raw |= {"m": torch.zeros(M).double(), "L": eye.clone() if regression else matrices(X)[0].detach()}
    raw = {name: value.clone().requires_grad_() for name, value in raw.items()}
    adam = torch.optim.Adam(raw.values(), lr=0.1 if regression else 0.01)
    last = loss()
    for _ in range(STEPS):
        adam.zero_grad()
        last = loss()
        last.backward()
        adam.step()
    with torch.no_grad():
        hyper = {name: softplus(raw[name]).numpy() for name in ("l", "s", "noise") if name in raw}
        if objective == "elbo":
            return float(last.detach()), hyper, raw["Z"].detach(), None
        mu, v, _ = predictive(Xt)
        return float(last.detach()), hyper, raw["Z"].detach(), float(log_loss(mu, v, yt).mean())


def test_released_elbo_and_fitc_against_a_plain_loop():
    found, split = after_fifty_steps("cadata", "elbo")
    objective, hyper, Z, _ = plainly(split, "regression", "elbo", noise=0.1, beta=1.0)
    assert found.objective[-1] == pytest.approx(objective, abs=1e-6)
    theirs = {"lengthscale": hyper["l"], "outputscale": hyper["s"], "noise": hyper["noise"]}
    for name, value in theirs.items():
        np.testing.assert_allclose(found.hyperparameters[name].squeeze(), value, atol=1e-6)
    np.testing.assert_allclose(found.hyperparameters["Z"], Z, atol=1e-6)
    fitc, _ = after_fifty_steps("cadata", "fitc", {**found.hyperparameters, "mean": np.array(0.0)})

    def k(a, b):
        return hyper["s"] * np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / hyper["l"] ** 2)

    Kuu = k(Z.numpy(), Z.numpy()) + 1e-6 * hyper["s"] * np.eye(M)

    def q(a, b):
        return k(a, Z.numpy()) @ np.linalg.solve(Kuu, k(Z.numpy(), b))

    X, Xt = split.X_train, split.X_test
    C = q(X, X) + np.diag(hyper["s"] - np.diag(q(X, X)) + hyper["noise"])
    mu = q(Xt, X) @ np.linalg.solve(C, split.y_train)
    v = hyper["s"] - np.einsum("ij,ji->i", q(Xt, X), np.linalg.solve(C, q(X, Xt))) + hyper["noise"]
    nll = 0.5 * np.log(2 * np.pi * v) + 0.5 * (split.y_test - mu) ** 2 / v
    assert fitc.metrics["test"]["nll"] == pytest.approx(nll.mean(), abs=1e-6)
    assert fitc.stopped == "closed form"
    evidence = 0.5 * (split.y_train @ np.linalg.solve(C, split.y_train) + np.linalg.slogdet(2 * np.pi * C)[1])
    assert fitc.objective[-1] == pytest.approx(evidence / N, abs=1e-6)


@pytest.mark.parametrize(("dataset", "task"), [("cadata", "regression"), ("banana", "binary")])
def test_released_joint_dlm_against_a_plain_loop(dataset, task):
    found, split = after_fifty_steps(dataset, "joint_log_dlm")
    start = 1.0 if task == "regression" else math.log(2)
    objective, hyper, Z, nll = plainly(split, task, "log_dlm", noise=1.0, beta=0.7, start=start)
    assert found.objective[-1] == pytest.approx(objective, abs=1e-6)
    np.testing.assert_allclose(found.hyperparameters["lengthscale"].squeeze(), hyper["l"], atol=1e-6)
    np.testing.assert_allclose(found.hyperparameters["Z"], Z, atol=1e-6)
    assert found.metrics["test"]["nll"] == pytest.approx(nll, abs=1e-6)


@pytest.mark.parametrize("method", ["elbo", "beta_elbo", "joint_log_dlm", "joint_sq_dlm"])
@pytest.mark.parametrize("protocol", ["released", "converged"])
def test_a_batch_is_its_cells_one_by_one(protocol, method):
    words = [f"method=[{method}]", "beta=list", "beta.values=[3,0.5,0]", "training.regression.minibatch=25"]
    if protocol == "converged":
        words += ["training.regression.decay=15", "training.regression.window=10", "training.regression.minibatch=null"]
    cells, split = planned("cadata", protocol, *words, "training.regression.max_iterations=30")
    how = settings(cells[method][0], CPU)
    together = {f.cell: f for f in stopped_cells(Training.start(made(cells[method], split), how), how)}
    for i, cell in enumerate(cells[method]):
        (alone,) = stopped_cells(Training.start(made((cell,), split), how), how)
        np.testing.assert_allclose(together[i].objective, alone.objective, rtol=1e-7)
        assert together[i].metrics["test"] == pytest.approx(alone.metrics["test"], rel=1e-6)
