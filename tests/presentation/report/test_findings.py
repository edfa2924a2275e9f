"""Findings: the best method against ELBO, its interval, and the order of datasets."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import math

import pytest
from scipy import stats

from dlmexp.presentation.claims.columns import VerdictColumn
from dlmexp.presentation.report.findings import Finding, findings
from tests.support.tidy import Made, fits
from tests.support.verdicts import Rows, lines


def found(rows: Rows) -> list[Finding]:
    """Return the findings under the protocol `paper`."""
    return findings(Made(rows), VerdictColumn("paper"))


def test_the_best_method_is_compared_with_elbo_at_the_largest_size():
    rows = lines("banana", elbo=0.5, beta_elbo=0.4, joint_log_dlm=0.2)
    (finding,) = found(rows)
    assert (finding.dataset, finding.n, finding.method) == ("banana", 500, "joint DLM")
    assert finding.difference == pytest.approx(0.3, abs=0.01)
    assert finding.repetitions == 5
    assert finding.origin.records == 2 * 15


def test_the_interval_leaves_out_five_per_cent():
    rows = lines("banana", elbo=0.5, joint_log_dlm=0.2)
    (finding,) = found(rows)
    values = {(row["method"], row["seed"]): row["test_nll"] for row in rows if row["n"] == 500}
    differences = [values["elbo", seed] - values["joint_log_dlm", seed] for seed in range(5)]
    assert finding.error == pytest.approx(stats.t.ppf(0.975, 4) * stats.sem(differences))


def test_a_size_needs_two_repetitions():
    rows = lines("banana", elbo=0.5)
    rows += fits("banana", "joint_log_dlm", 0.2, sizes=(100, 200))
    rows += fits("banana", "joint_log_dlm", 0.2, sizes=(500,), seeds=1)
    (finding,) = found(rows)
    assert finding.n == 200


def test_with_one_repetition_everywhere_there_is_a_finding_without_an_interval():
    rows = fits("banana", "elbo", 0.5, seeds=1) + fits("banana", "joint_log_dlm", 0.2, seeds=1)
    (finding,) = found(rows)
    assert finding.repetitions == 1
    assert finding.difference == pytest.approx(0.3, abs=0.01)
    assert finding.error == math.inf


def test_a_finding_needs_a_margin_and_a_rival():
    assert found(lines("banana", beta_elbo=0.5, joint_log_dlm=0.2)) == []
    assert found(lines("banana", elbo=0.5)) == []


def test_the_largest_differences_in_margins_come_first_and_five_are_shown():
    rows = []
    datasets = ("banana", "thyroid", "twonorm", "ringnorm", "abalone", "pol")
    for rank, dataset in enumerate(datasets):
        rows += lines(dataset, elbo=0.5, beta_elbo=0.45 - 0.05 * rank)
    assert [finding.dataset for finding in found(rows)] == list(reversed(datasets))[:5]


def test_of_two_parameterisations_the_larger_difference_is_shown_and_ranks():
    rows = lines("banana", elbo=0.5, joint_log_dlm=0.1)
    unwhitened = lines("banana", elbo=0.5, joint_log_dlm=0.4)
    rows += [row | {"parameterisation": "unwhitened"} for row in unwhitened]
    rows += lines("thyroid", elbo=0.5, joint_log_dlm=0.3)
    banana, thyroid = found(rows)
    assert (banana.dataset, thyroid.dataset) == ("banana", "thyroid")
    assert banana.q == "whitened"
    assert banana.difference == pytest.approx(0.4, abs=0.01)
