"""Verdicts on made-up tables, for the tests of claims."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
from typing import Any

from dlmexp.presentation.claims.claim import Part
from dlmexp.presentation.claims.columns import VerdictColumn, rows_of
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.judge import ClaimVerdict, Judged, judge
from tests.support.tidy import Made, fits

Rows = list[dict[str, Any]]
LOW = 0.2
HIGH = 0.5
# Means of methods that do not differ.
LOG_METHODS = dict.fromkeys(("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm"), HIGH)
ALL_METHODS = LOG_METHODS | dict.fromkeys(("joint_sq_dlm", "fixed_sq_dlm"), HIGH)


def lines(
    dataset: str, metric: str = "nll", trivial: float = 1.0, seeds: int = 5, **means: float
) -> Rows:
    """Return fits of methods with a mean each."""
    rows = []
    for method, mean in means.items():
        rows += fits(dataset, method, mean, metric=metric, trivial=trivial, seeds=seeds)
    return rows


def judged(rows: Rows, number: int, arrays: Any = None, **options: Any) -> Judged:
    """Return one claim judged on a table of these rows."""
    return judge(Made(rows, arrays), [number], **options)


def verdict(rows: Rows, number: int, arrays: Any = None, **options: Any) -> ClaimVerdict:
    """Return the verdict on a claim under the first column."""
    return judged(rows, number, arrays, **options).verdicts[0]


def words(rows: Rows, number: int, arrays: Any = None) -> str:
    """Return a verdict as tables show it."""
    return verdict(rows, number, arrays).words


def outcomes(part: Part) -> list[str]:
    """Return the outcomes of the tests of a part."""
    return [str(test.outcome) for test in part.tests]


def parts(rows: Rows, number: int, dataset: str = "", arrays: Any = None) -> list[Part]:
    """Return the parts of a claim that were run, all or those on one dataset."""
    run = verdict(rows, number, arrays).parts_run
    return [part for part in run if dataset in ("", part.dataset)]


def evidence(rows: Rows, arrays: Any = None) -> Evidence:
    """Return the evidence under the protocol `paper`."""
    made = Made(rows, arrays)
    column = VerdictColumn("paper")
    return Evidence(made, rows_of(made.table, column), rows_of(made.candidates, column))
