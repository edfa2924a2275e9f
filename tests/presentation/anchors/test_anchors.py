"""Published numbers beside made-up results."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

import json
import math

import numpy as np
import pytest

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.presentation.anchors import render
from dlmexp.presentation.anchors.compare import Anchor, AnchorVerdict, anchors
from dlmexp.presentation.anchors.published import COUNTERPARTS, published
from tests.support.cells import ELBO, candidates, fill
from tests.support.tidy import Made, fits


def results(dataset="uci_wine", method="elbo", nll=0.6138, scatter=0.02, seeds=10, **more):
    usual = {"task": "regression", "stands_for": None, "kernel": "rbf", "ard": True, "y_std": 1.0}
    usual |= {"objective_value": np.nan, "hyper_noise": np.nan, "test_mse": np.nan}
    usual |= {"lr": 0.01, "minibatch": 512.0, "max_iterations": 10_000.0}
    rows = fits(dataset, method, nll, sizes=(1439,), seeds=seeds, scatter=scatter)
    return [usual | row | more for row in rows]


def anchor(rows, method="SVGP", metric="test_nll", **values) -> Anchor:
    """Return the anchor of a method and metric on the data set of the rows."""
    dataset = rows[0]["dataset"]
    found = [
        one
        for one in anchors(Made(rows))
        if (one.dataset, one.method, one.metric) == (dataset, method, metric)
        and all(getattr(one, name) == value for name, value in values.items())
    ]
    (only,) = found
    return only


def test_all_published_numbers_are_there_and_have_a_counterpart():
    numbers = published()
    assert len(numbers) == 81
    assert set(numbers["method"]) == set(COUNTERPARTS)
    assert np.isfinite(numbers["value"]).all()


def test_number_within_two_standard_errors_is_met():
    found = anchor(results())
    assert found.verdict is AnchorVerdict.MET
    assert found.value == 0.6138
    assert found.ours == pytest.approx(0.6138, abs=0.02)
    assert found.why == "their M is not in print, ours is 10"


def test_difference_is_in_standard_errors_of_both():
    rows = results(nll=0.7)
    values = np.array([row["test_nll"] for row in rows])
    error = math.hypot(values.std(ddof=1) / math.sqrt(10), 0.0198)
    found = anchor(rows)
    assert found.difference == pytest.approx((values.mean() - 0.6138) / error, rel=1e-3)


@pytest.mark.parametrize(
    ("nll", "kernel", "verdict"),
    [
        (0.4, "rbf", AnchorVerdict.BETTER),
        (0.9, "rbf", AnchorVerdict.WORSE),
        (0.9, "matern52", AnchorVerdict.SETTINGS),
        (0.6138, "matern52", AnchorVerdict.MET),
    ],
    ids=["better", "worse", "other kernel", "met with another kernel"],
)
def test_verdict_follows_the_difference_and_the_settings(nll, kernel, verdict):
    found = anchor(results(nll=nll, kernel=kernel))
    assert found.verdict is verdict
    assert ("kernel matern52 ard for rbf ard" in found.why) == (kernel == "matern52")


def test_other_training_is_said():
    found = anchor(results(nll=0.9, minibatch=np.nan))
    assert found.verdict is AnchorVerdict.SETTINGS
    assert "10000 Adam steps" in found.why


def test_results_of_the_same_settings_are_taken():
    rows = results("uci_elevators", nll=0.9, M=1024)
    rows += results("uci_elevators", nll=0.4544, M=200, changes={"M": 200})
    found = anchor(rows)
    assert found.verdict is AnchorVerdict.MET
    assert "M " not in found.why


def test_log_likelihood_and_error_of_other_suites_are_in_units_of_the_target():
    rows = results("uci_power", "joint_log_dlm", nll=0.0, scatter=0.0, y_std=17.0, test_mse=0.05)
    found = anchor(rows, "dropout network", "test_log_likelihood")
    assert found.ours == pytest.approx(-math.log(17.0))
    assert found.verdict is AnchorVerdict.WORSE
    rmse = anchor(rows, "dropout network", "test_rmse")
    assert rmse.ours == pytest.approx(17.0 * math.sqrt(0.05))
    assert rmse.verdict is AnchorVerdict.BETTER
    assert "another method" in rmse.why


def test_other_splits_of_the_same_rows_are_said():
    rows = results("uci_housing", "joint_log_dlm", test_mse=0.01)
    found = anchor(rows, "dropout network", "test_rmse")
    assert "other splits of the same rows" in found.why


@pytest.mark.parametrize(("dataset", "word"), [("uci_wine", "alcohol"), ("uci_yacht", "logarithm")])
def test_number_of_another_target_is_never_met(dataset, word):
    (value,) = published().query(
        "dataset == @dataset and method == 'dropout network' and metric == 'test_rmse'"
    )["value"]
    found = anchor(
        results(dataset, "joint_log_dlm", test_mse=value**2), "dropout network", "test_rmse"
    )
    assert found.verdict is AnchorVerdict.SETTINGS
    assert math.isnan(found.difference)
    assert word in found.why


def test_objective_in_print_counts_every_row_twice():
    rows = results("uci_kin40k", n=5000, M=256, seeds=3, objective_value=0.44)
    found = anchor(rows, "SGPR", "objective_per_row", M=256)
    assert found.ours == pytest.approx(0.88)
    assert found.verdict is AnchorVerdict.MET


def test_power_ep_needs_its_alpha():
    more = {"n": 5000, "M": 256, "seeds": 3, "test_mse": 0.23**2}
    half = results("uci_kin40k", "power_ep", beta=0.5, **more)
    other = results("uci_kin40k", "power_ep", beta=0.1, **more)
    assert "alpha" not in anchor(half, "PEP 0.5", "test_rmse", M=256).why
    assert "alpha 0.1 for 0.5" in anchor(other, "PEP 0.5", "test_rmse", M=256).why


def test_noise_is_met_or_not_and_never_better():
    more = {"n": 5000, "M": 256, "seeds": 3}
    lower = results("uci_kin40k", hyper_noise=0.1**2, **more)
    assert anchor(lower, "SGPR", "noise_std", M=256).verdict is AnchorVerdict.WORSE
    same = results("uci_kin40k", hyper_noise=0.3**2, **more)
    assert anchor(same, "SGPR", "noise_std", M=256).verdict is AnchorVerdict.MET


def test_what_was_not_run_is_listed():
    found = anchors(Made(results()))
    assert len(found) == 81
    not_run = [one for one in found if one.verdict is AnchorVerdict.NOT_RUN]
    assert len(not_run) == 80
    lines = render.caption(found)
    assert lines[0] == "81 published numbers: 1 met, 80 not run"
    assert lines[1] == "met or better: 1 of 1 that were run (100 %)"
    assert json.loads(json.dumps(render.as_json(found), allow_nan=False))[0]["verdict"] == "met"
    assert render.anchor_table(found).row_count == 81


def test_folder_without_their_data_is_refused():
    with pytest.raises(UserError, match="no results on data of published numbers"):
        anchors(Made(results("pol")))


def test_command_refuses_in_one_line(tmp_path, capsys):
    fill(tmp_path, candidates("elbo", [ELBO]))
    assert main(["anchors", "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
