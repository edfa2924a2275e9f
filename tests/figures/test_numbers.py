"""From rows of the table to points: what is averaged, what is counted, and what never meets."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dlmexp.figures import effects
from dlmexp.figures.declared import BINARY_LOG, SQUARE, against_n, anatomy, histogram, inducing
from dlmexp.figures.numbers import Measured, measure, panel_rows
from dlmexp.figures.panels import FIGURES, Line, Panel, estimators, methods
from dlmexp.figures.plot import Request, drawings
from dlmexp.figures.stats import bayes_nll, half_width, statistics
from tests.support.tidy import METHODS, Made, nll, sweep

(PANEL,) = against_n("nll", BINARY_LOG, "class-log", "banana")


def measured(panel: Panel, results: Made, **choice) -> Measured:
    return measure(panel, results, panel_rows(panel, results, {}), **choice)


def points(panel: Panel, results: Made, **choice) -> dict[str, pd.DataFrame]:
    return {one.line.method: one.points for one in measured(panel, results, **choice).series}


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=3, max_size=3), min_size=1, max_size=8))
def test_statistics_are_those_of_the_finite_values(rows) -> None:
    table = statistics([1, 2, 3], np.array(rows), len(rows))
    medians = statistics([1, 2, 3], np.array(rows), len(rows), median=True)
    for i, column in enumerate(np.array(rows).T):
        finite, row = column[np.isfinite(column)], table.iloc[i]
        assert (row["repetitions"], row["failed"]) == (len(finite), len(rows) - len(finite))
        assert row["mean"] == pytest.approx(finite.mean() if len(finite) else np.nan, nan_ok=True)
        quartiles = np.quantile(finite, [0.5, 0.25, 0.75]) if len(finite) else [np.nan] * 3
        assert [*medians.loc[i, ["median", "q25", "q75"]]] == pytest.approx([*quartiles], nan_ok=True)
        if len(finite) > 1 and finite.std() > 1e-6:
            half = stats.sem(finite) * stats.t.ppf(0.975, len(finite) - 1)
            assert float(half_width(table, "ci95").iloc[i]) == pytest.approx(half)
            assert float(half_width(table, "std").iloc[i]) == pytest.approx(finite.std(ddof=1))


def test_sizes_are_means_over_seeds_at_the_selected_beta() -> None:
    tables = points(PANEL, Made(sweep()))
    for method in METHODS:
        assert [*tables[method]["x"]] == [100, 500]
        expected = [np.mean([nll(method, n, seed, 1.0) for seed in range(3)]) for n in (100, 500)]
        assert [*tables[method]["mean"]] == pytest.approx(expected)
    assert (tables["beta_elbo"]["betas"][0], tables["elbo"]["betas"][0]) == ("1 1 1", "")


def test_inducing_inputs_and_what_they_cost() -> None:
    about = {"dataset": "pol", "role": "inducing", "method": "elbo"}
    rows = [{**about, "n": n, "seed": seed, "M": M, "test_nll": 1 / M + seed, "predict_seconds": M / 100 + seed}
            for n in (7, 100) for seed in range(2) for M in (25, 50)]  # fmt: skip
    panel = inducing("nll", "M", "reg")[0]
    results = Made([*rows, rows[-1] | {"seed": 2}])
    found = measured(panel, results)
    assert found.n == 100, "the size with the most rows"
    assert found.series[0].points["x"].tolist() == [25, 50]
    assert found.series[0].points["mean"].tolist() == pytest.approx([0.54, 1.02 - 1 / 3])
    cost = measured(replace(panel, x="predict_seconds"), results).series[0].points
    assert cost["x"].tolist() == pytest.approx([0.75, 0.5 + 2 / 3])
    notes = next(drawings(results, ["inducing"], Request())).notes
    assert any("pol: β-ELBO, joint DLM, fixed DLM, FITC" in note for note in notes)


def test_samples_are_points_and_exact_objectives_the_same_everywhere() -> None:
    about = {"dataset": "banana", "role": "samples", "beta": 0.1, "changes": "beta.values=[0.1]"}
    rows = [{**about, "method": "joint_log_dlm", "estimator": "bmc", "samples": s, "test_nll": s} for s in (1, 3.0)]
    rows += [{**about, "method": method, "test_nll": 5.0} for method in ("beta_elbo", "joint_log_dlm")]
    (panel,) = [panel for panel in FIGURES["samples"].panels if (panel.dataset, panel.title) == ("banana", "β = 0.1")]
    elbo, bmc, exact = measured(panel, Made(rows)).series
    assert (bmc.points["x"].tolist(), bmc.points["mean"].tolist()) == ([1, 3], [1, 3])
    assert elbo.points["x"].isna().all()
    assert exact.points["mean"].tolist() == [5]


def test_edges_select_from_all_betas_and_from_those_of_the_paper() -> None:
    names = ("beta", "validation_nll", "test_nll")
    cases = ((1.0, 0.3, 3.0), (0.01, 0.2, 2.0), (0.001, 0.1, 1.0))
    rows = [{"dataset": "pol", "role": "edges", "method": "beta_elbo", **dict(zip(names, case, strict=True))}
            for case in cases]  # fmt: skip
    tables = {s.line.version: s.points for s in measured(FIGURES["edges"].panels[0], Made(rows)).filled}
    assert {version: table["mean"].tolist() for version, table in tables.items()} == {"": [1.0], "short": [2.0]}


@pytest.mark.parametrize("name", ["ringnorm_drawn", "twonorm_drawn"])
def test_excess_is_over_the_log_loss_of_the_truth(name: str) -> None:
    rng, a = np.random.default_rng(1), 2 / np.sqrt(20)
    y = rng.integers(0, 2, 200_000)
    X = rng.standard_normal((len(y), 20), dtype=np.float32)
    if name == "twonorm_drawn":
        odds = 2 * a * (X + a * (2 * y - 1)[:, None]).sum(1)
    else:
        X = X * (2 - y)[:, None] + a * y[:, None]
        odds = (X**2).sum(1) / 8 + 20 * np.log(2) - ((X - a) ** 2).sum(1) / 2
    losses = np.logaddexp(0, -(2 * y - 1) * odds)
    assert bayes_nll(name) == pytest.approx(losses.mean(), abs=4 * losses.std() / len(y) ** 0.5)
    rows = [{"dataset": name, "test_nll": 0.5 + seed} for seed in (0, 0.2)]
    (panel,) = against_n("excess_nll", BINARY_LOG, "class-log", name)
    assert points(panel, Made(rows))["elbo"]["mean"].tolist() == pytest.approx([0.5 - bayes_nll(name)])
    assert np.isnan(bayes_nll("banana"))


def test_differences_are_taken_within_repetitions() -> None:
    rows = [{"method": "elbo", "seed": seed, "test_nll": 10.0 * seed} for seed in range(4)]
    rows += [{"method": "joint_log_dlm", "seed": seed, "test_nll": 9.9 * seed - 1} for seed in range(1, 5)]
    table = points(PANEL, Made(rows))["joint_log_dlm"].iloc[0]
    assert table["minus_elbo"] == pytest.approx(-1.2), "over the common seeds 1, 2, 3"
    assert (table["low"], table["high"]) == pytest.approx(stats.t.interval(0.95, 2, -1.2, 0.1 / 3**0.5))


def test_failed_is_counted_and_incomplete_is_left_out() -> None:
    rows = [{"seed": seed, "test_nll": 1.0} for seed in range(3)]
    rows += [{"seed": 3, "status": "failed"}, {"seed": 4, "test_nll": np.inf}, {"seed": 5, "status": "incomplete"}]
    found = measured(PANEL, Made(rows))
    row = found.series[0].points.iloc[0]
    assert (row["mean"], row["repetitions"], row["failed"]) == (1.0, 3, 2)
    assert any("1 repetition " in note for note in found.notes)
    assert any("2 repetitions " in note for note in found.notes)


def test_mse_is_that_of_the_row_selected_by_mse() -> None:
    cases = ((1.0, 0.1, 0.9, 7.0), (0.1, 0.2, 0.8, 3.0))
    names = ("beta", "validation_nll", "validation_mse", "test_mse")
    rows = [{"dataset": "pol", "method": "beta_elbo", **dict(zip(names, case, strict=True))} for case in cases]
    assert points(against_n("mse", SQUARE, "reg-sq", "pol")[0], Made(rows))["beta_elbo"]["mean"].tolist() == [3.0]


def test_betas_have_every_candidate_and_a_flat_line_without_beta() -> None:
    rows = [*sweep(("beta_elbo",), (691,), dataset="cadata", size="5%")]
    rows += [{"method": "fitc", "beta": np.nan, "n": 691, "test_nll": 0.5, "dataset": "cadata", "size": "5%"}]
    tables = points(Panel("betas", "cadata", "nll", methods("beta_elbo", "fitc"), "reg-log", n="5%"), Made(rows))
    assert tables["beta_elbo"]["x"].tolist() == [0.1, 1.0, 10.0]
    assert tables["beta_elbo"]["validation"].idxmin() == 1
    assert tables["fitc"]["x"].isna().all()


def test_a_cell_of_two_groups_counts_once() -> None:
    results = Made([{"method": "joint_log_dlm", "beta": 0.1, "key": "same", "test_nll": 1.0}] * 2)
    results.candidates["group"] = [0, 1]
    panel = Panel("sizes", "banana", "nll", (Line("joint_log_dlm", beta=0.1, names="beta"),), "class-log")
    assert points(panel, results)["joint_log_dlm"][["repetitions", "failed"]].to_numpy().tolist() == [[1, 0]]


def test_a_curve_that_has_stopped_keeps_its_last_value() -> None:
    panel = Panel("curve", "abalone", "nll", estimators("joint_log_dlm", 0.1, ("bmc", (1,))), "count-learning")
    about = {"dataset": "abalone", "method": "joint_log_dlm", "role": "curve", "estimator": "bmc", "samples": 1.0}
    x = [np.arange(0, 60 + 10 * seed, 10) for seed in range(3)]
    arrays = {f"key{s}": {"evaluated_at": x[s], "test_nll": 2 + s + np.exp(-x[s] / 10.0)} for s in range(3)}
    (table,) = points(panel, Made([about | {"beta": 0.1, "seed": seed} for seed in range(3)], arrays)).values()
    assert table["x"].max() == 70
    assert table["mean"].iloc[-1] == pytest.approx(np.mean([2 + s + np.exp(-5 - s) for s in range(3)]))


def test_draws_are_in_units_of_the_gradient_and_of_one_seed() -> None:
    about = {"dataset": "abalone", "role": "gradient", "method": "fixed_log_dlm", "beta": 0.1, "estimator": "ups",
             "norm2_G": 4.0, "bias": 2.0, "bias_quadrature": 1.0, "base": "b"}  # fmt: skip
    rows = [{**about, "seed": seed, "samples": samples} for samples in (1, 10) for seed in range(2)]
    results = Made(rows, {f"key{i}": {"error": np.full(5, 8.0 + i), "condition_i": np.ones(5)} for i in range(4)})
    for metric, expected in (("error", 2.0), ("condition_i", 1.0)):
        found = measured(histogram("ups", metric), results).series[0]
        assert found.draws is not None
        assert found.draws.tolist() == [expected] * 5
        assert (found.points["repetitions"].iloc[0], found.points["error_of_G"].iloc[0]) == (2, pytest.approx(0.25))


def test_reliability_is_by_bin() -> None:
    arrays = {f"key{i}": {"reliability_p": [0.1, 0.9], "reliability_y": [0.2, 0.8 + 0.1 * i]} for i in range(2)}
    results = Made([{"seed": seed, "test_nll": 1.0} for seed in range(2)], arrays)
    table = points(Panel("reliability", "banana", "reliability", methods("elbo"), "class-log"), results)["elbo"]
    assert table["x"].tolist() == [0.1, 0.9]
    assert table["mean"].tolist() == pytest.approx([0.2, 0.85])


@pytest.mark.slow
def test_coordinates_of_q() -> None:
    both = [*sweep(), *sweep(parameterisation="unwhitened", shift=1.0)]
    assert points(PANEL, Made(both))["elbo"]["mean"].max() < 1
    assert points(PANEL, Made(both), parameterisation="unwhitened")["elbo"]["mean"].min() > 1
    only = Made(sweep(parameterisation="unwhitened"))
    assert not points(PANEL, only)["elbo"].empty, "a protocol without the whitened ones is drawn in those that it has"
    names = [drawn.name for drawn in drawings(Made(both), ["class-log"], Request())]
    assert names == ["class-log", "class-log-unwhitened"]


OTHER = {
    "protocol": "released", "changes": "training.lr=0.01", "evaluate": "10", "data": "other", "split": "counts-v2",
    "parameterisation": "unwhitened", "role": "anatomy", "dataset": "thyroid", "estimator": "quadrature",
}  # fmt: skip
SOME = st.sets(st.sampled_from(METHODS), min_size=1)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(OTHER)), SOME, SOME, st.booleans())
def test_runs_that_differ_in_a_setting_never_share_a_point(setting, first, second, beside) -> None:
    """The second run is a thousand times worse: a mean between the two would have some of both in it."""
    both = [*sweep(sorted(first)), *sweep(sorted(second), shift=1000.0, **{setting: OTHER[setting]})]
    request = Request(compare_protocols=beside and setting == "protocol")
    for one in (one for drawn in drawings(Made(both), ["class-log"], request) for one in drawn.cells):
        means = [mean for series in one.filled for mean in series.points["mean"]]
        assert all(mean < 100 for mean in means) or all(mean > 900 for mean in means)
        gaps = [gap for s in one.filled if "minus_elbo" in s.points for gap in s.points["minus_elbo"].dropna()]
        assert all(abs(gap) < 100 for gap in gaps)


LEVELS = [
    *((method, "whitened", np.nan) for method in effects.METHODS.values()),
    *((method, "unwhitened", np.nan) for method in ("elbo", "joint_log_dlm")),
    *((method, "whitened", 0.01) for method in ("elbo", "joint_log_dlm")),
]


def effects_of(values: dict[tuple[str, str, float], list[float]], **more) -> dict[str, pd.DataFrame]:
    about = {"dataset": "pol", "role": "anatomy", "n": 2010, **more}
    rows = [{**about, "method": method, "parameterisation": how, "noise_floor": floor, "seed": seed, "test_nll": value}
            for (method, how, floor), several in values.items() for seed, value in enumerate(several)]  # fmt: skip
    return effects.measure(anatomy("pol", "reg"), Made(rows).table)[1]


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=3, max_size=3), min_size=len(LEVELS), max_size=len(LEVELS)))
def test_effects_add_up_in_every_repetition(values) -> None:
    by_level = dict(zip(LEVELS, values, strict=True))
    tables = effects_of(by_level)
    mean = {name: table["mean"].iloc[0] for name, table in tables.items()}
    gaps = [np.mean(by_level["joint_log_dlm", *how]) - np.mean(by_level["elbo", *how])
            for how in (("whitened", np.nan), ("unwhitened", np.nan), ("whitened", 0.01))]  # fmt: skip
    assert mean["whole"] == pytest.approx(mean["beta"] + mean["objective"], abs=1e-9)
    assert mean["whole"] == pytest.approx(gaps[0], abs=1e-9)
    assert (mean["coordinates"], mean["noise"]) == pytest.approx((gaps[1] - gaps[0], gaps[2] - gaps[0]), abs=1e-9)
    marks = tables["beta"].set_index("part")["mean"]
    assert marks["effect"] == pytest.approx((marks["elbo"] + marks["joint_log_dlm"]) / 2, abs=1e-9)


def test_an_effect_needs_all_its_levels_and_a_closed_form_serves_for_all_coordinates() -> None:
    some = {level: [1.0, 2.0] for level in LEVELS if level[0] != "fitc"}
    assert {*effects_of(some)} == {"whole", "beta", "objective", "coordinates", "noise"}
    whitened = {level: [1.0] for level in LEVELS if level[1] == "whitened"}
    assert effects_of(whitened, form="collapsed")["coordinates"]["mean"].iloc[0] == 0
