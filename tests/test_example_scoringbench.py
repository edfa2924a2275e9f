"""The wrapper for ScoringBench, whose two names that it needs are stood in for."""

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
EXAMPLE = Path(__file__).parents[1] / "examples" / "scoringbench_dlm.py"
NAME = "scoringbench.univariate.wrappers.base"


class Wrapper:
    """Stands for ScoringBench's base class of models."""

    def _set_train_range(self, y: Any) -> None:
        self._y_train_range = (float(np.min(y)), float(np.max(y)))


class Prediction:
    """Stands for ScoringBench's container, and keeps what it is given."""

    @classmethod
    def from_multi_quantile(cls, q: Any, alphas: Any, mean: Any = None, *, train_range: Any) -> Any:
        made = cls()
        made.__dict__.update(q=q, alphas=alphas, mean=mean, train_range=train_range)
        return made


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the wrapper's class."""
    module = ModuleType(NAME)
    module.__dict__.update(DistributionPrediction=Prediction, ProbabilisticWrapper=Wrapper)
    parts = NAME.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, NAME, module)
    return runpy.run_path(str(EXAMPLE))["DLMWrapper"]


def rows(count: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return a number and a category, and targets around a sine with a standard deviation of 2."""
    random = np.random.default_rng(count)
    x = random.uniform(-3, 3, count)
    kind = random.choice(["a", "b"], count)
    y = 10 * np.sin(x) + 5 * (kind == "b") + 2 * random.normal(size=count)
    return pd.DataFrame({"x": x, "kind": kind}), pd.Series(y)


@pytest.fixture
def model(wrapper: Any) -> Any:
    return wrapper(betas=1.0, max_iter=60, tol=1.0, n_inducing=15, device="cpu").fit(*rows(150))


def test_quantiles_are_those_of_the_predictive_distribution(model: Any) -> None:
    X, y = rows(400)
    distribution = model.predict_distribution(X)
    assert distribution.q.shape == (400, len(distribution.alphas))
    below = (y.to_numpy()[:, None] <= distribution.q).mean(axis=0)
    np.testing.assert_allclose(below, distribution.alphas, atol=0.12)
    median = distribution.q[:, np.argmin(np.abs(distribution.alphas - 0.5))]
    np.testing.assert_allclose(median, model.predict(X))


def test_range_is_that_of_the_training_targets(model: Any) -> None:
    _, y = rows(150)
    assert model.predict_distribution(rows(5)[0]).train_range == (y.min(), y.max())


def test_mixture_is_refused(wrapper: Any) -> None:
    with pytest.raises(ValueError, match="n_components=2: give 1"):
        wrapper(betas=1.0, max_iter=3, tol=9.0, window=2, n_components=2, n_inducing=5).fit(
            *rows(20)
        )
