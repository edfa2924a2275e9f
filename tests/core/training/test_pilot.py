"""Training starts where a short fit of the ELBO ends."""

from dataclasses import replace

import numpy as np
import pytest

import dlmexp
from dlmexp.core.training import collapsed, pilot

NO_STEPS = dlmexp.Settings(iterations=1, lr=1e-12, window=None)
PILOT = dlmexp.Settings(optimizer="lbfgs", iterations=12, tolerance=pilot.TOLERANCE)


def rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)


def model(**options):
    return dlmexp.Model("matern52+linear", M=8, ard=True, inducing="kmeans", **options)


def moments(fit, X):
    prediction = fit.predict(X)
    return np.stack([prediction.mean, prediction.variance])


@pytest.mark.slow
@pytest.mark.parametrize(("whitened", "components"), [(True, 1), (False, 1), (True, 2)])
def test_direct_loss_starts_where_the_elbo_ends(whitened, components):
    X, y = rows()
    (elbo,) = dlmexp.fit(X, y, model(), "elbo", settings=PILOT)
    unsplit = NO_STEPS if components == 1 else replace(NO_STEPS, iterations=2, split_at=2)
    (start,) = dlmexp.fit(
        X,
        y,
        model(pilot=12, whitened=whitened, components=components),
        "log_dlm",
        settings=unsplit,
    )
    assert moments(start, X) == pytest.approx(moments(elbo, X), rel=1e-6)


@pytest.mark.slow
def test_start_is_the_same_alone_and_beside_others():
    X, y = np.stack([rows(seed=0)[0], rows(seed=1)[0]]), np.stack([rows()[1], rows(seed=1)[1]])
    together = dlmexp.fit(X, y, model(pilot=12), seeds=[3, 4], settings=NO_STEPS)
    (alone,) = dlmexp.fit(X[1:], y[1:], model(pilot=12), seeds=[4], settings=NO_STEPS)
    assert moments(together[1], X[1]) == pytest.approx(moments(alone, X[1]), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["log_dlm", "elbo"])
def test_of_many_rows_a_few_give_the_hyperparameters_and_all_give_q(monkeypatch, objective):
    for module in (pilot, collapsed):
        monkeypatch.setattr(module, "PILOT_ROWS", 20)
    seen = []
    shrink = pilot.sampled_rows

    def sampled(X, most, seed):
        seen.append(most)
        return shrink(X, most, seed)

    monkeypatch.setattr(pilot, "sampled_rows", sampled)
    X, y = rows()
    settings = NO_STEPS
    if objective == "elbo":
        settings = dlmexp.Settings(optimizer="lbfgs", iterations=1)
    (start,) = dlmexp.fit(X, y, model(pilot=12), objective, settings=settings)
    assert seen == [20]
    held = start.hyperparameters
    (best_q,) = dlmexp.fit(X, y, model(), "elbo", hyperparameters=held)
    if objective == "log_dlm":
        assert moments(start, X) == pytest.approx(moments(best_q, X), rel=1e-6)
    else:
        assert held["noise"] != pytest.approx(0.1, rel=1e-3)


def test_a_pilot_of_many_inducing_inputs_sees_twice_as_many_rows(monkeypatch):
    monkeypatch.setattr(pilot, "PILOT_ROWS", 10)
    X, y = rows()
    (start,) = dlmexp.fit(X, y, model(pilot=2), "log_dlm", settings=NO_STEPS)
    assert start.hyperparameters["Z"].shape == (8, 2)
    assert not start.failed


def test_the_exact_gaussian_process_has_no_pilot(monkeypatch):
    monkeypatch.setattr(collapsed, "PILOT_ROWS", 20)
    monkeypatch.setattr(pilot, "pilot_posterior", None)
    X, y = rows()
    once = dlmexp.Settings(optimizer="lbfgs", iterations=1)
    (fit,) = dlmexp.fit(X, y, dlmexp.Model("rbf", pilot=2), "exact", settings=once)
    assert sorted(fit.hyperparameters["Z"][:, 0]) == pytest.approx(sorted(X[:, 0]))


def test_a_pilot_that_fails_leaves_the_usual_start(monkeypatch):
    X, y = rows()
    (usual,) = dlmexp.fit(X, y, model(), settings=NO_STEPS)
    monkeypatch.setattr(pilot, "pilot_posterior", lambda *arguments: None)
    (start,) = dlmexp.fit(X, y, model(pilot=12), settings=NO_STEPS)
    assert moments(start, X) == pytest.approx(moments(usual, X), rel=1e-12)


def test_a_pilot_is_refused_without_gaussian_noise_and_below_zero():
    X, y = rows()
    with pytest.raises(dlmexp.UserError, match=r"^pilot: a pilot fit needs Gaussian noise"):
        dlmexp.fit(X, (y > 0) * 1.0, dlmexp.Model("rbf", "probit", M=8, pilot=5))
    with pytest.raises(dlmexp.UserError, match=r"^pilot=-1: give a whole number >= 0"):
        dlmexp.fit(X, y, model(pilot=-1))
