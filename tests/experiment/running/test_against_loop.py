"""The batched engine against the plainest thing that could be: one cell at a time, dense matrices,
torch's own Adam."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from dlmexp.cli import main
from dlmexp.core.likelihoods import Gaussian, Poisson, Probit
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import prepare
from dlmexp.experiment.records.store import Store

pytestmark = pytest.mark.slow

M, WINDOW, TOLERANCE, LIMIT = (
    8,
    15,
    5e-3,
    60,
)  # rounding grows with every step at lr 0.1: not too many of them
JOBS = {  # dataset: kind of data, cells of a seed, and words
    "banana": ("binary", 7, ["method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]", "sizes=[50]"]),
    "abalone": ("count", 5, ["method=[elbo,joint_log_dlm,fixed_log_dlm]", "sizes=[50]"]),
    "cadata": (
        "regression",
        12,
        [
            "method=[elbo,beta_elbo,fitc,joint_log_dlm,fixed_log_dlm,joint_sq_dlm,fixed_sq_dlm]",
            "sizes=[60]",
        ],
    ),
}


def loop(cell, data, base):
    """A cell's metrics, iterations and hyperparameters."""
    X, y, X_test, y_test = (
        torch.tensor(a) for a in (data.X_train, data.y_train, data.X_test, data.y_test)
    )
    n, beta, objective = cell.n, cell.beta, cell.objective
    one = {"l": torch.tensor([1.0]), "s": torch.tensor(1.0), "noise": torch.tensor(0.1)}
    raw = {name: torch.log(torch.expm1(value.double())) for name, value in one.items()}
    raw |= {"mean": torch.tensor(0.0).double(), "Z": X[:M].clone()} if base is None else base
    q = {"m": torch.zeros(M).double(), "L": torch.eye(M).double()}
    learned = (
        list(q)
        if base
        else [*raw, *q]
        if cell.mean == "constant"
        else [k for k in (*raw, *q) if k != "mean"]
    )
    raw = {name: value.clone().requires_grad_(name in learned) for name, value in (raw | q).items()}

    def meaning():
        h = {
            k: softplus(v) if k in ("l", "s", "noise") else v.tril() if k == "L" else v
            for k, v in raw.items()
        }
        return h, {"gaussian": lambda: Gaussian(h["noise"]), "probit": Probit, "poisson": Poisson}[
            cell.likelihood
        ]()

    def kernel(a, b, h):
        return h["s"] * (-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * h["l"] ** 2)).exp()

    def A(X, h):
        Kuu = kernel(h["Z"], h["Z"], h) + 1e-6 * h["s"] * torch.eye(M).double()
        return torch.linalg.solve_triangular(
            torch.linalg.cholesky(Kuu), kernel(h["Z"], X, h), upper=False
        )

    def marginals(X, h, m, L):
        a = A(X, h)
        return h["mean"] + a.T @ m, h["s"] - (a**2).sum(0) + ((L.T @ a) ** 2).sum(0)

    def loss():
        h, likelihood = meaning()
        if cell.form == "collapsed":
            a, eye = A(X, h), torch.eye(n).double()
            Q, t = a.T @ a, h["noise"] * (beta or 1.0)
            if objective == "sq_dlm":
                return (
                    0.5
                    * (
                        y @ y
                        - y
                        @ a.T
                        @ torch.linalg.solve(a @ a.T + beta * torch.eye(M).double(), a @ y)
                    )
                    / n
                )
            noise = (
                t * eye if objective == "elbo" else torch.diag(h["s"] - Q.diagonal() + h["noise"])
            )
            log_p = torch.distributions.MultivariateNormal(
                torch.zeros(n).double(), Q + noise
            ).log_prob(y)
            if objective == "fitc":
                return -log_p / n
            rest = (h["s"] * n - Q.trace()) / (2 * t) - n / 2 * (2 * math.pi * t).log()
            return (n / 2 * (2 * math.pi * h["noise"]).log() + beta * (-log_p + rest)) / n
        mu, v = marginals(X, h, h["m"], h["L"])
        row = (likelihood.elbo_loss if objective == "elbo" else likelihood.log_loss)(mu, v, y)
        kl = 0.5 * (h["m"] @ h["m"] + (h["L"] ** 2).sum() - M) - h["L"].diagonal().abs().log().sum()
        return row.mean() + beta * kl / n

    adam, seen = torch.optim.Adam([raw[k] for k in learned], lr=0.1), []
    solved = base is not None and objective == "sq_dlm"
    while not solved and len(seen) < LIMIT:
        adam.zero_grad()
        value = loss()
        value.backward()
        adam.step()
        seen.append(value.item())
        if len(seen) >= WINDOW and max(seen[-WINDOW:]) - min(seen[-WINDOW:]) <= TOLERANCE:
            break
    with torch.no_grad():
        h, likelihood = meaning()
        m, L = h["m"], h["L"]
        if cell.form == "collapsed":
            a = A(X, h)
            D = {"elbo": h["noise"] * (beta or 1), "sq_dlm": torch.tensor(beta or 0)}.get(objective)
            D = h["s"] - (a**2).sum(0) + h["noise"] if D is None else D.expand(n)
            S = torch.linalg.inv(torch.eye(M).double() + (a / D) @ a.T)
            m, L = S @ (a / D) @ y, torch.linalg.cholesky(S)
        mu, v = marginals(X_test, h, m, L)
        metrics = (
            {}
            if objective == "sq_dlm"
            else {"nll": likelihood.log_loss(mu, v, y_test).mean().item()}
        )
        mean = likelihood.mean(mu, v)
        if cell.task == "regression":
            metrics["mse"] = ((mean - y_test) ** 2).mean().item()
        elif cell.task == "binary":
            metrics["error"] = ((mean > 0.5) != (y_test > 0.5)).double().mean().item()
        else:
            metrics["mre"] = ((mean - y_test).abs() / y_test.clamp(min=1)).mean().item()
    return metrics, len(seen), {k: raw[k].detach() for k in ("l", "s", "noise", "mean", "Z")}


@pytest.mark.parametrize("dataset", JOBS)
def test_batched_equals_one_by_one(dataset, data_root, here):
    kind, cells, words = JOBS[dataset]
    limits = {"window": WINDOW, "tolerance": TOLERANCE, "max_iterations": LIMIT}
    words += [f"training.{kind}.{name}={value}" for name, value in limits.items()]
    words += [
        f"dataset={dataset}",
        f"dataset.{dataset}.M={M}",
        "seeds=[0,1]",
        "beta=list",
        "beta.values=[8,0.3]",
    ]
    assert main(["run", *words, f"data_root={data_root}", "device=cpu"]) == 0
    records = sorted(Store(here / "results").own(), key=lambda record: record.cell.base is not None)
    assert len(records) == 2 * cells
    spec = read_spec(dataset)
    data, bases, stops = load(spec, data_root), {}, set()
    for record in records:
        cell = record.cell
        base = bases.get(cell.base)
        assert (base is None) == (cell.variant == "joint")
        metrics, iterations, bases[record.key] = loop(
            cell, prepare(data, spec, cell.seed, cell.n), base
        )
        assert record.result.iterations == iterations
        same = {
            name: record.result.test[name] for name in metrics
        }  # it has calibration scores as well
        assert same == pytest.approx(metrics, rel=1e-6, abs=1e-6), cell
        stops.add(record.result.stopped)
    assert "limit" in stops
    assert ("converged" in stops) == (dataset != "abalone")
