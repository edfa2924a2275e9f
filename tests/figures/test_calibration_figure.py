"""Calibration in figures, selections, evidence and tables: where records have it, and where they are older."""

import numpy as np
import pandas as pd
import pytest

from dlmexp.claims.evidence import selected
from dlmexp.cli import main
from dlmexp.figures.families.calibration import of_binary, of_regression
from dlmexp.records.collect import collect_pack
from dlmexp.records.pack import hyperparameters
from dlmexp.records.results import load
from dlmexp.records.table import table
from tests.support.made_up import fill, fit, method_cell
from tests.support.series import panel_series

BETAS = ((10.0, 0.4), (1.0, 0.2), (0.1, 0.3))  # beta, validation NLL: 1 is selected


def regression(seed: int, **scores: float) -> list:
    """Joint DLM at three betas; the lowest NLL is at beta = 1, the lowest CRPS is not."""
    found = []
    for beta, nll in BETAS:
        own = {name: value + (0.0 if beta == 1.0 else -0.05) for name, value in scores.items()}
        found.append(fit(method_cell("joint_log_dlm", "cadata", n=691, seed=seed, beta=beta), nll=nll, **own))
    return found


def joint(series):
    return next(one for one in series if one.line.method == "joint_log_dlm")


def test_calibration_is_that_of_the_beta_with_the_lowest_nll(results):
    read = results(*(one for seed in range(3) for one in regression(seed, crps=0.3 + 0.1 * seed)))
    assert all(one.selected_by("crps") == "nll" for one in read.choices if one.method == "joint_log_dlm")
    found = selected(read, "cadata", "joint_log_dlm", "crps")
    assert found.values == pytest.approx({(691, seed): 0.3 + 0.1 * seed for seed in range(3)})
    assert found.lost == 0


def test_records_from_before_calibration_are_no_losses(results):
    read = results(*regression(0), *regression(1, crps=0.4))
    found = selected(read, "cadata", "joint_log_dlm", "crps")
    assert (found.values, found.lost) == ({(691, 1): pytest.approx(0.4)}, 0)
    series = joint(panel_series(of_regression("cadata")[2], read))
    assert series.points[["x", "mean", "repetitions", "failed"]].values.tolist() == [[691, pytest.approx(0.4), 1, 0]]
    assert series.notes == ["joint DLM, n = 691: 1 repetition has records without crps, from before it was measured"]
    assert joint(panel_series(of_regression("cadata")[2], results(*regression(0)))).empty


def test_tables_have_columns_for_what_some_record_has():
    plain = [column for column in map(str, table(regression(0))) if column.startswith("test_")]
    assert plain == ["test_nll", "test_mse", "test_error", "test_mre"]
    found = table([*regression(0), *regression(1, crps=0.4)])
    assert found["test_crps"].notna().sum() == 3


def test_coverage_against_nominal(results):
    scores = {"coverage_50": 0.55, "coverage_90": 0.88, "coverage_95": 0.96}
    series = joint(panel_series(of_regression("cadata")[0], results(*regression(0, **scores))))
    assert series.n == 691
    assert series.points[["x", "mean"]].values.tolist() == [[0.5, 0.55], [0.9, 0.88], [0.95, 0.96]]


def binary(seed: int, beta: float, nll: float) -> tuple:
    p = np.linspace(0.02, 0.98, 15)
    arrays = {"reliability_p": p, "reliability_y": p**2 + 0.01 * seed, "reliability_rows": np.full(15, 7.0)}
    cell = method_cell("joint_log_dlm", "banana", n=200, seed=seed, beta=beta)
    return fit(cell, nll=nll, error=0.1, brier=0.1, ece=0.05), {
        name: array.astype(np.float32) for name, array in arrays.items()
    }


def test_reliability_by_bins_also_from_a_light_pack(tmp_path):
    fill(tmp_path / "source", (binary(seed, *pair) for seed in range(2) for pair in BETAS))
    collect_pack(str(tmp_path / "source"), str(tmp_path / "records.tar.xz"), light=True)
    for folder in (tmp_path / "source", tmp_path):
        points = joint(panel_series(of_binary("banana")[0], load(folder))).points
        p = np.linspace(0.02, 0.98, 15)
        assert points["x"].to_numpy() == pytest.approx(p, abs=1e-6)
        assert points["mean"].to_numpy() == pytest.approx(p**2 + 0.005, abs=1e-6)
        assert set(points["repetitions"]) == {2}
    assert hyperparameters(binary(0, 1.0, 0.1)[1] | {"Z": np.zeros(1)}).keys() == {"Z"}


def test_the_figure_is_drawn_with_what_there_is(tmp_path, capsys):
    coverage = {"coverage_50": 0.55, "coverage_90": 0.88, "coverage_95": 0.96, "width_95": 2.0, "crps": 0.3}
    records = [one for seed in range(2) for one in regression(seed, **coverage)]
    fill(tmp_path, [*records, *(binary(seed, *pair) for seed in range(2) for pair in BETAS)])
    assert main(["plot", "calibration", "--results", str(tmp_path), "--format", "png"]) == 0
    said = capsys.readouterr().out
    assert "missing: abalone: nothing run" in said
    numbers = pd.read_csv(tmp_path / "figures" / "calibration.csv")
    assert set(numbers["metric"]) == {"coverage", "width_95", "crps", "reliability", "ece", "brier"}
