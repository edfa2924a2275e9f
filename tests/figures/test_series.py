"""Numbers of panels against hand-computed ones."""

import numpy as np
import pytest

from dlmexp.figures.families.classification import against_n
from dlmexp.figures.families.gradients import histogram
from dlmexp.figures.families.regression import nll_vs_beta
from dlmexp.figures.panels import Panel, estimators, methods
from dlmexp.figures.series import summary
from tests.support.made_up import curves, failed, fit, method_cell, plausible, sweep
from tests.support.series import panel_series

PANEL = against_n("banana", "nll", "class-log")


def by_label(series) -> dict:
    return {one.line.look.label: one for one in series}


def test_summary() -> None:
    point = summary(3.0, [1.0, 2.0, 3.0], 3)
    assert point["mean"] == 2.0
    assert point["std"] == pytest.approx(1.0)
    assert point["sem"] == pytest.approx(1 / np.sqrt(3))
    assert (point["repetitions"], point["failed"]) == (3, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_summary_leaves_out_and_counts_what_is_not_finite(bad: float) -> None:
    point = summary(0, [1.0, bad, 3.0], 4)
    assert point["mean"] == 2.0
    assert (point["repetitions"], point["failed"]) == (2, 2)


def test_summary_of_a_single_repetition_has_no_deviation() -> None:
    point = summary(0, [5.0], 1)
    assert point["mean"] == 5.0
    assert np.isnan(point["std"])
    assert np.isnan(point["sem"])


def test_sizes_average_the_selected_beta_over_seeds(results) -> None:
    records = []
    for n in (100, 200):
        for seed in range(3):
            for beta, validation, test in ((4.0, 0.9, 0.1), (2.0, 0.5, 0.3 + 0.1 * seed), (1.0, 0.7, 0.2)):
                of = method_cell("joint_log_dlm", "banana", n=n, seed=seed, beta=beta)
                records.append(fit(of, nll=test + n / 1000, validation=validation))
    series = by_label(panel_series(PANEL, results(*records)))["joint DLM"]
    assert list(series.points["x"]) == [100, 200]
    assert list(series.points["mean"]) == pytest.approx([0.4 + 0.1, 0.4 + 0.2])
    assert list(series.points["std"]) == pytest.approx([0.1, 0.1])
    assert list(series.points["repetitions"]) == [3, 3]
    assert list(series.points["betas"]) == ["2 2 2", "2 2 2"]
    assert list(series.points["most_candidates"]) == [3, 3]


def test_a_repetition_whose_candidates_all_failed_is_counted(results) -> None:
    records = [fit(method_cell("joint_log_dlm", "banana", seed=s), nll=0.5) for s in range(2)]
    records.append(failed(method_cell("joint_log_dlm", "banana", seed=2)))
    point = by_label(panel_series(PANEL, results(*records)))["joint DLM"].points.iloc[0]
    assert (point["repetitions"], point["failed"], point["mean"]) == (2, 1, 0.5)
    assert point["failed_candidates"] == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_selected_cell_whose_test_metric_is_not_finite_is_counted(results, bad: float) -> None:
    records = [fit(method_cell("elbo", "banana", seed=s), nll=0.5) for s in range(2)]
    records.append(fit(method_cell("elbo", "banana", seed=2), nll=bad, validation=0.1))
    point = by_label(panel_series(PANEL, results(*records)))["ELBO"].points.iloc[0]
    assert (point["repetitions"], point["failed"], point["mean"]) == (2, 1, 0.5)


def test_lines_without_records_are_empty(results) -> None:
    series = by_label(panel_series(PANEL, results(*sweep("banana", ("elbo",), [100], range(2), 1))))
    assert not series["ELBO"].empty
    assert series["β-ELBO"].empty, "nobody asked for other betas"
    assert series["joint DLM"].empty
    assert series["fixed DLM"].empty


def test_parameterisations_are_kept_apart(results) -> None:
    whitened = fit(method_cell("elbo", "banana"), nll=0.3)
    unwhitened = fit(method_cell("elbo", "banana", parameterisation="unwhitened"), nll=0.4)
    found = results(whitened, unwhitened)
    for how, expected in (("whitened", 0.3), ("unwhitened", 0.4)):
        assert list(by_label(panel_series(PANEL, found, how))["ELBO"].points["mean"]) == [expected]


def test_betas_at_the_share_named(results) -> None:
    records = []
    for n in (691, 1383):
        for beta in (0.5, 2.0):
            for seed in range(2):
                of = method_cell("joint_log_dlm", "cadata", n=n, beta=beta, seed=seed)
                records.append(fit(of, nll=beta + seed, mse=1.0, validation=1.0 / beta))
    records.append(fit(method_cell("fitc", "cadata", n=691), nll=7.0, mse=1.0))
    series = by_label(panel_series(nll_vs_beta("cadata", "5%"), results(*records)))
    joint = series["joint DLM"]
    assert joint.n == 691
    assert list(joint.points["x"]) == [0.5, 2.0]
    assert list(joint.points["mean"]) == [1.0, 2.5]
    assert list(joint.points["validation"]) == [2.0, 0.5]
    assert np.isnan(series["FITC"].points["x"].iloc[0])
    assert series["FITC"].points["mean"].iloc[0] == 7.0


def test_no_size_near_the_share_named_gives_nothing(results) -> None:
    found = results(*sweep("cadata", ("joint_log_dlm",), [1383], range(2), 3))
    assert all(one.empty for one in panel_series(nll_vs_beta("cadata", "5%"), found))


def curve(seed: int, x: list[int], y: list[float], **changes):
    of = method_cell("joint_log_dlm", "abalone", n=2000, seed=seed, beta=0.1, estimator="bmc", samples=1,
                     evaluate="10", **changes)  # fmt: skip
    return fit(of, nll=y[-1], mre=0.1), {"evaluated_at": np.array(x), "test_nll": np.array(y)}


LEARNING = Panel("curve", "abalone", "nll", estimators("joint_log_dlm", 0.1, ("bmc", (1,))), "count-learning")


def test_a_curve_that_stopped_keeps_its_last_value(results) -> None:
    found = results(curve(0, [10, 20, 30], [3.0, 2.0, 1.0]), curve(1, [10, 20], [5.0, 4.0]))
    points = panel_series(LEARNING, found)[0].points
    assert list(points["x"]) == [10, 20, 30]
    assert list(points["mean"]) == [4.0, 3.0, 2.5]
    assert list(points["repetitions"]) == [2, 2, 2]


def test_nan_and_failed_curves_are_counted(results) -> None:
    broken = failed(method_cell("joint_log_dlm", "abalone", n=2000, seed=2, beta=0.1, estimator="bmc", samples=1,
                                evaluate="10"))  # fmt: skip
    found = results(curve(0, [10, 20], [3.0, 2.0]), curve(1, [10, 20], [5.0, np.nan]), broken)
    points = panel_series(LEARNING, found)[0].points
    assert list(points["mean"]) == [4.0, 2.0]
    assert list(points["repetitions"]) == [2, 1]
    assert list(points["failed"]) == [1, 2]


def test_curves_are_drawn_at_one_size(results) -> None:
    found = results(*curves("abalone", 2000, range(2)), *curves("abalone", 500, range(1)))
    assert panel_series(LEARNING, found)[0].n == 2000


def test_histogram_has_the_draws_of_one_split_in_units_of_G(results) -> None:
    cells = [
        method_cell("fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, estimator="bmc", samples=10, seed=s)
        for s in range(2)
    ]
    made = [plausible(one) for one in cells]
    made[0][1]["error"][:3] = np.inf
    series = by_label(panel_series(histogram("bmc", "error"), results(*made)))["bMC-10"]
    assert series.draws is not None
    first, arrays = made[0]
    assert first.result.norm2_G == 40.0
    assert series.draws.tolist() == pytest.approx((arrays["error"][3:] / 40.0).tolist())
    (point,) = series.points.to_dict("records")
    assert (point["repetitions"], point["seed"], point["draws"]) == (2, 0, 97)
    assert point["bias"] == pytest.approx((first.result.bias or 0.0) / 40.0)
    assert np.isnan(point["error_of_G"]), "there is no uPS here to tell it from"


def test_the_error_of_G_is_what_unbiased_draws_are_off_from_it(results) -> None:
    """Gradients g = exact + noise, and G = exact + error: 10 000 draws of uPS show the error. Those with another q
    are of another G."""
    random = np.random.default_rng(0)
    exact, off = random.normal(size=41), 0.01 * random.normal(size=41)
    G = exact + off
    made = []
    for estimator, samples, how in (
        ("ups", 100, "whitened"), ("ups", 1, "whitened"), ("bmc", 10, "whitened"), ("ups", 1000, "unwhitened"),
    ):  # fmt: skip
        mean = exact + 1e-4 * random.normal(size=41) + (0.5 if estimator == "bmc" else 0.0)
        cell = method_cell(
            "fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, estimator=estimator, samples=samples,
            parameterisation=how,
        )  # fmt: skip
        one, arrays = plausible(cell)
        one.result.norm2_G = float(G @ G)
        one.result.bias = float(np.square(mean - G).sum())
        one.result.bias_quadrature = float(np.square(mean - exact).sum())
        if how == "unwhitened":  # other coordinates, other gradients
            one.result.bias *= 100
        made.append((one, arrays))
    series = by_label(panel_series(histogram("bmc", "error"), results(*made)))["bMC-10"]
    assert series.points["error_of_G"].iloc[0] == pytest.approx((off @ off) / (G @ G), rel=0.1)


def test_lines_of_regression_do_not_depend_on_the_parameterisation(results) -> None:
    found = results(*sweep("pol", ("elbo",), [100], range(2), 1))
    panel = Panel("sizes", "pol", "nll", methods("elbo"), "reg-log")
    assert not panel_series(panel, found, "unwhitened")[0].empty


def test_of_regression_in_both_coordinates_the_asked_for_ones_are_drawn(results) -> None:
    found = results(
        *(
            fit(method_cell("joint_log_dlm", "pol", seed=seed, parameterisation=how), nll=nll, mse=1.0)
            for how, nll in (("whitened", 0.1), ("unwhitened", 0.7))
            for seed in range(2)
        )
    )
    panel = Panel("sizes", "pol", "nll", methods("joint_log_dlm"), "reg-log")
    for how, nll in (("whitened", 0.1), ("unwhitened", 0.7)):
        assert panel_series(panel, found, how)[0].points["mean"].tolist() == pytest.approx([nll])
