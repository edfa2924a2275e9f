"""The table: what is averaged with what, and what is counted."""

import numpy as np
import pytest

from dlmexp.records.results import Results
from dlmexp.records.store import Store
from dlmexp.report.rows import rows
from tests.support.made_up import cell, curves, failed, fit, method_cell


def table(*records) -> list:
    return rows(Results(Store("nowhere"), records))


def test_repetitions_are_averaged_at_their_selected_beta() -> None:
    records = [
        fit(method_cell("joint_log_dlm", "banana", seed=seed, beta=beta), nll=value + seed, error=0.2, validation=value)
        for seed in range(3)
        for beta, value in ((4.0, 1.0), (2.0, 0.5))
    ]
    (row,) = table(*records)
    assert row.metrics["nll"] == (pytest.approx(1.5), pytest.approx(1.0))
    assert row.metrics["mse"] is None
    assert (row.betas, row.beta, row.repetitions, row.lost) == ("2 (3 times)", 2.0, 3, 0)
    assert (row.method, row.estimator, row.q, row.converged) == ("joint DLM", "exact", "whitened", 1.0)


def test_a_beta_1_elbo_is_a_row_of_elbo_and_a_candidate_of_beta_elbo() -> None:
    found = table(fit(cell("banana"), nll=0.3, error=0.1))
    assert {row.method for row in found} == {"ELBO", "β-ELBO"}


def test_other_settings_are_other_rows() -> None:
    found = table(
        fit(method_cell("fitc", "pol"), nll=0.3, mse=0.1), fit(method_cell("fitc", "pol", M=20), nll=9.0, mse=1.0)
    )
    assert sorted(row.M for row in found) == [20, 50]
    assert all(row.repetitions == 1 for row in found)


@pytest.mark.parametrize("how", ["failed", "nan", "inf"])
def test_lost_repetitions_are_counted(how: str) -> None:
    of = [method_cell("joint_log_dlm", "banana", seed=seed) for seed in range(3)]
    lost = failed(of[2]) if how == "failed" else fit(of[2], nll=float(how), error=0.1, validation=0.1)
    (row,) = table(*(fit(one, nll=0.5, error=0.1) for one in of[:2]), lost)
    assert (row.repetitions, row.lost) == (2, 1)
    assert row.metrics["nll"] is not None
    assert row.metrics["nll"][0] == 0.5


def test_everything_lost_is_a_row_without_metrics() -> None:
    (row,) = table(failed(method_cell("joint_log_dlm", "banana")))
    assert (row.repetitions, row.lost) == (0, 1)
    assert row.metrics["nll"] is None


def test_learning_curves_are_rows_by_beta() -> None:
    cells = [c for beta in (0.1, 1.0) for c in curves("abalone", 2000, range(2), beta=beta)]
    found = table(*(fit(c, nll=2.0, mre=0.1) for c in cells))
    assert len(found) == 20
    assert {row.beta for row in found} == {0.1, 1.0}
    assert {row.repetitions for row in found} == {2}


def test_one_repetition_has_no_deviation() -> None:
    (row,) = table(fit(method_cell("joint_log_dlm", "banana"), nll=0.5, error=0.1))
    assert row.metrics["nll"] is not None
    assert np.isnan(row.metrics["nll"][1])
