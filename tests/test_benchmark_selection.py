"""The benchmark of choices by cross-validation chooses as `dlmexp.cross_validate` does."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import dlmexp
from dlmexp.core.inputs import row_order
from scripts.benchmark.selection import Rule, Splits, candidates, table

BETAS = [10.0, 1.0, 0.1]
SPLITS = 2
N = 43


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(SPLITS, N + 7, 2))
    y = np.sin(2 * X[..., 0]) + 0.5 * rng.normal(size=(SPLITS, N + 7))
    return X, y


def in_their_orders(X, y):
    orders = np.stack([row_order(N, seed) for seed in range(SPLITS)])
    return Splits(
        X=np.take_along_axis(X[:, :N], orders[..., None], axis=1),
        y=np.take_along_axis(y[:, :N], orders, axis=1),
        X_test=X[:, N:],
        y_test=y[:, N:],
    )


@pytest.mark.parametrize(
    "rule", [Rule("log_dlm", 3), Rule("log_dlm", 0.2), Rule("elbo", "loo")], ids=str
)
def test_batch_of_splits_and_folds_chooses_as_each_split_alone(rule):
    X, y = data()
    options = {
        "model": dlmexp.Model(M=8),
        "settings": dlmexp.Settings(lr=0.1, iterations=30, window=None),
        "device": "cpu",
    }
    lines = pd.DataFrame(
        candidates(in_their_orders(X, y), rule, BETAS, partial(dlmexp.fit, **options))
    )
    for split in range(SPLITS):
        alone = dlmexp.cross_validate(
            X[split, :N],
            y[split, :N],
            objective=rule.objective,
            betas=BETAS,
            seed=split,
            cv=rule.cv,
            test=(X[split, N:], y[split, N:]),
            **options,
        )
        of_split = lines[lines["split"] == split].set_index("beta")
        losses = {candidate.beta: loss for candidate, loss in alone.losses.items()}
        for beta in BETAS:
            assert of_split["loss"][beta] == pytest.approx(losses[beta], rel=1e-9)
        chosen = alone.chosen.beta
        assert of_split.index[of_split["chosen"]].tolist() == [chosen]
        assert of_split["nll"][chosen] == pytest.approx(alone.fit.metrics["test"]["nll"], rel=1e-9)


def test_table_counts_choices_near_the_best_beta_and_those_behind_the_elbo():
    results = pd.DataFrame(
        {
            "set": "small",
            "n": 50,
            "rule": "log_dlm cv=5",
            "split": [0, 0, 1, 1],
            "beta": [10.0, 1.0, 10.0, 1.0],
            "nll": [0.500, 0.506, 0.5, 0.8],
            "chosen": [False, True, False, True],
            "elbo_nll": [0.6, 0.6, 0.7, 0.7],
        }
    )
    (line,) = table(results).splitlines()[2:]
    assert line == (
        "| small (50) | log_dlm cv=5 | 1 of 2 | 0.153, 0.300 | 0.653, 0.650 | 1, 0.100 | 1 (2) |"
    )
