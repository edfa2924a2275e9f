"""Claims about the betas that validation selects."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from tests.support.tidy import fits
from tests.support.verdicts import Rows, outcomes, parts, words


def selected(method: str, size: str, betas: list[float]) -> Rows:
    """Fits of cadata at one size, with the beta selected in each repetition."""
    rows = fits("cadata", method, 0.5, sizes=(691,), seeds=len(betas))
    return [row | {"size": size, "beta": beta} for row, beta in zip(rows, betas, strict=True)]


@pytest.mark.parametrize(
    ("method", "size", "betas", "outcome"),
    [
        ("beta_elbo", "5%", [4, 4, 8, 4, 8], "supported"),
        ("beta_elbo", "5%", [4, 4, 4, 4, 4], "supported"),
        ("beta_elbo", "5%", [0.25, 0.25, 0.125, 0.25, 0.125], "contradicted"),
        ("beta_elbo", "5%", [1, 1, 1, 1, 1], "no difference"),
        ("beta_elbo", "5%", [64, 0.01, 64, 0.01, 1], "can't tell"),
        ("beta_elbo", "5%", [4, 4], "can't tell"),
        ("joint_log_dlm", "80%", [0.1, 0.1, 0.2, 0.1, 0.1], "supported"),
        ("joint_log_dlm", "80%", [8, 8, 8, 8, 8], "contradicted"),
        ("fixed_log_dlm", "80%", [1, 1, 1, 1, 1], "supported"),
        ("fixed_log_dlm", "80%", [8, 8, 16, 8, 8], "supported"),
        ("fixed_log_dlm", "80%", [0.1, 0.1, 0.1, 0.1, 0.1], "contradicted"),
    ],
)
def test_side_of_the_selected_beta(method, size, betas, outcome):
    (part,) = parts(selected(method, size, betas), 6)
    assert outcomes(part) == [outcome]
    assert part.tests[0].margin == 1.0  # a step of the grid, a factor of 2
    assert part.repetitions == len(betas)
    logarithm = abs(np.mean(np.log2(betas)))
    assert abs(part.tests[0].difference) == pytest.approx(logarithm)


def test_selected_betas_are_listed_in_the_order_of_seeds():
    rows = selected("beta_elbo", "5%", [4, 3, 2])
    (part,) = parts(rows[::-1], 6)
    assert part.reason == "selected: 4, 3, 2"


def test_failed_repetitions_select_nothing():
    rows = selected("beta_elbo", "5%", [4, 4, 4, 0.5])
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    (part,) = parts(rows, 6)
    assert part.repetitions == 3


def test_beta_zero_is_below_the_smallest_of_the_grid():
    (part,) = parts(selected("joint_log_dlm", "80%", [0.0, 0.0, 0.0]), 6)
    assert part.tests[0].difference == pytest.approx(-np.log2(0.005))


@pytest.mark.parametrize(
    ("betas", "expected"),
    [
        ((0.1, 0.1, 0.1), "reproduced (9 of 9 tests)"),
        ((2.0, 2.0, 2.0), "not reproduced (0 of 9 tests)"),
        ((1.0, 1.0, 1.0), "not reproduced (0 of 9 tests)"),  # at 1 it is not below 1
        ((0.1, 0.1, 2.0), "reproduced (6 of 9 tests)"),
        ((0.1, 2.0, 2.0), "partly (3 of 9 tests)"),
    ],
)
def test_most_tests_select_below_one(betas, expected):
    rows = []
    for method, beta in zip(("beta_elbo", "joint_log_dlm", "fixed_log_dlm"), betas, strict=True):
        rows += fits("pol", method, 0.5, beta=beta)
    assert words(rows, 20) == expected
