"""Loading results, and picking from them."""

import numpy as np
import pandas as pd
import pytest

from dlmexp import catalogue as conf
from dlmexp.errors import UserError
from dlmexp.records.results import load, load_several, on_test
from dlmexp.records.table import select
from tests.support.made_up import cell, curves, fit, method_cell, sweep


def test_selection_is_that_of_the_sweep_table(results) -> None:
    """The slimmed table that makes selection fast chooses what `select` chooses from the full one."""
    found = results(
        *sweep("cadata", ("elbo", "beta_elbo", "fitc", "joint_log_dlm", "joint_sq_dlm"), [100, 200], range(3), 5),
        *sweep("abalone", ("beta_elbo", "joint_log_dlm"), [100], range(3), 5, estimator="bmc", samples=10),
        *sweep("abalone", ("beta_elbo", "fixed_log_dlm"), [100], range(2), 5, parameterisation="unwhitened"),
    )
    for metric in ("nll", "mse"):
        rows = found.frame[found.frame["task"] == "regression"] if metric == "mse" else found.frame
        chosen = select(rows, conf.methods(), metric)
        expected = set(zip(chosen["method"], chosen["key"], strict=True))
        assert found.selected(metric) == expected
        assert len(expected) > 10


def test_error_and_mre_are_selected_by_nll(results) -> None:
    low = fit(method_cell("joint_log_dlm", "banana", beta=2.0), nll=0.1, error=0.5)
    high = fit(method_cell("joint_log_dlm", "banana", beta=1.0), nll=0.2, error=0.1)
    found = results(low, high)
    assert ("joint_log_dlm", low["key"]) in found.selected("error")
    assert found.selected("error") == found.selected("nll")


def test_elbo_is_the_candidate_at_beta_one(results) -> None:
    found = results(*(cell("banana", beta=beta) for beta in (0.5, 1.0, 2.0)))
    assert [r["cell"]["beta"] for r in found.candidates("fits", "banana", "elbo")] == [1.0]
    assert len(found.candidates("fits", "banana", "beta_elbo")) == 3


def test_curves_and_fits_are_kept_apart(results) -> None:
    found = results(
        *curves("abalone", 2000, range(1)),
        method_cell("joint_log_dlm", "abalone", n=2000, beta=0.1, estimator="bmc", samples=10),
    )
    assert len(found.candidates("curves", "abalone", "joint_log_dlm", "bmc", 10)) == 1
    assert len(found.candidates("fits", "abalone", "joint_log_dlm", "bmc", 10)) == 1


def test_metric_of_a_failed_cell_is_nan() -> None:
    assert np.isnan(on_test({"result": {"reason": "NaN"}}, "nll"))


def test_frame_has_a_row_per_record(results) -> None:
    found = results(*sweep("banana", ("elbo",), [100], range(4), 1))
    assert isinstance(found.frame, pd.DataFrame)
    assert len(found.frame) == 4


def test_no_folder_and_no_records_are_said_in_a_sentence(tmp_path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no records"):
        load(tmp_path)


def test_folders_get_the_shortest_labels_that_differ(results, tmp_path) -> None:
    for name in ("a/results", "b/results"):
        (tmp_path / name).mkdir(parents=True)
        (results(cell())).store.root.joinpath("records").rename(tmp_path / name / "records")
    several = load_several([str(tmp_path / "a/results"), str(tmp_path / "b/results")])
    assert [one.label for one in several] == ["a/results", "b/results"]
    with pytest.raises(UserError, match="named twice"):
        load_several([str(tmp_path / "a/results"), str(tmp_path / "a/../a/results")])
