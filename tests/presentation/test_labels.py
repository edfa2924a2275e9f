"""Names as figures, verdicts and the report write them."""

import numpy as np
import pytest

from dlmexp.presentation.labels import estimator_label, method_label, metric_label


@pytest.mark.parametrize(
    ("method", "label"), [("joint_log_dlm", "joint DLM"), ("my_own_method", "my own method")]
)
def test_methods_have_labels_and_unknown_ones_lose_their_underscores(method, label):
    assert method_label(method) == label


@pytest.mark.parametrize(
    ("estimator", "samples", "label"),
    [
        ("bmc", 10, "bMC-10"),
        ("smooth_bmc", 1, "smooth-bMC-1"),
        ("exact", None, "exact"),
        ("exact", np.nan, "exact"),
        ("my_own", 100.0, "my-own-100"),
    ],
)
def test_estimators_are_named_with_their_samples_where_they_have_any(estimator, samples, label):
    assert estimator_label(estimator, samples) == label


@pytest.mark.parametrize(
    ("metric", "label"),
    [("coverage_90", "90 % coverage"), ("excess_nll", "NLL − Bayes NLL"), ("x", "x")],
)
def test_metrics_have_labels_and_unknown_ones_stay(metric, label):
    assert metric_label(metric) == label
