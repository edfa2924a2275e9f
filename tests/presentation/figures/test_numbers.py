"""From rows of the table to points: what is averaged, what is counted, and what never meets."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dlmexp.presentation.figures.declared.parts import BINARY_LOG, against_size
from dlmexp.presentation.figures.numbers import panel_rows
from dlmexp.presentation.figures.panels import Line, Panel, methods
from dlmexp.presentation.figures.plot import Request, drawings
from dlmexp.presentation.figures.stats import BAYES_NLL
from tests.support.drawings import made, measure_panel, points_by_method, rows_with
from tests.support.tidy import METHODS, sweep

(PANEL,) = against_size(("nll",), BINARY_LOG, "class-log", ("banana",))
ELBO_PANEL = Panel("sizes", "banana", "nll", methods("elbo"), "class-log")


def test_differences_are_taken_within_repetitions():
    cases = [("elbo", seed, 10.0 * seed) for seed in range(4)]
    cases += [("joint_log_dlm", seed, 9.9 * seed - 1) for seed in range(1, 5)]
    results = made(rows_with("method seed test_nll", *cases))
    row = points_by_method(PANEL, results)["joint_log_dlm"].iloc[0]
    assert row["minus_elbo"] == pytest.approx(-1.2), "over the common seeds 1, 2, 3"
    assert row["minus_elbo_std"] == pytest.approx(0.1)
    interval = stats.t.interval(0.95, 2, -1.2, 0.1 / 3**0.5)
    assert (row["low"], row["high"]) == pytest.approx(interval)


def test_there_are_no_differences_without_an_elbo():
    results = made(sweep(("beta_elbo", "joint_log_dlm")))
    for table in points_by_method(PANEL, results).values():
        assert "minus_elbo" not in table


def test_the_elbo_has_no_difference_to_itself():
    assert "minus_elbo" not in points_by_method(PANEL, made(sweep()))["elbo"]


def test_a_version_of_the_elbo_is_compared_with_the_elbo_itself():
    lines = (Line("elbo", role="rivals"), Line("elbo", role="rivals", version="recalibrated"))
    panel = Panel("sizes", "banana", "nll", lines, "rivals")
    cases = [(0, 1.0, 0.8), (1, 2.0, 1.6)]
    rows = rows_with("seed test_nll test_recalibrated_nll", *cases, role="rivals")
    plain, recalibrated = measure_panel(panel, made(rows)).series
    assert "minus_elbo" not in plain.points
    assert recalibrated.points["mean"].tolist() == pytest.approx([1.2])
    assert recalibrated.points["minus_elbo"].tolist() == pytest.approx([-0.3])


def test_warning_of_a_record_is_a_note_on_its_line():
    cases = [("elbo", 0, 1.0, None), ("elbo", 1, 2.0, "for readers; warning: wrong by 0.02")]
    rows = rows_with("method seed test_nll note", *cases)
    (series,) = measure_panel(ELBO_PANEL, made(rows)).nonempty_series
    assert series.notes == ["warning: wrong by 0.02 (1 result)"]


def test_failed_is_counted_and_incomplete_is_left_out():
    cases: list[tuple[Any, ...]] = [(seed, "done", 0, 1.0) for seed in range(3)]
    cases += [(3, "failed", 0, np.nan), (4, "done", 0, np.inf), (5, "missing", 1, np.nan)]
    measured = measure_panel(PANEL, made(rows_with("seed status missing test_nll", *cases)))
    row = measured.series[0].points.iloc[0]
    assert (row["mean"], row["repetitions"], row["failed"]) == (1.0, 3, 2)
    assert measured.notes == [
        "ELBO: 1 repetition with candidates not yet run, not drawn",
        "ELBO: up to 2 repetitions of a point failed, not averaged",
    ]


def test_a_metric_of_a_failed_row_is_not_averaged():
    cases = [(0, "done", 1.0), (1, "failed", 100.0)]
    table = points_by_method(ELBO_PANEL, made(rows_with("seed status test_nll", *cases)))["elbo"]
    assert table["mean"].tolist() == [1.0]


def test_excess_is_over_the_log_loss_of_the_truth():
    panel = Panel("sizes", "ringnorm_drawn", "excess_nll", methods("elbo"), "class-log")
    rows = rows_with("seed test_nll", (0, 0.5), (1, 0.7), dataset="ringnorm_drawn")
    (mean,) = points_by_method(panel, made(rows))["elbo"]["mean"]
    assert mean == pytest.approx(0.6 - BAYES_NLL["ringnorm_drawn"])


def test_excess_is_unknown_where_the_truth_is():
    panel = Panel("sizes", "banana", "excess_nll", methods("elbo"), "class-log")
    assert points_by_method(panel, made(sweep(("elbo",))))["elbo"].empty


def test_a_cell_of_two_groups_counts_once():
    row = {"method": "joint_log_dlm", "beta": 0.1, "key": "same", "test_nll": 1.0}
    results = made([row, row])
    results.candidates["group"] = [0, 1]
    line = Line("joint_log_dlm", beta=0.1, names="beta")
    panel = Panel("sizes", "banana", "nll", (line,), "class-log")
    table = points_by_method(panel, results)["joint_log_dlm"]
    assert table[["repetitions", "failed"]].to_numpy().tolist() == [[1, 0]]


def test_a_line_at_one_beta_is_drawn_from_candidates_that_are_not_selected():
    line = Line("joint_log_dlm", beta=10.0)
    panel = Panel("sizes", "banana", "nll", (line,), "class-log")
    cases = [(10.0, 2.0, 2.0), (1.0, 1.0, 1.0)]
    rows = rows_with("beta validation_nll test_nll", *cases, method="joint_log_dlm")
    assert points_by_method(panel, made(rows))["joint_log_dlm"]["mean"].tolist() == [2.0]


def test_a_line_of_an_estimator_has_its_samples_alone():
    line = Line("joint_log_dlm", "bmc", 10)
    panel = Panel("sizes", "banana", "nll", (line,), "class-log")
    cases = [("bmc", 10.0, 1.0), ("bmc", 100.0, 5.0), ("exact", np.nan, 9.0)]
    rows = rows_with("estimator samples test_nll", *cases, method="joint_log_dlm")
    assert points_by_method(panel, made(rows))["joint_log_dlm"]["mean"].tolist() == [1.0]


def test_by_keeps_rows_with_these_values():
    results = made(sweep(("elbo",)))
    rows = panel_rows(ELBO_PANEL, results, {"seed": ["1"], "n": ["500"]})
    assert set(rows["seed"]) == {1}
    assert set(rows["n"]) == {500}


def test_only_columns_that_are_needed_are_kept():
    columns = set(panel_rows(ELBO_PANEL, made(sweep(("elbo",))), {}, ["window"]))
    assert {"test_nll", "validation_nll", "split", "window", "line"} <= columns
    assert not {"test_mse", "host", "seconds", "lr"} & columns


def test_the_short_version_selects_among_the_betas_of_the_papers_grids():
    lines = methods("joint_log_dlm", role="edges") + methods(
        "joint_log_dlm", role="edges", version="short"
    )
    panel = Panel("sizes", "pol", "nll", lines, "edges")
    cases = [(0.01, 2.0), (0.0099, 1.0), (1.0, 3.0)]
    rows = [
        {"beta": beta, "validation_nll": value, "test_nll": 10 * value} for beta, value in cases
    ]
    facts = {"dataset": "pol", "method": "joint_log_dlm", "role": "edges"}
    whole, short = measure_panel(panel, made([facts | row for row in rows])).series
    assert whole.points["mean"].tolist() == [10.0]
    assert short.points["mean"].tolist() == [20.0]


def test_the_version_train_is_drawn_from_splits_that_train_on_validation_rows():
    lines = (Line("elbo", role="rivals"), Line("elbo", role="rivals", version="train"))
    panel = Panel("sizes", "banana", "nll", lines, "rivals")
    cases = [("counts-v2", 1.0), ("counts-train-v2", 2.0), ("counts-tenth-v2", 3.0)]
    rows = rows_with("split test_nll", *cases, role="rivals")
    measured = measure_panel(panel, made(rows))
    means = [series.points["mean"].tolist() for series in measured.series]
    assert means == [[1.0], [2.0]], "both are of one setting"


def test_a_panel_at_one_size_has_the_size_with_most_rows_and_the_larger_of_equals():
    panel = Panel("betas", "banana", "nll", methods("beta_elbo"), "class-log")
    rows = list(sweep(("beta_elbo",), sizes=(100, 200), seeds=range(2)))
    assert measure_panel(panel, made(rows)).n == 200
    more = list(sweep(("beta_elbo",), sizes=(100,), seeds=range(2, 3)))
    assert measure_panel(panel, made([*rows, *more])).n == 100


def test_a_panel_of_a_named_size_has_the_rows_of_that_size():
    panel = Panel("betas", "banana", "nll", methods("beta_elbo"), "class-log", n="5%")
    small = sweep(("beta_elbo",), sizes=(100,), size="5%")
    large = sweep(("beta_elbo",), sizes=(500,), seeds=range(9), size="80%")
    assert measure_panel(panel, made([*small, *large])).n == 100


def test_mse_is_that_of_the_row_which_mse_selects():
    panel = Panel("sizes", "pol", "mse", methods("joint_log_dlm"), "reg-sq")
    cases = [(1.0, 0.1, 0.9, 5.0), (0.1, 0.2, 0.3, 4.0)]
    names = "beta validation_nll validation_mse test_mse"
    rows = rows_with(names, *cases, dataset="pol", method="joint_log_dlm")
    assert points_by_method(panel, made(rows))["joint_log_dlm"]["mean"].tolist() == [4.0]


def test_whitened_coordinates_are_drawn_unless_others_are_wanted():
    rows = [*sweep(("elbo",)), *sweep(("elbo",), parameterisation="unwhitened", shift=5.0)]
    results = made(rows)
    whitened = measure_panel(ELBO_PANEL, results)
    unwhitened = measure_panel(ELBO_PANEL, results, parameterisation="unwhitened")
    assert (whitened.parameterisation, unwhitened.parameterisation) == ("whitened", "unwhitened")
    gap = unwhitened.series[0].points["mean"] - whitened.series[0].points["mean"]
    assert gap.tolist() == pytest.approx([5.0, 5.0])
    assert whitened.parameterisations == {"whitened", "unwhitened"}


def test_a_protocol_without_whitened_coordinates_is_drawn_in_those_that_it_has():
    results = made(sweep(parameterisation="unwhitened"))
    assert not points_by_method(PANEL, results)["elbo"].empty


def test_a_closed_form_of_regression_is_drawn_beside_unwhitened_lines():
    panel = Panel("sizes", "pol", "nll", methods("elbo", "joint_log_dlm"), "reg-log")
    rows = [
        *sweep(("elbo",), dataset="pol", form="collapsed"),
        *sweep(("joint_log_dlm",), dataset="pol"),
        *sweep(("joint_log_dlm",), dataset="pol", parameterisation="unwhitened", shift=5.0),
    ]
    measured = measure_panel(panel, made(rows), parameterisation="unwhitened")
    elbo, dlm = measured.series
    assert not elbo.points.empty
    assert (dlm.points["mean"] > 5).all()
    assert measured.parameterisations == frozenset()


def test_a_panel_knows_the_setting_and_the_command_of_its_rows():
    rows = sweep(("elbo",), command="dlmexp run experiment=mine")
    measured = measure_panel(ELBO_PANEL, made(rows))
    assert (measured.protocol, measured.changes, measured.task) == ("paper", "", "binary")
    assert measured.command == "dlmexp run experiment=mine"


def test_a_panel_without_rows_has_lines_without_points():
    measured = measure_panel(ELBO_PANEL, made(sweep(("elbo",))), protocol="released")
    assert measured.requested_protocol == "released"
    assert measured.protocol is None
    assert not measured.nonempty_series


def test_points_at_one_size_alone_are_a_single_size():
    assert measure_panel(PANEL, made(sweep(sizes=(100,)))).has_bars
    assert not measure_panel(PANEL, made(sweep())).has_bars


OTHER = {
    "protocol": "released",
    "changes": {"training.lr": 0.01},
    "evaluate": "10",
    "data": "other",
    "split": "counts-v2",
    "parameterisation": "unwhitened",
    "role": "anatomy",
    "dataset": "thyroid",
    "estimator": "quadrature",
}
SOME_METHODS = st.sets(st.sampled_from(METHODS), min_size=1)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(OTHER)), SOME_METHODS, SOME_METHODS, st.booleans())
def test_runs_that_differ_in_a_setting_never_share_a_point(setting, first, second, side_by_side):
    """The second run is a thousand times worse: a mean of both would have some of each in it."""
    other: Any = {setting: OTHER[setting]}
    rows = [*sweep(sorted(first)), *sweep(sorted(second), shift=1000.0, **other)]
    request = Request(compare_protocols=side_by_side and setting == "protocol")
    for drawn in drawings(made(rows), ["class-log"], request):
        for measured in drawn.measured_panels:
            tables = [series.points for series in measured.nonempty_series]
            means = [mean for table in tables for mean in table["mean"]]
            assert all(mean < 100 for mean in means) or all(mean > 900 for mean in means)
            assert _largest_gap(tables) < 100


def _largest_gap(tables: list[pd.DataFrame]) -> float:
    """Return the largest difference to the ELBO in any of the tables."""
    gaps = [table["minus_elbo"].abs().max() for table in tables if "minus_elbo" in table]
    return float(np.nanmax([0.0, *gaps]))
