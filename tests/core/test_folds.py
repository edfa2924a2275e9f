"""The rows of folds, and the choice among candidates by their losses in all folds."""

import math

import numpy as np
import pytest

from dlmexp.common.errors import UserError
from dlmexp.core.folds import (
    Candidate,
    best_candidate,
    folds,
    in_normalised_units,
    in_units_of_target,
    pooled_mean,
)


@pytest.mark.parametrize(("n", "count"), [(10, 5), (23, 5), (7, 2), (9, 9)])
def test_folds_are_equally_large_disjoint_and_complements_of_what_is_trained_on(n, count):
    train, held_out = folds(n, count)
    assert held_out.shape == (count, n // count)
    assert len(np.unique(held_out)) == held_out.size
    for of_train, of_fold in zip(train, held_out, strict=True):
        assert sorted([*of_train, *of_fold]) == list(range(n))


def test_rows_that_are_left_over_are_always_trained_on():
    train, _ = folds(13, 5)
    assert all({10, 11, 12} <= set(rows) for rows in train.tolist())


@pytest.mark.parametrize("count", [0, 1, 11])
def test_too_few_or_too_many_folds_are_refused(count):
    with pytest.raises(UserError, match=f"cv={count}: 10 rows can be cut into 2 to 10 folds"):
        folds(10, count)


def test_pooled_losses_are_those_of_targets_in_their_own_units():
    rng = np.random.default_rng(0)
    y = [rng.normal(size=6) * 3, rng.normal(size=6) * 0.5]
    y_stds = [2.0, 0.7]
    nll = [np.mean((fold / s) ** 2 / 2) for fold, s in zip(y, y_stds, strict=True)]
    mse = [np.mean((fold / s) ** 2) for fold, s in zip(y, y_stds, strict=True)]
    # The density of y is that of y / s, divided by s.
    in_units = [np.mean((fold / s) ** 2 / 2 + np.log(s)) for fold, s in zip(y, y_stds, strict=True)]
    assert pooled_mean("nll", nll, y_stds) == pytest.approx(np.mean(in_units))  # pyright: ignore[reportArgumentType]
    assert pooled_mean("mse", mse, y_stds) == pytest.approx(np.mean(np.concatenate(y) ** 2))  # pyright: ignore[reportArgumentType]
    assert pooled_mean("error", [0.1, 0.3], y_stds) == pytest.approx(0.2)


@pytest.mark.parametrize("metric", ["nll", "mse", "crps", "width_95", "coverage_95"])
def test_the_inverse_scale_undoes_a_change_of_units(metric):
    there = in_units_of_target(metric, 0.8, 3.0)
    assert in_normalised_units(metric, there, 3.0) == pytest.approx(0.8)


def test_a_candidate_that_failed_in_one_fold_is_not_chosen():
    losses = {Candidate(1.0): pooled_mean("nll", [0.1, math.nan]), Candidate(0.1): 5.0}
    assert best_candidate(losses) == Candidate(0.1)
    assert best_candidate({Candidate(1.0): math.nan}) is None


def test_of_equal_losses_the_larger_beta_then_the_fewest_components_are_chosen():
    losses = {Candidate(0.1): 1.0, Candidate(1.0, 8): 1.0, Candidate(1.0, 2): 1.0}
    assert best_candidate(losses) == Candidate(1.0, 2)
