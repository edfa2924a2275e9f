"""Cross-validation against a slow loop over folds, and its parts against their definitions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize_scalar

import dlmexp
from dlmexp.core.folds import PROFILE_LOGS, Candidate, folds, penalised_factor, row_order
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.training.recalibration import loss_profile

FEW = dlmexp.Settings(lr=0.1, iterations=30, window=None)


def data(n=43, likelihood="gaussian"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return X, {"gaussian": f, "probit": (f > 0) * 1.0, "poisson": rng.poisson(np.exp(f))}[
        likelihood
    ]


@pytest.mark.parametrize("count", [0, 1, 44])
def test_a_number_of_folds_that_rows_do_not_make_is_refused(count):
    X, y = data()
    with pytest.raises(
        dlmexp.UserError, match=f"^cv={count}: 43 rows can be cut into 2 to 43 folds$"
    ):
        dlmexp.cross_validate(X, y, cv=count)


def held_out_nll(fit, X, y):
    """The NLL of rows from the latent moments of the components, with SciPy alone."""
    prediction = fit.predict(X)
    mean = np.atleast_2d(prediction.latent_mean)
    variance = np.atleast_2d(prediction.latent_variance)
    if fit.model.likelihood.name == "probit":
        p = stats.norm.cdf((2 * y - 1) * mean / np.sqrt(1 + variance)).mean(0)
    else:
        scale = np.sqrt(variance + fit.hyperparameters["noise"])
        p = stats.norm.pdf(y, mean, scale).mean(0)
    return -np.log(p)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "components"), [("gaussian", [1, 3]), ("probit", [1]), ("probit", [2])]
)
def test_picks_equal_those_of_a_loop_over_folds(likelihood, components):
    X, y = data(likelihood=likelihood)
    betas = [3.0, 1.0, 0.3]
    model = dlmexp.Model(likelihood=likelihood, M=8)
    result = dlmexp.cross_validate(
        X, y, model, betas=betas, seed=4, settings=FEW, cv=3, components=components, device="cpu"
    )
    order = row_order(43, 4)
    losses = {}
    for K in components:
        of_K = dlmexp.Model(likelihood=likelihood, M=8, components=K)
        for beta in betas:
            nll = []
            for f in range(3):
                held_out = order[f * 14 : (f + 1) * 14]
                train = np.array([row for row in order if row not in held_out])
                (fit,) = dlmexp.fit(
                    X[train][None], y[train][None], of_K, betas=beta, seeds=[f], settings=FEW
                )
                nll.extend(held_out_nll(fit, X[held_out], y[held_out]))
            losses[Candidate(beta, K)] = np.mean(nll)
    assert result.losses == pytest.approx(losses, rel=1e-6)
    assert result.chosen == min(losses, key=lambda candidate: losses[candidate])
    beta, K = result.chosen
    of_K = dlmexp.Model(likelihood=likelihood, M=8, components=K)
    (refit,) = dlmexp.fit(X, y, of_K, betas=beta, seeds=4, settings=FEW)
    np.testing.assert_allclose(refit.predict(X).mean, result.fit.predict(X).mean, rtol=1e-6)


def test_a_share_of_the_rows_is_held_out_once():
    X, y = data()
    result = dlmexp.cross_validate(X, y, betas=1.0, settings=FEW, cv=0.3, device="cpu")
    order = row_order(43, 0)
    held_out, train = order[:13], order[13:]
    (fit,) = dlmexp.fit(X[train][None], y[train][None], betas=1.0, settings=FEW, device="cpu")
    expected = held_out_nll(fit, X[held_out], y[held_out]).mean()
    assert result.losses[Candidate(1.0)] == pytest.approx(expected, rel=1e-6)


def test_inducing_inputs_and_minibatches_are_no_more_than_rows_of_a_fold():
    X, y = data(n=20)
    result = dlmexp.cross_validate(
        X, y, dlmexp.Model(M=20), betas=1.0, settings=FEW, minibatches=18, device="cpu"
    )
    assert len(result.fit.hyperparameters["Z"]) == 20


def test_folds_may_have_fewer_inducing_inputs_than_the_fit_to_all_rows():
    X, y = data(n=20)
    options = {"betas": [10, 1], "settings": FEW, "device": "cpu"}
    result = dlmexp.cross_validate(X, y, dlmexp.Model(M=12), M_in_folds=5, **options)
    with_few = dlmexp.cross_validate(X, y, dlmexp.Model(M=5), **options)
    assert len(result.fit.hyperparameters["Z"]) == 12
    assert result.losses == pytest.approx(with_few.losses, rel=1e-9)


def test_training_that_failed_in_every_fold_says_why():
    X, y = data()
    settings = dlmexp.Settings(lr=1e200, iterations=30)
    with pytest.raises(dlmexp.UserError, match=r"^training failed in some fold at every beta: Kuu"):
        dlmexp.cross_validate(X, y, settings=settings, device="cpu")


def test_square_loss_is_chosen_by_mse_and_has_no_temperature():
    X, y = data()
    result = dlmexp.cross_validate(X, y, objective="sq_dlm", settings=FEW, device="cpu")
    assert (result.metric, result.temperature) == ("mse", 1.0)
    assert set(result.losses) == {Candidate(beta) for beta in (100.0, 10.0, 1.0, 0.1)}


def test_a_metric_that_the_likelihood_does_not_have_is_refused():
    X, y = data()
    with pytest.raises(dlmexp.UserError, match=r"^metric=error: "):
        dlmexp.cross_validate(X, y, betas=1.0, settings=FEW, metric="error", device="cpu")


def test_splits_are_refused():
    X, y = data()
    with pytest.raises(dlmexp.UserError, match=r"^X has shape \[1, 43, 2\]: give \[n, D\]$"):
        dlmexp.cross_validate(X[None], y[None])


def test_the_temperature_is_that_of_the_held_out_rows_of_all_folds():
    """Against the factor on the variance of the least NLL plus penalty, by SciPy."""
    X, y = data(n=60)
    model = dlmexp.Model(M=30)
    # With a small beta the variance is too small.
    result = dlmexp.cross_validate(X, y, model, betas=0.01, settings=FEW, cv=3, device="cpu")
    order = row_order(60, 0)
    train, held_out = folds(60, 3)
    stacked_X, stacked_y = X[order][train], y[order][train]
    fits = dlmexp.fit(stacked_X, stacked_y, model, betas=0.01, settings=FEW, device="cpu")

    def loss(log):
        total = 2.0 * abs(log)
        for fit, rows in zip(fits, order[held_out], strict=True):
            prediction = fit.predict(X[rows])
            scale = np.sqrt(np.exp(log) * prediction.variance)
            total -= stats.norm.logpdf(y[rows], prediction.mean, scale).sum()
        return total

    best: Any = minimize_scalar(loss, bounds=(0.1, 5), method="bounded")
    assert result.temperature > 2
    assert math.log(result.temperature) == pytest.approx(best.x, abs=0.01)


def separable(rows):
    """A profile of binary rows that are all predicted right, with probability 0.8."""
    likelihood = LIKELIHOODS["probit"]
    mu = torch.full((1, rows), float(stats.norm.ppf(0.8)), dtype=torch.float64)
    hyper = {"mean": torch.zeros(1, dtype=torch.float64)}
    return loss_profile(likelihood, hyper, mu, 0 * mu, torch.ones_like(mu))[0].numpy()


def test_few_rows_do_not_make_the_temperature_run_away():
    assert penalised_factor(separable(10), strength=0.0) < 0.1
    # The gain is at most the NLL itself: 10 rows of -log 0.8.
    bound = -10 * math.log(0.8) / 2.0
    assert math.exp(-bound) <= penalised_factor(separable(10), strength=2.0) < 1


def test_many_rows_have_the_temperature_that_they_would_have_without_a_penalty():
    rng = np.random.default_rng(2)
    y = torch.from_numpy(2.0 * rng.normal(size=(1, 5000)))
    hyper = {"mean": torch.zeros(1).double(), "noise": torch.ones(1).double()}
    profile = loss_profile(LIKELIHOODS["gaussian"], hyper, 0 * y, 0 * y, y)[0].numpy()
    assert penalised_factor(profile) == pytest.approx(float(y.square().mean()), rel=0.01)


def test_a_profile_without_finite_losses_leaves_predictions_as_they_are():
    assert penalised_factor(np.full(len(PROFILE_LOGS), math.nan)) == 1.0


CLOSED = [
    ("elbo", [2.0, 1.0, 0.3]),
    ("tighter", [1.0, 0.3]),
    ("fitc", [1.0]),
    ("sq_dlm", [1.0, 0.1]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "betas"), CLOSED)
def test_leaving_one_out_scores_the_fits_to_all_rows_and_trains_nothing_again(objective, betas):
    X, y = data(n=25)
    model = dlmexp.Model(M=6)
    result = dlmexp.cross_validate(
        X, y, model, objective, betas, seed=2, settings=FEW, cv="loo", device="cpu"
    )
    fits = dlmexp.fit(X, y, model, objective, betas, seeds=2, settings=FEW, device="cpu")
    losses = {Candidate(fit.beta): left_out_loss(fit, objective, X, y) for fit in fits}
    assert result.losses == pytest.approx(losses, rel=1e-6)
    assert result.chosen == min(losses, key=lambda candidate: losses[candidate])
    (chosen,) = [fit for fit in fits if fit.beta == result.chosen.beta]
    np.testing.assert_allclose(result.fit.predict(X).mean, chosen.predict(X).mean, rtol=1e-10)


def left_out_loss(fit, objective, X, y):
    """The mean loss of rows under the q of all others, at the hyperparameters of a fit."""
    total = 0.0
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        (without,) = dlmexp.fit(
            X[others][None],
            y[others][None],
            fit.model,
            objective,
            fit.beta,
            hyperparameters=fit.hyperparameters,
            device="cpu",
        )
        if objective == "sq_dlm":
            total += float((without.predict(X[[row]]).mean[0] - y[row]) ** 2)
        else:
            total += float(held_out_nll(without, X[[row]], y[[row]])[0])
    return total / len(y)


def test_leaving_one_out_recalibrates_by_the_rows_that_were_left_out():
    X, y = data(n=25)
    model = dlmexp.Model(M=6)
    result = dlmexp.cross_validate(X, y, model, "elbo", 1.0, settings=FEW, cv="loo", device="cpu")
    assert result.fit.profile is not None
    assert result.temperature == penalised_factor(result.fit.profile)
    at_one = result.fit.profile[np.flatnonzero(PROFILE_LOGS == 0)[0]] / len(y)
    assert at_one == pytest.approx(result.losses[Candidate(1.0)])


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "log_dlm"},
        {"objective": "elbo", "collapsed": False},
        {"objective": "tighter", "model": dlmexp.Model(likelihood="student_t", M=5)},
    ],
)
def test_leaving_one_out_is_refused_by_name_without_a_closed_form(options):
    X, y = data()
    with pytest.raises(dlmexp.UserError) as error:
        dlmexp.cross_validate(X, y, settings=FEW, cv="loo", **options)
    assert str(error.value) == (
        f"cv=loo needs a closed form over q, which objective '{options['objective']}' does not "
        "have here; give a number of folds, such as cv=5"
    )


def test_words_that_are_no_way_to_validate_are_refused():
    X, y = data()
    with pytest.raises(dlmexp.UserError, match=r"^cv=lou: give a number of folds, a share of the"):
        dlmexp.cross_validate(X, y, settings=FEW, cv="lou")
    with pytest.raises(dlmexp.UserError, match=r"^validation='lou': give inputs and targets, or"):
        dlmexp.fit(X, y, objective="elbo", settings=FEW, validation="lou")
    with pytest.raises(dlmexp.UserError, match=r"^validation='loo' needs a closed form over q"):
        dlmexp.fit(X, y, objective="log_dlm", settings=FEW, validation="loo")
