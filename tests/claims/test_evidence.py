"""Margins, lines and what is said where something is missing."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import numpy as np
import pytest

from dlmexp.claims.evidence import Evidence, coded
from dlmexp.claims.judge import Column, rows_of
from tests.support.tidy import Made, fits, judged


def evidence(rows: list[dict]) -> Evidence:
    made = Made(rows)
    frames = [rows_of(coded(frame), Column("paper")) for frame in (made.table, made.candidates)]
    return Evidence(made, *frames, set, False)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("dataset", "metric", "elbo", "trivial", "margin"),
    [
        ("banana", "nll", 0.5, 0.7, 0.01),  # 5 % of what is explained
        ("ringnorm", "nll", 0.05, 0.7, 0.005),  # 10 % of ELBO's NLL: 5 % of what is explained is half of it
        ("ringnorm", "error", 0.02, 0.5, 0.002),
        ("pol", "nll", 0.0, 1.4, 0.07),  # the NLL of a density has no zero: at 0 and below it is as good as elsewhere
        ("pol", "nll", -0.6, 1.4, 0.1),
        ("pol", "mse", 0.1, 1.0, 0.01),
        ("banana", "nll", 0.8, 0.7, np.nan),  # ELBO explains nothing
    ],
)
def test_margin(dataset: str, metric: str, elbo: float, trivial: float, margin: float) -> None:
    rows = fits(dataset, "elbo", elbo, metric=metric, scatter=0, trivial=trivial)
    assert evidence(rows).margin(dataset, metric) == pytest.approx(np.full(3, margin), nan_ok=True)


def test_where_elbo_was_not_fitted_its_learning_curve_gives_the_margin() -> None:
    rows = fits("flights", "beta_elbo", 0.6, sizes=(900,), scatter=0, trivial=0.7, role="curve", beta=1.0)
    assert evidence(rows).margin("flights", "nll") == pytest.approx([0.005])
    assert np.isnan(evidence(fits("flights", "joint_log_dlm", 0.6, sizes=(900,))).margin("flights", "nll")).all()


def test_failed_repetitions_are_left_out_and_counted() -> None:
    rows = fits("ringnorm", "elbo", 0.2) + fits("ringnorm", "joint_log_dlm", 0.1)
    rows += fits("ringnorm", "fixed_log_dlm", 0.1)
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    rows[-2] |= {"test_nll": np.inf}
    parts = judged(rows, 7).parts.query("dataset == 'ringnorm'")
    assert list(parts["repetitions"]) == [5, 3]
    assert list(parts["verdict"]) == ["holds", "holds"]
    assert "2 failed" in parts["reason"].iloc[1]


def test_too_few_repetitions_say_so_in_the_table() -> None:
    rows = fits("ringnorm", "elbo", 0.2, seeds=2) + fits("ringnorm", "joint_log_dlm", 0.1, seeds=2)
    found = judged(rows, 7)
    assert found.verdicts["words"].tolist() == ["too few repetitions (2 of 3)"]
    assert found.verdicts["verdict"].tolist() == ["undecidable"]


def test_a_rival_that_was_not_run_is_named() -> None:
    rows = fits("pol", "elbo", 0.5) + fits("pol", "joint_log_dlm", 0.1) + fits("pol", "beta_elbo", 0.5)
    part = judged(rows, 1).parts.query("dataset == 'pol'").iloc[0]
    assert part["verdict"] == "undecidable"
    assert "FITC" in part["reason"]


def test_a_verdict_tells_commands_commits_and_the_number_of_records() -> None:
    rows = fits("ringnorm", "elbo", 0.2, command="dlmexp run a", commit="1")
    rows += fits("ringnorm", "joint_log_dlm", 0.1, command="dlmexp run b", commit="2")
    part = judged(rows, 7).parts.query("dataset == 'ringnorm'").iloc[0]
    assert (part["records"], part["commands"], part["commits"]) == (30, ["dlmexp run a", "dlmexp run b"], ["1", "2"])
