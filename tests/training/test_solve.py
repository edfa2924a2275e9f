"""Fixed square loss: every cell's solution against its own normal equations."""

import numpy as np
import pytest

from dlmexp.training import variants as module
from dlmexp.training.variants import Fixed, solve
from tests.support.small_programs import M, program


def test_against_the_normal_equations():
    betas, index = (10.0, 1.0, 0.1, 3.0), (0, 0, 1, 1)
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


def test_equal_betas_of_different_repetitions_are_told_apart():
    made = program("fixed", (1.0, 1.0), (0, 1), likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    first, second = solve(made)
    assert first.metrics["test"]["mse"] != pytest.approx(second.metrics["test"]["mse"], rel=1e-3)


def test_beside_other_batches_it_has_its_share_of_the_device(monkeypatch):
    made = program("fixed", (1.0, 0.1), (0, 0), likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    found = []
    for at_once in (1, 4):
        clock = iter((10.0, 18.0))
        monkeypatch.setattr(module, "perf_counter", lambda clock=clock: next(clock))
        found += [(f.alone, f.seconds) for f in solve(made, lambda at_once=at_once: at_once)]
    assert found == [(True, 4.0)] * 2 + [(False, 1.0)] * 2
