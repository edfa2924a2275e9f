"""The estimators: scikit-learn's own checks, and what they add to it."""

import math
import pickle
import pickletools
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

sklearn = pytest.importorskip("sklearn", minversion="1.6")
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from dlmexp import DLMClassifier, DLMCountRegressor, DLMRegressor  # noqa: E402
from dlmexp.sklearn import best_fit, validation_score  # noqa: E402

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
@pytest.mark.parametrize("kind", [DLMRegressor, DLMClassifier, DLMCountRegressor])
def test_scikit_learns_own_checks(kind):
    """With one beta and as few steps as their scores need."""
    how: dict[str, Any] = QUICK | {"betas": 0.1, "learning_rate": 0.3, "max_iter": 20}
    if kind is DLMCountRegressor:
        how |= {"learning_rate": 0.2, "max_iter": 40, "objective": "elbo"}
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
    assert len(model.model_.hyperparameters["Z"]) == 20
    single = DLMRegressor(betas=0.5, **few).fit(X, f)
    assert (single.beta_, single.validation_scores_) == (0.5, {}), "no validation rows"
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


def test_a_class_of_one_row_is_trained_on():
    y = np.zeros(30)
    y[4] = 1
    train, validation = DLMClassifier(**QUICK)._divided(y, np.random.RandomState(0))
    assert 4 in train
    assert len(validation) == 3
    assert sorted([*train, *validation]) == list(range(30))


WRONG = {
    "objective": ["fitc", None],
    "betas": [[-1.0], [], -0.5, "a", [float("nan")]],
    "validation_fraction": [1.0, "a"],
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


class Candidate:
    """The facts of a fit that selection looks at."""

    def __init__(self, nll=None, failed=False):
        self.metrics = {} if nll is None else {"validation": {"nll": nll}}
        self.failed = failed
        self.stopped = "it broke" if failed else "limit"


def selected(*candidates: Any) -> int:
    """The index of the selected candidate; the first has the largest beta."""
    scores = [validation_score(candidate, "nll") for candidate in candidates]
    return candidates.index(best_fit(candidates, scores, "nll"))


def test_the_lowest_validation_score_is_selected_and_of_equal_ones_the_larger_beta():
    assert selected(Candidate(2.0), Candidate(1.0), Candidate(3.0)) == 1
    assert selected(Candidate(2.0), Candidate(1.0), Candidate(1.0)) == 1


def test_failed_fits_and_scores_that_are_not_finite_are_not_selected():
    assert selected(Candidate(1.0, failed=True), Candidate(math.nan), Candidate(5.0)) == 2
    failed: Any = Candidate(1.0, failed=True)
    assert math.isnan(validation_score(failed, "nll"))


def test_a_single_fit_needs_no_validation_score():
    assert selected(Candidate()) == 0


@pytest.mark.parametrize(
    ("candidates", "reason"),
    [
        ([Candidate(failed=True)], "it broke"),
        ([Candidate(math.inf), Candidate(failed=True)], "it broke"),
        ([Candidate(failed=True), Candidate(math.inf)], "the validation nll is not finite"),
    ],
)
def test_where_all_fits_failed_the_error_says_why(candidates, reason):
    with pytest.raises(ValueError, match=f"training failed at every beta: {reason}"):
        selected(*candidates)
