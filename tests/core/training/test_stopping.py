"""When a fit has converged."""

import pytest
import torch

from dlmexp.core.training.settings import Settings
from dlmexp.core.training.stopping import StoppingRule


def converged(values, *rule):
    """Whether a single fit with these objectives in its window has converged."""
    window = torch.tensor([values], dtype=torch.float64)
    return bool(StoppingRule(len(values), *rule).converged(window))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.25, 1.125], True),
        ([1.0, 1.26, 1.125], False),
        ([1.25, 1.0, 1.0], True),
        ([1.0, float("nan"), 1.0], False),
    ],
)
def test_the_spread_of_a_full_window_is_compared_with_the_tolerance(values, expected):
    assert converged(values, 0.25) is expected


@pytest.mark.parametrize(("rows", "expected"), [(8, True), (9, False)])
def test_the_criterion_sum_multiplies_the_spread_by_the_rows(rows, expected):
    assert converged([1.0, 1.125], 1.0, "sum", rows) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [([-8.0, -7.0], True), ([-7.0, -6.0], False), ([0.5, 0.625], True), ([0.5, 0.75], False)],
)
def test_the_criterion_relative_divides_by_the_largest_size_but_at_least_one(values, expected):
    assert converged(values, 0.125, "relative") is expected


def test_each_fit_of_a_batch_is_judged_alone():
    window = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    assert StoppingRule(2, 0.5).converged(window).tolist() == [True, False]


def test_settings_make_the_rule_for_a_number_of_rows():
    settings = Settings(window=7, tolerance=0.3, criterion="sum")
    assert settings.stopping_rule(rows=11) == StoppingRule(7, 0.3, "sum", 11)
    assert Settings(window=None).stopping_rule(rows=11) is None


@pytest.mark.parametrize(
    ("window", "decay", "expected"), [(5, None, 0), (5, 20, 25), (None, 20, 20)]
)
def test_the_rule_applies_a_window_after_the_decay(window, decay, expected):
    settings = Settings(window=window, decay=decay, final_lr=1e-3 if decay else None)
    assert settings.first_check == expected
