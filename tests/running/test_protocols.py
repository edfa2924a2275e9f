"""Protocols in training: where cells start, how they step, `released` against a plain loop of its own, and batches
against their cells one by one."""

import dataclasses
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
from dlmexp.training.program import Minibatches, Program
from dlmexp.training.state import Settings
from dlmexp.training.train import Training
from tests.support.engines import Sweep
from tests.support.protocol_table import SELECTIONS, TABLE, betas
from tests.support.small_programs import stopped_cells

CPU = select_target("cpu", "float64")
ROWS, N, M, STEPS = 300, 60, 8, 50


def drawn(spec, rows):
    """Data of a dataset's task, of so many rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=rows)
    return Dataset(
        spec.name, cast(Task, spec.task), X, f if spec.task == "regression" else (f > 0).astype(float), "sum"
    )


def planned(dataset, protocol, *words):
    """The cells of every method by name, and their splits."""
    cfg = compose([
        f"dataset={dataset}", f"protocol={protocol}", "seeds=[0]", f"sizes=[{N}]", f"dataset.{dataset}.M={M}", *words
    ])  # fmt: skip
    spec = cfg.dataset[dataset]
    data = drawn(spec, ROWS)
    cells = {some.method: some.cells for some in grid.Grid(cfg, dataset, spec, data).candidates()}
    return cells, prepare(data, spec, 0, N)


def made(cells, split, base=None):
    return program(cells, lambda _: split, lambda _: base or {}, CPU)


DATA = {  # kind of data -> dataset, rows, and sizes on both sides of where minibatches begin
    "regression": ("cadata", 9000, (60, 6001)),
    "binary": ("banana", 100, (40,)),
    "count": ("abalone", 100, (40,)),
    "large": ("airline", 2010, (60, 1001)),
}
METHODS = ["elbo", "beta_elbo", "ppgpr", "joint_log_dlm", "fixed_log_dlm"]
CLOSED = ("elbo", "beta_elbo", "fitc", "joint_sq_dlm", "fixed_sq_dlm")  # over q, in regression


@pytest.mark.parametrize("protocol", TABLE)
@pytest.mark.parametrize("kind", DATA)
def test_every_value_of_the_table_in_trained_cells(kind, protocol, tmp_path, monkeypatch):
    """As they are trained, but that all of them stop after two steps; of each grid of betas its ends."""
    dataset, rows, sizes = DATA[kind]
    methods = [*METHODS, *CLOSED[2:]] if kind == "regression" else METHODS
    how: dict[tuple, Settings] = {}
    made: dict[tuple, Program] = {}

    def two_steps(cell, target):
        how[cell.group] = settings(cell, target)
        return dataclasses.replace(how[cell.group], iterations=2)

    def watched(cells, *rest):
        made[cells[0].group] = program(cells, *rest)
        return made[cells[0].group]

    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("dlmexp.running.trainer.settings", two_steps)
    monkeypatch.setattr("dlmexp.running.trainer.program", watched)
    monkeypatch.setattr("dlmexp.running.sweep.load", lambda spec, root: drawn(spec, rows))
    estimators = "exact,ups" if kind == "count" else "exact"
    sweep = Sweep(tmp_path, [
        f"dataset={dataset}", f"protocol={protocol}", f"method=[{','.join(methods)}]", f"estimator=[{estimators}]",
        "parameterisation=[all]", f"sizes={list(sizes)}", "seeds=[0]", f"M={M}", "device=cpu",
    ])  # fmt: skip
    ends = (cell for some in sweep.candidates for cell in (some.cells[0], some.cells[-1]))
    sweep.cells = list({cell.key: cell for cell in ends}.values())
    records, row = sweep.run(), TABLE[protocol][kind]
    for some in sweep.candidates:
        selects = some.method not in ("elbo", "ppgpr", "fitc")
        grid = betas(protocol, some.cells[0].n) if selects else [None if some.method == "fitc" else 1.0]
        assert [cell.beta for cell in some.cells] == grid
        assert (some.setting.protocol, some.setting.selection) == (protocol, SELECTIONS[protocol])
        for record in (records[some.cells[0].key], records[some.cells[-1].key]):
            cell, group = record.cell, record.cell.group
            check_trained(cell, some.method, kind, row, how.get(group), made[group])
            assert record.result.iterations == (2 if group in how else 0)
    assert {cell.parameterisation for cell in sweep.cells if cell.form == "explicit"} == {*row["parameterisation"]}


def check_trained(cell, method, kind, row, how, made):
    """A cell, the settings it was trained with and the program that was made of it have the values of the table."""
    own = row["by_method"].get(method, {"variant": None, "collapsed": None, "initial": {}})
    closed = kind == "regression" and method in CLOSED and own["collapsed"] is not False
    assert cell.form == ("collapsed" if closed else "explicit")
    assert cell.variant == (own["variant"] or ("fixed" if method.startswith("fixed") else "joint"))
    minibatch = row["minibatch"] if row["minibatch"] and cell.n > row["minibatch"] and not closed else None
    fresh = minibatch is not None and row["minibatch_rows"] == "afresh"
    assert (cell.minibatch, cell.minibatch_rows == "afresh") == (made.model.minibatch, made.model.afresh)
    assert (cell.minibatch, made.model.afresh, cell.epochs) == (minibatch, fresh, row["epochs"])
    assert made.model.whitened == (cell.parameterisation == "whitened")
    if how is None:
        assert closed
        assert cell.variant == "fixed", "nothing is left to train"
        return
    usual = row["minibatch_lr"] if minibatch else row["lr"]
    stops = {"tolerance": row["tolerance"], "criterion": row["criterion"]} if row["window"] else {}
    expected = {
        "lr": row["estimator_lr"].get(cell.estimator, usual), "window": row["window"], "tolerance": None,
        "criterion": "mean", **stops, **{name: row[name] for name in ("final_lr", "decay", "epsilon", "resolution")},
    }  # fmt: skip
    assert {name: getattr(cell, name) for name in expected} == expected
    assert {name: getattr(how, name) for name in expected} == {**expected, "tolerance": expected["tolerance"] or 0.0}
    assert cell.max_iterations == how.iterations == row["max_iterations"]
    values = made.initial()
    if cell.variant == "joint":
        hyper, start = made.hyperparameters(values), {**row["initial"], **own["initial"]}
        for name, value in start.items():
            torch.testing.assert_close(hyper[name], torch.full_like(hyper[name], value))
        assert cell.inducing == row["inducing"]
        X = made.split.X[0]
        assert torch.equal(hyper["Z"][0], X[-M:] if row["inducing"] == "last" else X[:M])
    if not closed:
        assert torch.equal(values["L"][0], torch.eye(M).double()) == made.model.whitened


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


def plain_loop(split, task, beta, start):
    """Fifty steps of Adam on joint log-loss DLM, with dense matrices and torch's own distributions: the objective,
    lengthscale, inducing inputs, and mean of -log p(y*) on the test rows. In regression q is whitened, on binary data
    it is q(u) from the prior."""
    X, y, Xt, yt = (torch.tensor(a) for a in (split.X_train, split.y_train, split.X_test, split.y_test))
    regression, eye = task == "regression", torch.eye(M).double()

    def inverse(value):
        return torch.tensor(math.log(math.expm1(value))).double()

    raw = {"l": inverse(start), "s": inverse(start), "Z": (X[-M:] if regression else X[:M]).clone()}
    raw |= {"noise": inverse(1.0)} if regression else {"mean": torch.tensor(0.0).double()}

    def matrices(inputs):
        l, s = softplus(raw["l"]), softplus(raw["s"])
        Kuu, Kuf = (
            s * torch.exp(-0.5 * ((raw["Z"][:, None] - b[None]) ** 2).sum(-1) / l**2) for b in (raw["Z"], inputs)
        )
        Luu = torch.linalg.cholesky(Kuu + 1e-6 * s * eye)
        return Luu, torch.linalg.solve_triangular(Luu, Kuf, upper=False), s

    def losses(inputs, targets):
        Luu, A, s = matrices(inputs)
        m, L = raw["m"], raw["L"].tril()
        if not regression:
            m, L = torch.linalg.solve(Luu, m), torch.linalg.solve(Luu, L)
        mu, v = raw.get("mean", 0.0) + A.T @ m, s - (A**2).sum(0) + ((L.T @ A) ** 2).sum(0)
        kl = torch.distributions.kl_divergence(
            torch.distributions.MultivariateNormal(m, scale_tril=L), torch.distributions.MultivariateNormal(0 * m, eye)
        )
        if regression:
            return -torch.distributions.Normal(mu, (v + softplus(raw["noise"])).sqrt()).log_prob(targets), kl
        return -torch.special.log_ndtr((2 * targets - 1) * mu / (1 + v).sqrt()), kl

    raw |= {"m": torch.zeros(M).double(), "L": eye.clone() if regression else matrices(X)[0].detach()}
    raw = {name: value.clone().requires_grad_() for name, value in raw.items()}
    adam, objective = torch.optim.Adam(raw.values(), lr=0.1 if regression else 0.01), torch.tensor(0.0)
    for _ in range(STEPS):
        adam.zero_grad()
        each, kl = losses(X, y)
        objective = each.mean() + beta * kl / N
        objective.backward()
        adam.step()
    with torch.no_grad():
        return float(objective), softplus(raw["l"]).numpy(), raw["Z"].numpy(), float(losses(Xt, yt)[0].mean())


@pytest.mark.parametrize(("dataset", "task"), [("cadata", "regression"), ("banana", "binary")])
def test_released_joint_dlm_against_a_plain_loop(dataset, task):
    limits = (f"training.{kind}.max_iterations={STEPS}" for kind in ("regression", "binary"))
    cells, split = planned(dataset, "released", "method=[joint_log_dlm]", *limits, "beta=list", "beta.values=[0.7]")
    how = settings(cells["joint_log_dlm"][0], CPU)
    (trained,) = stopped_cells(Training.start(made(cells["joint_log_dlm"], split), how), how)
    assert (trained.iterations, trained.stopped) == (STEPS, "limit")
    start = 1.0 if task == "regression" else math.log(2)
    objective, lengthscale, Z, nll = plain_loop(split, task, beta=0.7, start=start)
    assert trained.objective[-1] == pytest.approx(objective, abs=1e-6)
    np.testing.assert_allclose(trained.hyperparameters["lengthscale"].squeeze(), lengthscale, atol=1e-6)
    np.testing.assert_allclose(trained.hyperparameters["Z"], Z, atol=1e-6)
    assert trained.metrics["test"]["nll"] == pytest.approx(nll, abs=1e-6)


@pytest.mark.parametrize("method", ["elbo", "beta_elbo", "joint_log_dlm", "joint_sq_dlm"])
@pytest.mark.parametrize("protocol", ["released", "annealed"])
def test_a_batch_is_its_cells_one_by_one(protocol, method):
    words = [f"method=[{method}]", "beta=list", "beta.values=[3,0.5,0]", "training.regression.minibatch=25"]
    if protocol == "annealed":
        words += ["training.regression.decay=15", "training.regression.window=10", "training.regression.minibatch=null"]
    cells, split = planned("cadata", protocol, *words, "training.regression.max_iterations=30")
    how = settings(cells[method][0], CPU)
    together = {f.cell: f for f in stopped_cells(Training.start(made(cells[method], split), how), how)}
    for i, cell in enumerate(cells[method]):
        (alone,) = stopped_cells(Training.start(made((cell,), split), how), how)
        np.testing.assert_allclose(together[i].objective, alone.objective, rtol=1e-7)
        assert together[i].metrics["test"] == pytest.approx(alone.metrics["test"], rel=1e-6)
