"""Claims about the betas that validation selects."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from dlmexp.presentation.claims.betas import most_datasets
from dlmexp.presentation.claims.claim import Part
from dlmexp.presentation.claims.rules import Verdict
from tests.support.tidy import fits
from tests.support.verdicts import Rows, parts, words


def selected(method: str, size: str, betas: list[float]) -> Rows:
    """Fits of cadata at one size, with the beta selected in each repetition."""
    rows = fits("cadata", method, 0.5, sizes=(691,), seeds=len(betas))
    return [row | {"size": size, "beta": beta} for row, beta in zip(rows, betas, strict=True)]


@pytest.mark.parametrize(
    ("method", "size", "betas", "verdict", "share"),
    [
        ("beta_elbo", "5%", [2, 2, 2, 2, 1], "holds", 0.8),
        ("beta_elbo", "5%", [2, 2, 2, 1, 1], "mixed", 0.6),
        ("joint_log_dlm", "5%", [1, 1, 1, 1, 1, 2], "fails", 1 / 6),
        ("joint_log_dlm", "5%", [1, 1, 1, 2], "mixed", 0.25),
        ("joint_log_dlm", "80%", [0.5, 0.5, 0.5, 0.5, 1], "holds", 0.8),
        ("joint_log_dlm", "80%", [1, 1, 1, 1, 1], "fails", 0.0),
        ("fixed_log_dlm", "80%", [1, 1, 1, 2, 0.5], "holds", 0.8),
        ("beta_elbo", "80%", [0.5, 0.5, 0.5, 0.5, 0.5, 1], "fails", 1 / 6),
        ("beta_elbo", "5%", [2, 2], "undecidable", 1.0),
    ],
)
def test_side_of_the_selected_beta(method, size, betas, verdict, share):
    (part,) = parts(selected(method, size, betas), 6)
    assert part.verdict == verdict
    assert part.figures == {"median_beta": np.median(betas), "share": pytest.approx(share)}
    assert part.repetitions == len(betas)
    assert part.few == (len(betas) < 3)


def test_selected_betas_are_listed_in_the_order_of_seeds():
    rows = selected("beta_elbo", "5%", [4, 3, 2])
    (part,) = parts(rows[::-1], 6)
    assert part.reason == "selected: 4, 3, 2"


def test_failed_repetitions_select_nothing():
    rows = selected("beta_elbo", "5%", [2, 2, 2, 0.5])
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    (part,) = parts(rows, 6)
    assert part.figures["share"] == 1.0


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds", "fails"], "holds"),
        (["holds", "fails"], "mixed"),
        (["fails", "fails", "holds"], "fails"),
        (["holds", "holds", "fails", "mixed"], "mixed"),
        (["holds", "not run", "not run"], "holds"),
        (["not run"], "not run"),
    ],
)
def test_most_datasets_are_more_than_half_of_those_run(verdicts, expected):
    made = [Part("", verdict=Verdict(verdict)) for verdict in verdicts]
    assert most_datasets(made) == expected


@pytest.mark.parametrize(
    ("betas", "expected"),
    [
        ((0.1, 0.1, 0.1), "holds"),
        ((2.0, 2.0, 2.0), "fails"),
        ((1.0, 1.0, 1.0), "fails"),  # at 1 it is not below 1
        ((0.1, 0.1, 2.0), "holds"),
    ],
)
def test_most_methods_and_sizes_select_below_one(betas, expected):
    rows = []
    for method, beta in zip(("beta_elbo", "joint_log_dlm", "fixed_log_dlm"), betas, strict=True):
        rows += fits("pol", method, 0.5, beta=beta)
    assert words(rows, 20) == f"{expected} on 1 of 12"


def test_half_of_the_cases_is_mixed():
    rows = fits("pol", "beta_elbo", 0.5, beta=0.1) + fits("pol", "joint_log_dlm", 0.5, beta=2.0)
    (part,) = parts(rows, 20)
    assert part.verdict == "mixed"
    assert part.figures == {"below": 3, "cases": 6}
    assert part.reason == (
        "median selected β < 1: β-ELBO at 3 of 3, joint DLM at 0 of 3, fixed DLM at 0 of 0 sizes"
    )


def test_the_median_over_repetitions_counts():
    rows = fits("pol", "beta_elbo", 0.5, sizes=(100,))
    for row, beta in zip(rows, (0.1, 0.1, 0.1, 9.0, 9.0), strict=True):
        row["beta"] = beta
    (part,) = parts(rows, 20)
    assert part.figures == {"below": 1, "cases": 1}
    assert part.repetitions == 5


def test_sizes_with_too_few_repetitions_do_not_count():
    rows = fits("pol", "beta_elbo", 0.5, sizes=(100,), beta=0.1)
    few = fits("pol", "beta_elbo", 0.5, sizes=(200,), seeds=2, beta=2.0)
    (part,) = parts(rows + few, 20)
    assert part.figures == {"below": 1, "cases": 1}
    (part,) = parts(few, 20)
    assert part.few
    assert part.verdict == "undecidable"
    assert part.repetitions == 2
