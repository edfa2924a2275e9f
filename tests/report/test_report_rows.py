"""The table: what is averaged with what, and what is counted."""

import numpy as np
import pytest

from dlmexp.records.results import Results
from dlmexp.records.store import Store
from dlmexp.report.rows import rows
from tests.support.made_up import asked, cell, curves, failed, fit, method_cell


def table(*records) -> list:
    return rows(Results(Store("nowhere"), records, asked(records)))


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


def test_a_collapsed_fit_has_no_coordinates_of_q() -> None:
    (row,) = table(fit(cell("cadata", "regression"), nll=0.3, mse=0.1))
    assert (row.method, row.q) == ("ELBO", "collapsed")


def test_a_beta_1_elbo_is_a_row_of_beta_elbo_only_where_that_was_asked_for() -> None:
    one, two = (fit(cell("banana", beta=beta), nll=0.3, error=0.1) for beta in (1.0, 2.0))
    assert [row.method for row in table(one)] == ["ELBO"]
    assert [(row.method, row.beta) for row in table(one, two)] == [("ELBO", 1.0), ("β-ELBO", 2.0)]


def test_a_repetition_with_part_of_its_grid_is_neither_a_result_nor_lost() -> None:
    cells = [[method_cell("joint_log_dlm", "banana", seed=seed, beta=b) for b in (4.0, 2.0)] for seed in range(3)]
    records = [[fit(one, nll=one.beta or 0.0, error=0.1) for one in some] for some in cells]
    of = asked(record for some in records for record in some)
    there = [*records[0], *records[1], records[2][0]]
    (row,) = rows(Results(Store("nowhere"), there, of))
    assert (row.repetitions, row.lost) == (2, 0)
    assert rows(Results(Store("nowhere"), records[2][:1], of)) == []


def test_selections_from_two_grids_are_two_rows() -> None:
    records = [fit(method_cell("joint_log_dlm", "banana", beta=beta), nll=beta, error=0.1) for beta in (4.0, 2.0, 1.0)]
    both = [*asked(records, "4, 2, 1"), *asked(records[:2], "4, 2")]
    found = rows(Results(Store("nowhere"), records, both))
    assert [row.beta for row in found] == [1.0, 2.0]
    assert [row.settings for row in found] == [{"β grid": "4, 2, 1"}, {"β grid": "4, 2"}]


def test_other_settings_are_other_rows() -> None:
    found = table(
        fit(method_cell("fitc", "pol"), nll=0.3, mse=0.1), fit(method_cell("fitc", "pol", M=20), nll=9.0, mse=1.0)
    )
    assert sorted(row.M for row in found) == [20, 100]
    assert all(row.repetitions == 1 for row in found)


def test_a_setting_that_only_some_rows_have_is_a_column() -> None:
    found = table(
        fit(method_cell("fitc", "pol"), nll=0.3, mse=0.1),
        fit(method_cell("fitc", "pol", noise_floor=0.01), nll=0.4, mse=0.1),
    )
    assert [row.settings for row in found] == [{"noise_floor": ""}, {"noise_floor": "0.01"}]


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
