"""The estimators: scikit-learn's own checks, and what they add to it."""

import pickle
import pickletools
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

sklearn = pytest.importorskip("sklearn", minversion="1.6")
from scipy.sparse import csc_matrix, csr_matrix  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.model_selection import KFold  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import dlmexp  # noqa: E402
from dlmexp import DLMClassifier, DLMCountRegressor, DLMRegressor  # noqa: E402
from dlmexp.core.folds import row_order  # noqa: E402
from dlmexp.core.training import automatic  # noqa: E402
from dlmexp.data.splits import inducing_count_of_user_table  # noqa: E402
from dlmexp.experiment.plan.compose import compose, with_default_experiment  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # few iterations
QUICK = {"betas": [1.0, 0.1], "n_inducing": 8, "max_iter": 25, "device": "cpu", "random_state": 0}


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return X, f, rng


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # checks feed estimators what they should warn of
@pytest.mark.parametrize(
    ("kind", "n_components"),
    [(DLMRegressor, 1), (DLMRegressor, 2), (DLMClassifier, 1), (DLMCountRegressor, 1)],
)
def test_scikit_learns_own_checks(kind, n_components, monkeypatch):
    """With one beta and as few steps as their scores need; a mixture has an automatic M."""
    how: dict[str, Any] = QUICK | {"betas": 0.1, "learning_rate": 0.3, "max_iter": 20}
    if kind is DLMRegressor:
        monkeypatch.setattr(DLMRegressor, "pilot", 5)
        how["max_iter"] = 10
    if n_components > 1:
        how |= {"n_components": n_components, "n_inducing": "auto"}
        monkeypatch.setattr(automatic, "PILOT", replace(automatic.PILOT, iterations=5))
    if kind is DLMCountRegressor:
        how |= {"max_iter": 40, "objective": "elbo"}
    checks = check_estimator(kind(**how), on_fail=None, on_skip=None)
    assert len(checks) > 40
    assert [
        (check["check_name"], check["exception"]) for check in checks if check["status"] == "failed"
    ] == []


@pytest.fixture(scope="module")
def fitted():
    """Rows, targets, and a regression of them with three betas."""
    X, f, rng = data()
    y = f + 0.1 * rng.normal(size=len(f))
    with warnings.catch_warnings(action="ignore"):
        return X, y, DLMRegressor(**{**QUICK, "betas": [100.0, 1.0, 0.1]}).fit(X, y)


@pytest.mark.slow
def test_regression_in_own_units():
    X, f, rng = data()
    y = 1e4 + 500 * (f + 0.1 * rng.normal(size=len(f)))
    model = DLMRegressor(**{**QUICK, "max_iter": 150, "n_inducing": 25}).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    assert model.score(X[100:], y[100:]) > 0.9
    assert 0.6 < ((y[100:] - mean) / std).std() < 1.5
    np.testing.assert_allclose(
        model.predict_interval(X[100:]), stats.norm.interval(0.95, mean, std), rtol=1e-10
    )


def test_defaults_short_forms_and_the_best_beta_on_validation(fitted):
    scores = fitted[2].validation_scores_
    assert list(scores) == [100.0, 1.0, 0.1]
    assert fitted[2].beta_ == min(scores, key=lambda beta: scores[beta])
    X, f, _ = data(64)
    few = {"max_iter": 3, "random_state": 0, "device": "cpu"}
    model = DLMRegressor(**few).fit(X, f)
    assert list(model.validation_scores_) == [100.0, 10.0, 1.0, 0.1]
    assert len(model.model_.hyperparameters["Z"]) == 64
    single = DLMRegressor(betas=0.5, **few).fit(X, f)
    assert (single.beta_, single.validation_scores_) == (0.5, {}), "nothing to select"
    short, whole = (
        DLMRegressor(kernel=name, **few).fit(X, f).predict(X) for name in ("matern", "matern52")
    )
    np.testing.assert_array_equal(short, whole)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_what_has_not_converged_is_warned_of(fitted):
    X, y, _ = fitted
    with pytest.warns(ConvergenceWarning, match="max_iter=5"):
        DLMRegressor(**{**QUICK, "max_iter": 5, "window": 5}).fit(X, y)
    with warnings.catch_warnings(action="error"):
        DLMRegressor(**{**QUICK, "betas": 1.0, "max_iter": 200}).fit(X, y)


WRONG = {
    "objective": ["fitc", None],
    "betas": [[-1.0], [], -0.5, "a", [float("nan")]],
    "cv": [0, 1, 1.5, "a", 21],
    "n_components": [0, 1.5, [], "a"],
    "n_inducing": [0, 2.5, "a"],
    "max_iter": [0, 10.5],
    "window": [0],
    "learning_rate": [-0.1, "x"],
    "tol": [-1.0],
    "batch_size": [0, -5, 2.5],
    "kernel": ["rbff", None],
    "device": ["tpu"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_parameters_that_cant_be(name, value):
    X, f, _ = data(20)
    with pytest.raises(ValueError, match=f"^{name}=") as raised:
        DLMRegressor(**{**QUICK, name: value}).fit(X, f)
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize("estimator", [DLMClassifier, DLMCountRegressor])
def test_defaults_for_labels_and_counts_are_those_of_the_command(estimator):
    training = compose(with_default_experiment(["dataset=cadata", "protocol=own"])).training[
        estimator.task
    ]
    settings = estimator()._settings()
    assert (settings.iterations, settings.lr) == (training.max_iterations, training.lr)
    assert settings.final_lr == pytest.approx(training.final_lr)
    assert training.pilot == 0


def test_automatic_number_of_inducing_inputs_is_the_number_that_is_trained_with():
    X, f, rng = data(80)
    y = f + 0.3 * rng.normal(size=80)
    few = QUICK | {"betas": 1.0, "max_iter": 3}
    chosen = DLMRegressor(**{**few, "n_inducing": "auto"}).fit(X, y)
    M = len(chosen.model_.hyperparameters["Z"])
    assert 20 <= M < 80
    same = DLMRegressor(**{**few, "n_inducing": M}).fit(X, y)
    np.testing.assert_array_equal(chosen.predict(X), same.predict(X))


def test_mixture_has_the_mean_the_variance_and_the_intervals_of_its_components():
    X, f, rng = data(60)
    y = 10 + 3 * (f + 0.1 * rng.normal(size=60))
    model = DLMRegressor(**{**QUICK, "betas": 1.0, "n_components": 3, "max_iter": 60}).fit(X, y)
    rows = X[:5]
    mu, v = model.model_.marginals(model.normalisation_.apply(rows.copy()))
    scale = model.target_std_
    means = model.target_mean_ + scale * mu[0].numpy()
    variances = scale**2 * (v[0].numpy() + model.model_.hyperparameters["noise"])
    assert np.ptp(means, axis=0).min() > 1e-3, "the components differ"
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, means.mean(0))
    np.testing.assert_allclose(std**2, (variances + means**2).mean(0) - means.mean(0) ** 2)
    lower, upper = model.predict_interval(rows)
    for end, level in ((lower, 0.025), (upper, 0.975)):
        shares = stats.norm.cdf(end, means, np.sqrt(variances)).mean(0)
        np.testing.assert_allclose(shares, level, atol=1e-8)


def test_targets_and_losses_of_other_tasks():
    X, f, _ = data(20)
    with pytest.raises(ValueError, match="objective='sq_dlm'"):
        DLMClassifier(**{**QUICK, "objective": "sq_dlm"}).fit(X, f > 0)
    with pytest.raises(ValueError, match="negative"):
        DLMCountRegressor(**QUICK).fit(X, -np.arange(20))


def test_a_pickle_names_what_stays_where_it_is(fitted):
    """Pickles of today must load tomorrow: their classes are found by their modules, so these may
    not move."""
    content = pickle.dumps((fitted[2], DLMClassifier(**QUICK), DLMCountRegressor(**QUICK)))
    texts = {text for _, text, _ in pickletools.genops(content) if isinstance(text, str)}
    modules = {text.removeprefix("dlmexp.") for text in texts if text.startswith("dlmexp.")}
    assert modules == {
        "sklearn",
        "core.fit",
        "core.training.model",
        "core.training.program",
        "data.splits",
    }
    assert texts >= {"DLMRegressor", "DLMClassifier", "DLMCountRegressor"}
    assert texts >= {"Fit", "restored_model", "Posterior", "Normalisation"}


@pytest.mark.processes
def test_the_estimators_need_no_module_that_windows_lacks_and_none_of_experiments():
    code = """
import sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None
import dlmexp.sklearn
sys.exit(any(name.startswith("dlmexp.experiment") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_beta_and_components_are_those_of_a_loop_over_folds():
    """On rows that are normalised beforehand, with scikit-learn's own loop over its own split."""
    X, f, rng = data(40)
    y = f + 0.3 * rng.normal(size=40)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    grid = {"betas": [3.0, 0.3], "n_components": [1, 2], "cv": 4}
    model = DLMRegressor(**{**QUICK, **grid}).fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    order = row_order(40, seed)
    losses = {}
    for beta in grid["betas"]:
        for K in grid["n_components"]:
            losses[beta, K] = 0.0
            for f, (train, held_out) in enumerate(KFold(4).split(order)):
                (fitted,) = dlmexp.fit(
                    X[order][train][None],
                    y[order][train][None],
                    model._model(40, K),
                    betas=beta,
                    seeds=[f],
                    settings=model._settings(),
                )
                p = fitted.predict(X[order][held_out])
                scale = np.sqrt(np.atleast_2d(p.latent_variance) + fitted.hyperparameters["noise"])
                means = np.atleast_2d(p.latent_mean)
                density = stats.norm.pdf(y[order][held_out], means, scale).mean(0)
                losses[beta, K] -= np.log(density).mean() / 4
    assert model.validation_scores_ == pytest.approx(losses, rel=1e-6)
    assert (model.beta_, model.n_components_) == min(losses, key=lambda key: losses[key])


@pytest.mark.parametrize(("n", "expected"), [(3, 3), (1999, 5), (2000, 0.1)])
def test_small_data_is_divided_into_folds_and_large_data_once(n, expected):
    assert DLMRegressor()._folds(n) == expected
    assert DLMRegressor(cv=7)._folds(n) == 7


def test_rows_that_were_held_out_are_trained_on_in_the_end():
    """A far row that is in no training set of a fold draws the mean to it."""
    X, f, _ = data(30)
    y = f.copy()
    y[7] = 50.0
    model = DLMRegressor(**{**QUICK, "cv": 0.2}).fit(X, y)
    assert model.target_mean_ == pytest.approx(y.mean())
    few = {**QUICK, "betas": model.beta_}
    np.testing.assert_allclose(model.predict(X), DLMRegressor(**few).fit(X, y).predict(X))


def test_labels_of_a_rare_class_may_all_be_held_out():
    X, _, _ = data(30)
    labels = np.where(np.arange(30) == 4, "rare", "common")
    model = DLMClassifier(**{**QUICK, "cv": 5}).fit(X, labels)
    assert model.predict_proba(X).shape == (30, 2)


def test_training_that_fails_at_every_beta_says_why():
    X, f, _ = data(30)
    with pytest.raises(ValueError, match=r"^training failed in some fold at every beta: Kuu"):
        DLMRegressor(**{**QUICK, "learning_rate": 1e200}).fit(X, f)
    with pytest.raises(ValueError, match=r"^training failed: Kuu"):
        DLMRegressor(**{**QUICK, "learning_rate": 1e200, "betas": 1.0}).fit(X, f)


@pytest.mark.parametrize("which", ["X", "y"])
def test_values_whose_squares_overflow_are_refused(which):
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = X[:, 0]
    values = {"X": X, "y": y}
    values[which] = values[which] * 1e300
    with pytest.raises(ValueError, match=f"{which} has values up to .*choose larger units"):
        DLMRegressor().fit(**values)


def table_with_shops(n=160):
    """A DataFrame whose target depends on a number and, by steps, on a category."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    shop = rng.choice(["a", "b", "c"], n)
    step = pd.Series(shop).map({"a": -3.0, "b": 0.0, "c": 3.0}).to_numpy()
    frame = pd.DataFrame({"shop": shop, "x": x})
    return frame, x + step + 0.1 * rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["category", "object", "str"])
def test_categories_of_a_data_frame_are_told_by_their_types(dtype):
    frame, y = table_with_shops()
    frame["shop"] = frame["shop"].astype(dtype)
    model = DLMRegressor(**{**QUICK, "max_iter": 100, "n_inducing": 30}).fit(frame[:120], y[:120])
    assert model.score(frame[120:], y[120:]) > 0.9
    assert list(model.feature_names_in_) == ["shop", "x"]  # pyright: ignore[reportAttributeAccessIssue]
    shuffled = frame[120:].sample(frac=1, random_state=0)
    np.testing.assert_allclose(
        model.predict(shuffled), model.predict(frame[120:])[shuffled.index - 120]
    )
    unseen = frame[:1].assign(shop="z")
    assert np.isfinite(model.predict(unseen)).all()
    with pytest.raises(ValueError, match="missing"):
        model.predict(frame[:1].assign(x=np.nan))


def test_numbers_of_a_data_frame_of_objects_stay_numbers():
    X, f, _ = data(30)
    frame = pd.DataFrame(X, columns=["a", "b"], dtype=object)
    models = [DLMRegressor(**{**QUICK, "max_iter": 3}).fit(rows, f) for rows in (frame, X)]
    assert models[0].schema_ is None
    np.testing.assert_array_equal(models[0].predict(frame), models[1].predict(X))


def test_defaults_are_those_of_the_command():
    table = ["csv.path=houses.csv", "csv.target=price", "csv.task=regression"]
    cfg = compose(with_default_experiment(["dataset=csv", *table]))
    training, dataset = cfg.training["regression"], cfg.dataset["csv"]
    model = DLMRegressor(betas=1.0, device="cpu")
    assert (model.kernel, model.ard) == (dataset.kernel, dataset.ard)
    settings = model._settings()
    assert (settings.iterations, settings.lr) == (training.max_iterations, training.lr)
    assert settings.final_lr == pytest.approx(training.final_lr)
    closed = DLMRegressor("elbo")._settings()
    assert (closed.optimizer, closed.tolerance) == (training.optimizer, training.tolerance)
    model.fit(*table_with_shops(30))
    assert model.model_.model.pilot == training.pilot
    assert model.model_.model.inducing == training.inducing
    parameters = model.model_.model.parameters(D=5)
    own = {name: parameters[name].initial for name in ("noise", "outputscale")}
    assert own | dict(model.model_.model.initial) == training.initial
    assert len(model.model_.hyperparameters["Z"]) == inducing_count_of_user_table(30)


def test_automatic_number_of_inducing_inputs_is_at_most_that_of_rows():
    X, f, _ = data(40)
    model = DLMRegressor(n_inducing="auto", betas=1.0, max_iter=3, device="cpu").fit(X, f)
    assert 1 <= len(model.model_.hyperparameters["Z"]) <= 40
    with pytest.raises(ValueError, match="n_inducing='auto'"):
        DLMClassifier(n_inducing="auto").fit(X, f > 0)


def test_sparse_rows_are_predicted_as_dense_ones_are():
    X, y = data()[:2]
    X[np.abs(X) < 0.5] = 0
    how = {**QUICK, "betas": 1.0, "max_iter": 3}
    with warnings.catch_warnings(action="ignore"):
        dense = DLMRegressor(**how).fit(X, y)
        sparse = DLMRegressor(**how).fit(csr_matrix(X), y)
    np.testing.assert_array_equal(sparse.predict(csc_matrix(X)), dense.predict(X))


def test_sparse_rows_that_are_too_large_as_an_array_are_refused():
    X = csr_matrix((10, 10**9))
    with pytest.raises(ValueError, match=r"10000000000 entries.*TruncatedSVD"):
        DLMRegressor().fit(X, np.arange(10.0))
