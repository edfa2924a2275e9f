"""From rows of the table to points: what is averaged, what is counted, and what never meets."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dlmexp.figures.declared import binary_vs_n, histogram, mse_vs_n
from dlmexp.figures.numbers import measure, panel_rows
from dlmexp.figures.panels import Line, Panel, estimators, methods
from dlmexp.figures.plot import Request, drawings
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.stats import half_width, statistics
from tests.figures.made_up import METHODS, MadeUp, curves, nll, sweep

PANEL = binary_vs_n("banana", "nll", "class-log")


def points(panel: Panel, results: MadeUp, **choice) -> dict[str, pd.DataFrame]:
    found = measure(panel, results, panel_rows(panel, results, {}), **choice)
    return {one.line.method: one.points for one in found.series}


@given(st.lists(st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=3, max_size=3), min_size=1, max_size=8))
def test_statistics_are_those_of_the_finite_values(rows) -> None:
    found = statistics([1, 2, 3], np.array(rows), len(rows))
    for i, column in enumerate(np.array(rows).T):
        finite = column[np.isfinite(column)]
        row = found.iloc[i]
        assert (row["repetitions"], row["failed"]) == (len(finite), len(rows) - len(finite))
        assert row["mean"] == pytest.approx(finite.mean() if len(finite) else np.nan, nan_ok=True)
        assert row["std"] == pytest.approx(finite.std(ddof=1) if len(finite) > 1 else np.nan, nan_ok=True, abs=1e-9)


def test_median_and_quartiles() -> None:
    found = statistics([0], np.array([[1.0], [2.0], [3.0], [4.0], [100.0]]), 5, median=True).iloc[0]
    assert (found["median"], found["q25"], found["q75"]) == (3, 2, 4)


def test_interval_is_students() -> None:
    values = np.array([[1.0], [2.0], [4.0]])
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values[:, 0]))
    found = statistics([0], values, 3)
    assert float(half_width(found, "ci95").iloc[0]) == pytest.approx((high - low) / 2)
    assert float(half_width(found, "std").iloc[0]) == pytest.approx(values.std(ddof=1))


def test_sizes_are_means_over_seeds_at_the_selected_beta() -> None:
    found = points(PANEL, MadeUp(sweep()))
    assert [*found] == [*METHODS]
    for method, table in found.items():
        assert [*table["x"]] == [100, 500]
        for n, mean in zip(table["x"], table["mean"], strict=True):
            assert mean == pytest.approx(np.mean([nll(method, n, seed, 1.0) for seed in range(3)]))
    assert found["beta_elbo"]["betas"][0] == "1 1 1"
    assert found["elbo"]["betas"][0] == ""


def test_differences_are_taken_within_repetitions() -> None:
    rows = [{"method": "elbo", "seed": seed, "test_nll": 10.0 * seed} for seed in range(4)]
    rows += [
        {"method": "joint_log_dlm", "seed": seed, "test_nll": 10.0 * seed - 1 - 0.1 * seed} for seed in range(1, 5)
    ]
    table = points(PANEL, MadeUp(rows))["joint_log_dlm"].iloc[0]
    assert table["minus_elbo"] == pytest.approx(-1.2), "over the common seeds 1, 2, 3"
    low, high = stats.t.interval(0.95, 2, -1.2, 0.1 / 3**0.5)
    assert (table["low"], table["high"]) == pytest.approx((low, high))


def test_failed_is_counted_and_incomplete_is_left_out() -> None:
    rows = [{"seed": seed, "test_nll": 1.0} for seed in range(3)]
    rows += [{"seed": 3, "status": "failed"}, {"seed": 4, "test_nll": np.inf}, {"seed": 5, "status": "incomplete"}]
    results = MadeUp(rows)
    found = measure(PANEL, results, panel_rows(PANEL, results, {}))
    row = found.series[0].points.iloc[0]
    assert (row["mean"], row["repetitions"], row["failed"]) == (1.0, 3, 2)
    assert any("1 repetition with candidates not yet run" in note for note in found.notes)
    assert any("2 repetitions of a point failed" in note for note in found.notes)


def test_mse_is_that_of_the_row_selected_by_mse() -> None:
    rows = [
        {"dataset": "pol", "task": "regression", "method": "beta_elbo", "beta": beta, "validation_nll": by_nll,
         "validation_mse": by_mse, "test_mse": test, "test_nll": 5.0}
        for beta, by_nll, by_mse, test in ((1.0, 0.1, 0.9, 7.0), (0.1, 0.2, 0.8, 3.0))
    ]  # fmt: skip
    assert points(mse_vs_n("pol"), MadeUp(rows))["beta_elbo"]["mean"].tolist() == [3.0]


def test_betas_have_every_candidate_and_a_flat_line_without_beta() -> None:
    changes = {"dataset": "cadata", "task": "regression", "size": "5%"}
    rows = [*sweep(("beta_elbo",), (691,), **changes)]
    rows += [{"method": "fitc", "beta": np.nan, "n": 691, "test_nll": 0.5, **changes}]
    panel = Panel("betas", "cadata", "nll", methods("beta_elbo", "fitc"), "reg-log", n="5%")
    found = points(panel, MadeUp({**row, "size": "5%"} for row in rows))
    assert found["beta_elbo"]["x"].tolist() == [0.1, 1.0, 10.0]
    assert found["beta_elbo"]["validation"].idxmin() == 1
    assert found["fitc"]["x"].isna().all()


def test_a_cell_of_two_groups_counts_once() -> None:
    line = Line("joint_log_dlm", beta=0.1, names="beta")
    rows = [{"method": "joint_log_dlm", "beta": 0.1, "key": "same", "test_nll": 1.0, "role": "fit", "data": "made-up"}]
    results = MadeUp([rows[0], {**rows[0], "seed": 0}])
    results.candidates["group"] = [0, 1]
    panel = Panel("sizes", "banana", "nll", (line,), "class-log")
    assert points(panel, results)["joint_log_dlm"]["repetitions"].tolist() == [1]


def test_a_curve_that_has_stopped_keeps_its_last_value() -> None:
    results = curves([("bmc", 1)])
    panel = Panel("curve", "abalone", "nll", estimators("joint_log_dlm", 0.1, ("bmc", (1,))), "count-learning")
    (table,) = points(panel, results).values()
    assert table["x"].max() == 70
    ends = [2 + seed + np.exp(-(50 + 10 * seed) / 10) for seed in range(3)]
    assert table["mean"].iloc[-1] == pytest.approx(np.mean(ends))


def test_draws_are_in_units_of_the_gradient_and_of_one_seed() -> None:
    about = {"dataset": "abalone", "task": "count", "role": "gradient", "method": "fixed_log_dlm", "beta": 0.1,
             "estimator": "ups", "norm2_G": 4.0, "bias": 2.0, "bias_quadrature": 1.0, "base": "b"}  # fmt: skip
    rows = [{**about, "seed": seed, "samples": samples} for samples in (1, 10) for seed in range(2)]
    arrays = {f"key{i}": {"error": np.full(5, 8.0 + i), "condition_i": np.ones(5)} for i in range(4)}
    results = MadeUp(rows, arrays)
    for metric, expected in (("error", 2.0), ("condition_i", 1.0)):
        panel = histogram("ups", metric)
        found = measure(panel, results, panel_rows(panel, results, {})).series[0]
        assert found.draws is not None
        assert found.draws.tolist() == [expected] * 5
        assert found.points["repetitions"].iloc[0] == 2
        assert found.points["error_of_G"].iloc[0] == pytest.approx(0.25)


def test_reliability_is_by_bin() -> None:
    arrays = {f"key{i}": {"reliability_p": np.array([0.1, 0.9]), "reliability_y": np.array([0.2, 0.8 + 0.1 * i])}
              for i in range(2)}  # fmt: skip
    results = MadeUp([{"seed": seed, "test_nll": 1.0} for seed in range(2)], arrays)
    panel = Panel("reliability", "banana", "reliability", methods("elbo"), "class-log")
    table = points(panel, results)["elbo"]
    assert table["x"].tolist() == [0.1, 0.9]
    assert table["mean"].tolist() == pytest.approx([0.2, 0.85])


def test_coordinates_of_q() -> None:
    both = [*sweep(), *sweep(parameterisation="unwhitened", shift=1.0)]
    assert points(PANEL, MadeUp(both))["elbo"]["mean"].max() < 1
    assert points(PANEL, MadeUp(both), parameterisation="unwhitened")["elbo"]["mean"].min() > 1
    only = MadeUp(sweep(parameterisation="unwhitened"))
    assert not points(PANEL, only)["elbo"].empty, "a protocol without the whitened ones is drawn in those that it has"
    names = [drawn.name for drawn in drawings([MadeUp(both)], ["class-log"], Request())]
    assert names == ["class-log", "class-log-unwhitened"]


OTHER = {
    "protocol": "released", "changes": "training.lr=0.01", "evaluate": "10", "data": "other", "split": "counts-v2",
    "parameterisation": "unwhitened", "role": "anatomy", "dataset": "thyroid", "estimator": "quadrature",
}  # fmt: skip
FIGURE_IDS = ("class-log", "class-err", "calibration-class")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(OTHER)),
    st.sets(st.sampled_from(METHODS), min_size=1),
    st.sets(st.sampled_from(METHODS), min_size=1),
    st.sampled_from(FIGURE_IDS),
    st.booleans(),
)
def test_runs_that_differ_in_a_setting_never_share_a_point(setting, first, second, figure, beside) -> None:
    """The second run is a thousand times worse: a mean between the two would have some of both in it."""
    metrics = ("nll", "error", "ece", "brier")
    both = [*sweep(sorted(first)), *sweep(sorted(second), shift=1000.0, **{setting: OTHER[setting]})]
    results = MadeUp({**row, **{f"test_{name}": row["test_nll"] for name in metrics}} for row in both)
    request = Request(compare_protocols=beside and setting == "protocol")
    for drawn in drawings([results], [figure], request):
        for one in drawn.cells:
            means = [mean for series in one.series if not series.empty for mean in series.points["mean"]]
            assert all(mean < 100 for mean in means) or all(mean > 900 for mean in means)
            gaps = [gap for s in one.series if "minus_elbo" in s.points for gap in s.points["minus_elbo"].dropna()]
            assert all(abs(gap) < 100 for gap in gaps)


def test_every_panel_finds_its_role() -> None:
    for name in FIGURES:
        for panel in FIGURES[name].panels:
            results = MadeUp([{"dataset": panel.dataset}])
            assert panel_rows(panel, results, {}).columns.isin(["line"]).any()
