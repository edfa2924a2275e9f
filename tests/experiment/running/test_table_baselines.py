"""Baselines beside the models of a user's own table."""

import numpy as np
import pandas as pd
import pytest

import dlmexp
from dlmexp.experiment.records.table_baselines import read_table_baselines
from dlmexp.experiment.running import table_baselines as module
from dlmexp.experiment.running.table_baselines import lines_about_best

QUICK = {"training.regression.max_iterations": 2, "training.regression.decay": 2, "M": 20}


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {"x": x, "z": rng.normal(size=n), "price": 50 + 10 * x + rng.normal(size=n)}
    )


def run(folder, **more):
    return dlmexp.run(
        table(), "elbo", target="price", task="regression", results=folder, **QUICK, **more
    )


@pytest.mark.slow
def test_closing_table_has_baselines_on_the_same_rows(tmp_path, capsys):
    run(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    by_method = {}
    for line in lines:
        words = line.split()
        if words[:1] == ["mine"] and len(words) > 6:
            by_method[words[3] if words[2] == "20" else words[2]] = words
    assert {"elbo", "linear", "mean"} <= by_method.keys()
    # rmse, mae, r2, coverage_95, nll: the noise has standard deviation 1, the target 10.
    rmse, _, r2, *_ = [float(word) for word in by_method["linear"][-5:]]
    assert rmse == pytest.approx(1, abs=0.3)
    assert r2 > 0.95
    assert float(by_method["mean"][-3]) == pytest.approx(0, abs=0.2)
    # The truth is linear, so that either side may be ahead by a little.
    (best,) = [line for line in lines if line.startswith("mine: lowest rmse: ")]
    assert "baseline linear" in best or "best baseline: linear" in best


@pytest.mark.slow
def test_baselines_are_fitted_once(tmp_path, monkeypatch):
    run(tmp_path, verbose=False)
    kept = read_table_baselines(tmp_path, ["mine"])

    def refuse(*_):
        raise AssertionError("fitted again")

    monkeypatch.setattr(module, "BASELINES", dict.fromkeys(module.BASELINES, refuse))
    run(tmp_path, verbose=False)
    assert set(kept["method"]) >= {"mean", "linear"}
    assert kept["test_rmse"].notna().all()


def test_which_is_best_names_the_better_side():
    models = pd.DataFrame(
        {"dataset": "a", "n": 9, "method": ["elbo", "dlm"], "test_rmse": [2.0, 3.0], "test_nll": [0.5, 0.2]}
    )  # fmt: skip
    baselines = pd.DataFrame(
        {"dataset": "a", "n": 9, "method": ["mean", "linear", "trees"], "test_rmse": [0.1, 1.5, 1.0],
         "test_nll": [9.0, 0.3, 0.4]}
    )  # fmt: skip
    assert lines_about_best(models, baselines) == [
        "a: lowest rmse: the baseline trees 1 (best model: elbo 2); "
        "lowest nll: dlm 0.2 (best baseline: linear 0.3)"
    ]
    assert lines_about_best(models, baselines[:0]) == []
