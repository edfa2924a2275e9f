"""Leave-one-out predictions of closed forms against refits of q without each row."""

import pytest
import torch

from dlmexp.core.gp.collapsed import Problem
from dlmexp.core.gp.kernels import rbf
from dlmexp.core.gp.leave_one_out import left_out_marginals
from dlmexp.core.gp.posterior import marginals, projection
from dlmexp.core.objectives import OBJECTIVES

BETA = torch.tensor([0.3, 1.0], dtype=torch.float64)
ROWS = 12
CLOSED = [name for name in OBJECTIVES if OBJECTIVES[name].row_noise is not None]


def problem(c, X, y, rows_at_once=None):
    c = c | {"conditional_scale": torch.tensor([0.7, 1.3], dtype=torch.float64)}
    return Problem(rbf, c, X, y, c["jitter"], rows_at_once)


def left_out(objective, of_all, beta=BETA):
    pieces = list(left_out_marginals(of_all, beta, objective.row_noise))
    return [torch.cat(parts, -1) for parts in zip(*pieces, strict=True)]


def refitted(objective, c, beta=BETA):
    """Mean and variance of f at every row, under the q of all others."""
    means = []
    variances = []
    for i in range(ROWS):
        others = [j for j in range(ROWS) if j != i]
        Z = c["X"][:, others] if objective.all_rows_inducing else c["Z"]
        without = problem(c | {"Z": Z}, c["X"][:, others], c["y"][:, others])
        q = objective.collapsed(without, beta)
        p = projection(rbf, without.hyper, c["X"][:, [i]], c["jitter"])
        mu, v = marginals(p, c["mean"], q.m, q.L)
        means.append(mu)
        variances.append(v)
    return torch.cat(means, -1), torch.cat(variances, -1)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("rows_at_once", [None, 5])
def test_predictions_equal_those_of_refits_without_each_row(name, rows_at_once, cells):
    objective = OBJECTIVES[name].with_options({})
    c = cells(2, 4, ROWS, 2)
    if objective.all_rows_inducing:
        c["Z"] = c["X"]
    mu, v, y = left_out(objective, problem(c, c["X"], c["y"], rows_at_once))
    expected_mu, expected_v = refitted(objective, c)
    # The exact process has a jitter, which closed form and refit put in different places.
    tolerance = 1e-4 if objective.all_rows_inducing else 1e-8
    torch.testing.assert_close(mu, expected_mu, rtol=tolerance, atol=tolerance)
    assert torch.equal(y, c["y"])
    if objective.predicts_variance:
        torch.testing.assert_close(v, expected_v, rtol=tolerance, atol=tolerance)


def test_options_of_the_objective_count(cells):
    c = cells(2, 4, ROWS, 2)
    objective = OBJECTIVES["t_pep"].with_options({"alpha": 0.9})
    mu, _, _ = left_out(objective, problem(c, c["X"], c["y"]))
    torch.testing.assert_close(mu, refitted(objective, c)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["elbo", "sq_dlm", "power_ep"])
def test_predictions_are_finite_without_a_penalty(name, cells):
    c = cells(2, 4, ROWS, 2)
    mu, v, _ = left_out(OBJECTIVES[name], problem(c, c["X"], c["y"]), torch.zeros_like(BETA))
    assert mu.isfinite().all()
    assert v.isfinite().all()


def test_predictions_in_float32_are_those_in_float64(cells):
    c = cells(2, 4, ROWS, 2)
    of_rows = problem(c, c["X"].float(), c["y"].float())
    mu, v, _ = left_out(OBJECTIVES["elbo"], of_rows)
    expected_mu, expected_v, _ = left_out(OBJECTIVES["elbo"], problem(c, c["X"], c["y"]))
    assert mu.dtype == torch.float32
    torch.testing.assert_close(mu.double(), expected_mu, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(v.double(), expected_v, rtol=1e-3, atol=1e-3)
