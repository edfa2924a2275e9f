"""Scores of labels and counts, against their definitions."""

import numpy as np
import pytest
from scipy import stats

from dlmexp.experiment.models.scores import auc, count_scores, label_scores

RNG = np.random.default_rng(0)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    y = RNG.integers(0, 2, 60).astype(float)
    probability = np.round(0.3 * y + RNG.uniform(size=60), 1)  # with ties
    pairs = probability[y == 1][:, None] - probability[y == 0]
    expected = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert auc(probability, y) == pytest.approx(expected)


def test_auc_of_a_single_class_is_not_known():
    assert np.isnan(auc(np.array([0.2, 0.7]), np.ones(2)))


def test_confusion_counts_rows_on_both_sides_of_the_threshold():
    probability = np.array([0.1, 0.4, 0.6, 0.9])
    y = np.array([0.0, 1.0, 0.0, 1.0])
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    usual = label_scores(probability, y)
    assert [usual[name] for name in names] == [1, 1, 1, 1]
    low = label_scores(probability, y, threshold=0.3)
    assert [low[name] for name in names] == [2, 1, 0, 1]
    assert (usual["base_rate"], usual["brier"]) == (0.5, pytest.approx(0.185))


def test_deviance_is_twice_the_distance_to_the_saturated_model():
    mean = RNG.uniform(0.5, 9, 40)
    y = RNG.poisson(mean).astype(float)
    saturated = stats.poisson.logpmf(y, np.maximum(y, 1e-300))
    expected = 2 * np.mean(saturated - stats.poisson.logpmf(y, mean))
    assert count_scores(mean, np.sqrt(mean), y)["deviance"] == pytest.approx(expected)


def test_dispersion_is_1_where_counts_vary_as_predicted():
    mean = np.full(20_000, 4.0)
    as_predicted = count_scores(mean, np.sqrt(mean), RNG.poisson(4, 20_000).astype(float))
    more = count_scores(mean, np.sqrt(mean), RNG.negative_binomial(4, 0.5, 20_000).astype(float))
    assert as_predicted["dispersion"] == pytest.approx(1, abs=0.1)
    assert more["dispersion"] == pytest.approx(2, abs=0.2)
