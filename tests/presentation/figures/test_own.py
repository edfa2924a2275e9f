"""The figure of a user's own data."""

import numpy as np
import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.figures.own import own_datasets, own_figure
from dlmexp.presentation.figures.plot import draw
from tests.support.drawings import made, rows_with
from tests.support.tidy import sweep


def panels_of(*rows: dict, kind: str) -> list:
    """Return the panels of one kind in the figure of a dataset `houses`."""
    return [panel for panel in own_figure("houses", made(rows)).panels if panel.kind == kind]


def test_datasets_of_conf_and_of_figures_are_not_own():
    assert own_datasets(["banana", "houses", "sarcos_test"]) == ["houses"]


def test_panels_without_results_are_left_out():
    results = made(sweep(dataset="houses", task="regression", metric="mse"))
    drawn = draw(results, "own-houses")
    kinds = [(measured.panel.kind, measured.panel.metric) for measured in drawn.panels_with_results]
    assert kinds == [("sizes", "nll"), ("sizes", "mse"), ("betas", "nll")]


def test_errors_are_those_of_the_closing_table():
    """In the units of the target, at the beta of the lowest NLL, though MSE selects another."""
    rows = list(sweep(("joint_log_dlm",), (100,), (0,), dataset="houses", task="regression"))
    for row in rows:
        distance = abs(np.log10(row["beta"]))
        row |= {"validation_mse": 1 - distance, "test_mse": 1.0, "test_rmse": 3 + distance}
    measured = draw(made(rows), "own-houses").panels_with_results
    panels = {panel.panel.metric: panel for panel in measured if panel.panel.kind == "sizes"}
    assert "mse" not in panels
    (series,) = panels["rmse"].series
    assert series.points["mean"].tolist() == [3.0]


def test_what_computes_it_is_the_command_of_its_records():
    results = made(sweep(dataset="houses", command="dlmexp fit houses.csv"))
    assert draw(results, "own-houses").commands == ["dlmexp fit houses.csv"]


def test_a_misspelled_dataset_is_corrected():
    with pytest.raises(UserError, match="own-houses"):
        draw(made(sweep(dataset="houses")), "own-house")


def test_the_estimator_is_named_unless_a_method_has_only_the_exact_one():
    cases = [
        ("elbo", "exact", np.nan),
        ("joint_log_dlm", "exact", np.nan),
        ("joint_log_dlm", "bmc", 10.0),
    ]
    rows = rows_with("method estimator samples", *cases, dataset="houses", test_nll=1.0)
    lines = panels_of(*rows, kind="sizes")[0].lines
    assert [line.label for line in lines] == ["ELBO", "joint DLM, bMC-10", "joint DLM, exact"]
    assert [line.samples for line in lines] == [None, 10, None]


def test_lines_have_the_order_of_our_methods_then_of_their_names():
    cases = [("mine",), ("fixed_log_dlm",), ("elbo",), ("another",)]
    rows = rows_with("method", *cases, dataset="houses", test_nll=1.0)
    lines = panels_of(*rows, kind="sizes")[0].lines
    assert [line.method for line in lines] == ["elbo", "fixed_log_dlm", "another", "mine"]


def test_curves_of_methods_without_fits_are_lines_of_metrics_too():
    cases = [("elbo", "fit"), ("elbo", "curve"), ("joint_log_dlm", "curve")]
    rows = rows_with("method role", *cases, dataset="houses", test_nll=1.0, minibatch=10.0)
    lines = panels_of(*rows, kind="sizes")[0].lines
    assert [(line.method, line.role) for line in lines] == [
        ("elbo", "fit"),
        ("joint_log_dlm", "curve"),
    ]


@pytest.mark.parametrize(("minibatch", "x"), [(10.0, "epochs"), (np.nan, "iterations")])
def test_curves_of_minibatches_are_against_epochs(minibatch, x):
    rows = rows_with("role minibatch", ("curve", minibatch), dataset="houses", test_nll=1.0)
    (panel,) = panels_of(*rows, kind="curve")
    assert panel.x == x


@pytest.mark.parametrize(("task", "has_lines"), [("binary", True), ("regression", False)])
def test_reliability_is_of_binary_data_alone(task, has_lines):
    (panel,) = panels_of(*sweep(dataset="houses", task=task), kind="reliability")
    assert bool(panel.lines) == has_lines


def test_only_methods_that_select_their_beta_are_drawn_against_it():
    (panel,) = panels_of(*sweep(dataset="houses"), kind="betas")
    assert [line.method for line in panel.lines] == ["beta_elbo", "joint_log_dlm", "fixed_log_dlm"]
    (without,) = panels_of(*sweep(("elbo",), dataset="houses"), kind="betas")
    assert without.lines == ()
