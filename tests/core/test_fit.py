"""`dlmexp.fit`: what it returns, that fits of a batch do not depend on each other, and what it
refuses."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import dlmexp
from dlmexp.core import fit as fit_module
from dlmexp.core.estimators import BMC, UPS
from dlmexp.core.folds import row_order
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.data import Minibatches
from tests.support.laplace import Laplace, exact_log_loss

FEW = dlmexp.Settings(lr=0.05, iterations=12, window=None)


def data(likelihood="gaussian", n=36, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    y = {"gaussian": f, "probit": (f > 0) * 1.0, "poisson": rng.poisson(np.exp(f)) * 1.0}
    return X, y[likelihood]


def fit(*args, **kwargs):
    return dlmexp.fit(*args, **{"settings": FEW, "device": "cpu"} | kwargs)


def assert_equal_fits(fit, other, rel=1e-9):
    assert (fit.beta, fit.seed, fit.stopped) == (other.beta, other.seed, other.stopped)
    np.testing.assert_allclose(fit.objective, other.objective, rtol=rel, atol=rel)
    for name, value in fit.hyperparameters.items():
        np.testing.assert_allclose(other.hyperparameters[name], value, rtol=1e-6, atol=1e-7)
    for part, metrics in fit.metrics.items():
        assert other.metrics[part] == pytest.approx(metrics, rel=1e-6, abs=1e-7)


CASES = {
    "log_dlm": {},
    "elbo": {"objective": "elbo"},
    "explicit elbo": {"objective": "elbo", "collapsed": False},
    "sq_dlm": {"objective": "sq_dlm"},
    "power_ep": {"objective": "power_ep"},
    "counts": {"likelihood": "poisson"},
    "binary": {"likelihood": "probit"},
    "matern": {"kernel": "matern52", "ard": True},
    "unwhitened": {"whitened": False},
    "bmc": {"estimator": BMC(3)},
    "ups": {"estimator": UPS(3), "likelihood": "poisson"},
    "minibatches": {"minibatches": 7},
    "resampled": {"minibatches": Minibatches(7, resample_each_step=True)},
}


def test_nll_of_a_narrow_likelihood_of_a_plugin_is_that_of_its_closed_form():
    X, y = data(n=60)
    X_test, y_test = data(n=30, seed=1)
    settings = dlmexp.Settings(lr=0.1, iterations=60, window=None)
    model = dlmexp.Model(likelihood=Laplace, M=8)
    (fitted,) = fit(X, y, model, betas=1.0, settings=settings, test=(X_test, y_test))
    q_f = fitted._predictor_on(torch.device("cpu")).marginals(torch.tensor(X_test))
    noise = fitted.posterior.hyper["noise"]
    expected = exact_log_loss(noise, *q_f, torch.tensor(y_test)).mean()
    assert fitted.metrics["test"]["nll"] == pytest.approx(float(expected), abs=1e-3)


def test_fit_is_shown_with_plain_numbers():
    X, y = data()
    fits = fit(X, y, dlmexp.Model(M=4), betas=[1, 0.1])
    assert all("np." not in repr(fitted) for fitted in fits)


def run(case, **changes):
    options = {**CASES[case], **changes}
    likelihood = options.pop("likelihood", "gaussian")
    of_model = {
        name: options.pop(name) for name in ("kernel", "ard", "whitened") if name in options
    }
    X, y = data(likelihood)
    X_test, y_test = data(likelihood, n=11, seed=1)
    model = dlmexp.Model(likelihood=likelihood, M=5, **of_model)
    return fit(X, y, model, test=(X_test, y_test), **options)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_fits_of_a_batch_equal_fits_one_by_one(case):
    together = run(case, betas=[1.0, 0.1], seeds=[3, 8])
    assert [(fit.seed, fit.beta) for fit in together] == [(3, 1), (3, 0.1), (8, 1), (8, 0.1)]
    for each in together:
        (alone,) = run(case, betas=each.beta, seeds=each.seed)
        assert_equal_fits(each, alone, rel=1e-7)


def test_fits_split_into_batches_equal_those_of_one_batch(monkeypatch):
    together = run("log_dlm", betas=[1.0, 0.1, 0.5], seeds=[0, 1])
    monkeypatch.setattr(fit_module.StepSize, "cells_at_once", lambda self, free: 2)
    for each, other in zip(
        run("log_dlm", betas=[1.0, 0.1, 0.5], seeds=[0, 1]), together, strict=True
    ):
        assert_equal_fits(each, other, rel=1e-7)


def test_a_fit_has_what_it_promises():
    (result,) = run("log_dlm", betas=0.5, seeds=4)
    assert (result.beta, result.seed, result.stopped, result.failed) == (0.5, 4, "limit", False)
    assert (result.iterations, len(result.objective)) == (12, 12)
    assert 0 < result.seconds < 60
    assert set(result.hyperparameters) == {"Z", "lengthscale", "outputscale", "noise", "mean"}
    assert result.hyperparameters["Z"].shape == (5, 2)
    assert result.posterior.m.shape == (1, 5)
    assert set(result.metrics) == {"test"}
    assert {"nll", "mse", "crps"} <= set(result.metrics["test"])
    assert "posterior" not in repr(result)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
def test_predictions_have_the_metrics_that_were_measured(likelihood):
    X, y = data(likelihood)
    X_test, y_test = data(likelihood, n=50, seed=1)
    (result,) = fit(X, y, dlmexp.Model(likelihood=likelihood, M=6), test=(X_test, y_test))
    prediction = result.predict(X_test)
    metrics = result.metrics["test"]
    if likelihood == "gaussian":
        error = np.mean((prediction.mean - y_test) ** 2)
        variance = prediction.variance
        assert variance is not None
        nll = 0.5 * np.log(2 * np.pi * variance) + (y_test - prediction.mean) ** 2 / variance / 2
        assert metrics["mse"] == pytest.approx(error, rel=1e-9)
        assert metrics["nll"] == pytest.approx(nll.mean(), rel=1e-9)
    elif likelihood == "probit":
        p = np.where(y_test == 1, prediction.mean, 1 - prediction.mean)
        assert metrics["nll"] == pytest.approx(-np.log(p).mean(), rel=1e-9)
        assert prediction.variance is not None
        np.testing.assert_allclose(prediction.variance, prediction.mean * (1 - prediction.mean))
        assert prediction.lower is None
    else:
        relative = np.abs(prediction.mean - y_test) / np.maximum(y_test, 1)
        assert metrics["mre"] == pytest.approx(relative.mean(), rel=1e-9)
        expected = np.exp(prediction.latent_mean + prediction.latent_variance / 2)
        np.testing.assert_allclose(prediction.mean, expected)
    if likelihood != "probit":
        covered = (prediction.lower <= y_test) & (y_test <= prediction.upper)
        assert metrics["coverage_95"] == pytest.approx(covered.mean())


def test_square_loss_predicts_a_mean_only():
    (result,) = run("sq_dlm")
    prediction = result.predict(data()[0])
    assert (prediction.variance, prediction.lower, prediction.upper) == (None, None, None)
    assert "nll" not in result.metrics["test"]


def test_a_stack_of_splits_trains_each_split_on_its_own_rows():
    first, second = data(seed=0), data(seed=1)
    X = np.stack([first[0], second[0]])
    y = np.stack([first[1], second[1]])
    fits = fit(X, y, dlmexp.Model(M=5), betas=[1.0, 0.1], test=(X[:, :9], y[:, :9]))
    assert [fit.seed for fit in fits] == [0, 0, 1, 1]
    for split in (0, 1):
        alone = fit(
            X[split : split + 1], y[split : split + 1], dlmexp.Model(M=5), betas=[1.0, 0.1],
            seeds=[split], test=(X[split : split + 1, :9], y[split : split + 1, :9]),
        )  # fmt: skip
        for each, other in zip(fits[2 * split : 2 * split + 2], alone, strict=True):
            assert_equal_fits(each, other)


def test_rows_of_a_stack_stay_in_order_and_a_seed_orders_those_of_one_data_set():
    X, y = data()
    one_step = dlmexp.Settings(lr=1e-12, iterations=1, window=None)
    model = dlmexp.Model(M=5)
    (stacked,) = fit(X[None], y[None], model, seeds=7, settings=one_step)
    (ordered,) = fit(X, y, model, seeds=7, settings=one_step)
    np.testing.assert_allclose(stacked.hyperparameters["Z"], X[:5], atol=1e-9)
    expected = X[row_order(len(X), 7)[:5]]
    np.testing.assert_allclose(ordered.hyperparameters["Z"], expected, atol=1e-9)
    assert not np.allclose(expected, X[:5])


def test_row_order_is_the_same_everywhere():
    assert row_order(10, 0).tolist() == [7, 3, 9, 0, 1, 2, 5, 8, 4, 6]
    assert sorted(row_order(50, 3)) == list(range(50))


def test_row_order_does_not_sort_data_drawn_with_the_same_seed():
    drawn = np.random.default_rng(0).random(500)
    first_half = drawn[row_order(500, 0)[:250]]
    assert abs(first_half.mean() - 0.5) < 6 * np.sqrt(1 / 12 / 250)


def test_arrays_tensors_and_lists_give_the_same_fits():
    X, y = data()
    model = dlmexp.Model(M=5)
    (of_arrays,) = fit(X, y, model)
    for convert in (torch.tensor, np.ndarray.tolist):
        (other,) = fit(convert(X), convert(y), model)
        assert_equal_fits(of_arrays, other, rel=0)


def test_names_and_objects_give_the_same_fits():
    X, y = data("probit")
    (by_name,) = fit(X, y, dlmexp.Model("rbf", "probit", M=5), "log_dlm", estimator="quadrature")
    kernel = dlmexp.Model("rbf").kernel
    likelihood = dlmexp.Model(likelihood="probit").likelihood
    (by_object,) = fit(
        X, y, dlmexp.Model(kernel, likelihood, M=5), OBJECTIVES["log_dlm"], estimator="quadrature"
    )
    assert_equal_fits(by_name, by_object, rel=0)


def test_exact_gp_takes_float32_rows():
    X, y = data()
    settings = dlmexp.Settings(iterations=20, window=None)
    (wide,) = fit(X, y, objective="exact", settings=settings)
    (narrow,) = fit(X, y, objective="exact", settings=settings, dtype="float32")
    np.testing.assert_allclose(narrow.objective, wide.objective, rtol=1e-5)


def test_float32_is_close_to_float64():
    (narrow,) = run("log_dlm", dtype="float32")
    (wide,) = run("log_dlm")
    assert narrow.metrics["test"]["nll"] == pytest.approx(wide.metrics["test"]["nll"], abs=1e-3)
    rows = data()[0]
    np.testing.assert_allclose(narrow.predict(rows).mean, wide.predict(rows).mean, atol=1e-2)
    assert narrow.predict(rows).mean.dtype == np.float32


def test_validation_rows_are_evaluated_and_recalibrated_on():
    X, y = data()
    (result,) = fit(X, y, dlmexp.Model(M=5), validation=data(n=9, seed=2), test=data(n=11, seed=1))
    assert set(result.metrics) == {"validation", "test"}
    assert "recalibrated_nll" in result.metrics["test"]


def test_the_exact_gp_takes_all_rows_as_inducing_inputs():
    X, y = data(n=20)
    (result,) = fit(X, y, objective="exact")
    assert result.hyperparameters["Z"].shape == (20, 2)


def test_the_default_number_of_inducing_inputs_is_a_tenth_of_the_rows_within_limits():
    counts = [dlmexp.Model().inducing_count(n) for n in (15, 150, 1000, 10_000)]
    assert counts == [15, 20, 100, 200]


def test_learning_curves_are_returned():
    settings = dlmexp.Settings(lr=0.05, iterations=10, window=None, evaluate_every=4)
    (result,) = run("log_dlm", settings=settings)
    assert [iteration for iteration, _ in result.curve] == [0, 4, 8, 10]


def test_progress_is_reported_and_can_end_the_training():
    settings = dlmexp.Settings(lr=0.05, iterations=50, window=None, check_every=20)
    seen = []
    run("log_dlm", settings=settings, betas=[1.0, 0.1], progress=seen.append)
    assert [update.iteration for update in seen] == [20, 40, 50]
    assert (seen[-1].finished, seen[-1].fits, seen[-1].iterations) == (2, 2, 50)

    def stop(update):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("log_dlm", settings=settings, progress=stop)


@pytest.mark.parametrize("kernel", ["rbf", "gpytorch.kernels.RQKernel"])
def test_a_pickled_fit_predicts_the_same(kernel):
    X, y = data()
    (result,) = fit(X, y, dlmexp.Model(kernel, M=5))
    before = result.predict(X).mean
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.predict(X).mean, before)
    assert repr(again) == repr(result)


def test_a_fit_holds_its_own_part_of_the_memory_of_its_batch():
    fits = run("log_dlm", betas=[1.0, 0.5, 0.1])
    sizes = [each.posterior.L.untyped_storage().nbytes() for each in fits]
    assert sizes == [5 * 5 * 8] * 3


def test_a_failed_fit_says_why_and_leaves_the_others_alone():
    X, y = data()
    fits = fit(np.stack([X, X]), np.stack([y, 1e200 * y]), dlmexp.Model(M=5))
    assert [each.failed for each in fits] == [False, True]
    assert "not finite" in fits[1].stopped
    assert fits[0].stopped == "limit"


X_GOOD, Y_GOOD = data(n=12)
WITH_NAN = np.where(np.arange(12) == 3, np.nan, Y_GOOD)
REFUSED = {
    "X has shape": ({"X": X_GOOD[:, 0]}, "give [n, D]"),
    "y is too short": ({"y": Y_GOOD[:5]}, "y has shape [5]"),
    "y is a column": ({"y": Y_GOOD[:, None]}, "y has shape [12, 1]"),
    "no rows": ({"X": X_GOOD[:0], "y": Y_GOOD[:0]}, "it is empty"),
    "NaN in y": ({"y": WITH_NAN}, "y has values that are NaN"),
    "NaN in X": ({"X": X_GOOD * np.nan}, "X has values that are NaN"),
    "texts": ({"X": [["a", "b"]] * 12}, "X is not an array of numbers"),
    "negative beta": ({"betas": [1.0, -0.5]}, "betas=[1.0, -0.5]: give numbers >= 0"),
    "no betas": ({"betas": []}, "betas=[]"),
    "beta of FITC": ({"objective": "fitc", "betas": 0.5}, "'fitc' has no beta"),
    "unknown objective": ({"objective": "log_dml"}, "did you mean log_dlm"),
    "no objective": ({"objective": 3}, "objective=3"),
    "unknown estimator": ({"estimator": "bmcc"}, "did you mean bmc"),
    "estimator with options": ({"estimator": "bmc"}, "BMC(samples=10)"),
    "estimator of the ELBO": ({"objective": "elbo", "estimator": "exact"}, "takes no estimator"),
    "no estimator": ({"estimator": 5}, "estimator=5"),
    "model": ({"model": "rbf"}, "give a dlmexp.Model"),
    "too many inducing inputs": ({"model": dlmexp.Model(M=13)}, "the number of training rows"),
    "no inducing inputs": ({"model": dlmexp.Model(M=0)}, "M=0: give a whole number > 0"),
    "M of the exact GP": (
        {"model": dlmexp.Model(M=5), "objective": "exact"},
        "needs M = n, 12",
    ),
    "inducing": (
        {"model": dlmexp.Model(inducing="middle")},
        "give one of first, last, kmeans, greedy",
    ),
    "initial name": ({"model": dlmexp.Model(initial={"lengthscal": 1.0})}, "lengthscale"),
    "initial value": ({"model": dlmexp.Model(initial={"lengthscale": -1.0})}, "number > 0"),
    "closed form": (
        {"model": dlmexp.Model(likelihood="probit"), "y": Y_GOOD > 0, "objective": "fitc"},
        "needs Gaussian noise",
    ),
    "classes": ({"model": dlmexp.Model(likelihood="probit")}, "other than 0 and 1"),
    "counts": ({"model": dlmexp.Model(likelihood="poisson")}, "y has counts below 0"),
    "seeds twice": ({"seeds": [0, 0]}, "each of them once"),
    "negative seed": ({"seeds": -1}, "whole numbers >= 0"),
    "seeds of splits": ({"X": X_GOOD[None], "y": Y_GOOD[None], "seeds": [0, 1]}, "1 splits"),
    "test is no pair": ({"test": X_GOOD}, "give a pair"),
    "columns of test": ({"test": (X_GOOD[:, :1], Y_GOOD)}, "give [T, 2], as in X"),
    "rows of test": ({"test": (X_GOOD, Y_GOOD[:3])}, "test[1] has shape [3]"),
    "stack of test": ({"test": (X_GOOD[None], Y_GOOD[None])}, "as in X"),
    "minibatches": ({"minibatches": 13}, "1 to 12"),
    "minibatches of zero": ({"minibatches": 0}, "1 to 12"),
    "minibatches of a closed form": ({"objective": "elbo", "minibatches": 4}, "collapsed=False"),
    "device": ({"device": "tpu"}, "device=tpu"),
    "dtype": ({"dtype": "float16"}, "dtype=float16"),
    "learning rate": ({"settings": dlmexp.Settings(lr=0)}, "Settings(lr=0): give a number > 0"),
    "iterations": ({"settings": dlmexp.Settings(iterations=0)}, "iterations=0"),
    "window": ({"settings": dlmexp.Settings(window=0)}, "window=0"),
    "tolerance": ({"settings": dlmexp.Settings(tolerance=-1)}, "tolerance=-1"),
    "criterion": ({"settings": dlmexp.Settings(criterion="max")}, "mean, sum, relative"),
    "decay": ({"settings": dlmexp.Settings(decay=5)}, "decay and final_lr together"),
    "held": (
        {"hyperparameters": {"Z": np.ones((4, 2)), "lengthscale": np.ones(1)}},
        "['outputscale'] is missing",
    ),
    "shape of held": (
        {"hyperparameters": {"Z": np.ones((3, 2))}},
        "hyperparameters['Z'] has shape [3, 2]: give finite numbers [4, 2]",
    ),
    "held of seeds": ({"hyperparameters": [{}, {}]}, "one for each of 1 seeds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_clear_line(case):
    changes, words = REFUSED[case]
    arguments = {"X": X_GOOD, "y": Y_GOOD, "model": dlmexp.Model(M=4), **changes}
    if "initial" in case or case in ("inducing", "closed form", "classes", "counts"):
        arguments["model"] = dlmexp.Model(**{**vars(arguments["model"]), "M": 4})
    with pytest.raises(dlmexp.UserError) as raised:
        fit(**arguments)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["rbff", "gpytorch.kernels.Nothing"])
def test_an_unknown_kernel_is_refused(name):
    with pytest.raises(dlmexp.UserError, match="kernel"):
        dlmexp.Model(name)


def test_rows_to_predict_of_another_shape_are_refused():
    (result,) = run("log_dlm")
    with pytest.raises(dlmexp.UserError, match=r"give \[N, 2\]"):
        result.predict(np.zeros((3, 5)))


@pytest.mark.slow
def test_the_example_of_the_api_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (example,) = [text for text in examples if "dlmexp.fit(" in text]
    names = {}
    exec(example, names)
    assert [fit.seed for fit in names["fits"]] == [0, 0, 0, 1, 1, 1]
    assert names["best"].metrics["test"]["nll"] < 1.0
    assert len(names["prediction"].mean) == 50
    assert capsys.readouterr().out.startswith(str(names["best"].beta))
