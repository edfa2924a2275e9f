"""Solutions with held hyperparameters, against the normal equations."""

from dataclasses import replace

import pytest
import torch

from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.solve import solve
from tests.support.small_programs import M, program

EYE = torch.eye(M, dtype=torch.float64)


def _kernel(a, b, hyper):
    return hyper["outputscale"] * torch.exp(
        -0.5 * torch.cdist(a, b).square() / hyper["lengthscale"] ** 2
    )


@pytest.mark.parametrize("path", [True, False])
def test_solutions_against_the_normal_equations(path):
    betas, index = (10.0, 1.0, 0.1, 1.0), (0, 0, 1, 1)
    made = program("fixed", betas, index, likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    if not path:
        objective = replace(made.loss.objective, path=None)
        made = replace(made, loss=replace(made.loss, objective=objective))
    X_test, y_test = made.data.parts["test"]
    for i, (finished, beta, s) in enumerate(zip(solve(made), betas, index, strict=True)):
        h = {name: value[s] for name, value in made.hyper.items()}
        Luu = torch.linalg.cholesky(
            _kernel(h["Z"], h["Z"], h) + FIRST_JITTER * h["outputscale"] * EYE
        )
        A, A_test = (
            torch.linalg.solve(Luu, _kernel(h["Z"], X, h)) for X in (made.data.X[s], X_test[s])
        )
        y = made.data.y[s] - h["mean"]
        m = torch.linalg.solve(A @ A.T + beta * EYE, A @ y)
        objective = 0.5 * (y - A.T @ m).square().sum() + 0.5 * beta * m @ m
        mse = (h["mean"] + A_test.T @ m - y_test[s]).square().mean()
        assert finished.objective[-1] == pytest.approx(float(objective) / made.n, rel=1e-9)
        assert finished.metrics["test"] == pytest.approx({"mse": float(mse)}, rel=1e-8)
        assert (finished.cell, finished.stopped, finished.failed) == (i, "closed form", False)
