"""Lines, margins and judged parts from the rows of a table."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest
from scipy import stats

from dlmexp.presentation.claims.evidence import origin_of
from dlmexp.presentation.claims.rules import BETTER, Outcome
from tests.support.tidy import fits
from tests.support.verdicts import evidence, lines


@pytest.mark.parametrize(
    ("dataset", "metric", "elbo", "trivial", "margin"),
    [
        # 5 % of what is explained
        ("banana", "nll", 0.5, 0.7, 0.01),
        # 10 % of ELBO's NLL: 5 % of what is explained is half of it
        ("ringnorm", "nll", 0.05, 0.7, 0.005),
        ("ringnorm", "error", 0.02, 0.5, 0.002),
        # The NLL of a density has no zero: at 0 and below it is as good as elsewhere.
        ("pol", "nll", 0.0, 1.4, 0.07),
        ("pol", "nll", -0.6, 1.4, 0.1),
        ("pol", "mse", 0.1, 1.0, 0.01),
        # ELBO explains nothing.
        ("banana", "nll", 0.8, 0.7, np.nan),
    ],
)
def test_margin_is_a_share_of_what_elbo_explains(dataset, metric, elbo, trivial, margin):
    rows = fits(dataset, "elbo", elbo, metric=metric, scatter=0, trivial=trivial)
    assert evidence(rows).margin(dataset, metric) == pytest.approx(np.full(3, margin), nan_ok=True)


def test_margin_is_a_mean_over_the_repetitions_that_elbo_has():
    rows = fits("pol", "elbo", 0.2, sizes=(100,), scatter=0, trivial=1.0, seeds=3)
    rows[0]["test_nll"] = 0.4
    rows[1]["test_nll"] = np.nan
    assert evidence(rows).margin("pol", "nll") == pytest.approx([0.05 * 0.7])


def test_margin_is_unknown_without_elbo_at_beta_one():
    rows = fits("banana", "beta_elbo", 0.5) + fits(
        "banana", "beta_elbo", 0.5, role="curve", beta=0.1
    )
    assert np.isnan(evidence(rows).margin("banana", "nll")).all()


@pytest.mark.parametrize("method", ["beta_elbo", "elbo"])
def test_margin_falls_back_on_the_ends_of_learning_curves(method):
    options = {"sizes": (900,), "scatter": 0, "trivial": 0.7}
    rows = fits("banana", method, 0.5, role="curve", beta=1.0, **options)
    assert evidence(rows).margin("banana", "nll") == pytest.approx([0.01])


def test_a_line_is_arranged_by_size_and_seed():
    rows = fits("banana", "elbo", 0.5, sizes=(500, 100), seeds=2)
    values = {(row["n"], row["seed"]): row["test_nll"] for row in rows}
    line = evidence(rows[::-1]).fit("banana", "elbo", "nll")
    assert line.name == "ELBO"
    expected = [[values[n, seed] for seed in (0, 1)] for n in (100, 500)]
    assert line.values.tolist() == expected


def test_failed_and_infinite_repetitions_are_missing_and_counted_as_lost():
    rows = fits("banana", "elbo", 0.5, sizes=(100,), seeds=4)
    rows[0] |= {"status": "failed", "test_nll": np.nan}
    rows[1]["test_nll"] = np.inf
    rows[2]["test_nll"] = np.nan  # not computed
    line = evidence(rows).fit("banana", "elbo", "nll")
    assert np.isnan(line.values[0]).tolist() == [True, True, True, False]
    assert line.lost == 2


def test_fits_are_selected_by_mse_for_mse_and_by_nll_otherwise():
    rows = []
    for beta, nll, mse in ((1.0, 0.1, 0.9), (0.1, 0.2, 0.8)):
        validation = {"validation_nll": nll, "validation_mse": mse}
        tested = {"test_mse": mse + 1, "test_nll": nll + 1}
        rows += [
            row | validation | tested
            for row in fits("pol", "beta_elbo", 0.0, beta=beta, sizes=(100,), seeds=1)
        ]
    table = evidence(rows)
    assert table.fit("pol", "beta_elbo", "nll").values.item() == pytest.approx(1.1)
    assert table.fit("pol", "beta_elbo", "mse").values.item() == pytest.approx(1.8)
    assert table.fit("pol", "beta_elbo", "nll", value="beta").values.item() == 1.0


def test_dlm_on_counts_is_trained_with_bmc_10():
    options = {"sizes": (100,), "seeds": 1, "scatter": 0}
    rows = fits("abalone", "joint_log_dlm", 0.3, **options)
    exact = fits("abalone", "joint_log_dlm", 0.7, **options)
    rows += [row | {"estimator": "exact", "samples": np.nan} for row in exact]
    rows += fits("abalone", "elbo", 0.5, **options)
    table = evidence(rows)
    assert table.fit("abalone", "joint_log_dlm", "nll").values.item() == 0.3
    assert table.fit("abalone", "elbo", "nll").values.item() == 0.5


def test_a_curve_is_chosen_by_its_beta_and_named_by_it():
    rows = []
    for beta in (0.1, 1.0):
        rows += fits(
            "flights", "beta_elbo", beta, sizes=(900,), seeds=1, scatter=0, role="curve", beta=beta
        )
    line = evidence(rows).curve("flights", "beta_elbo", 0.1)
    assert line.values.item() == 0.1
    assert line.name == "β-ELBO, β=0.1"


def test_stand_ins_and_parameterisations_are_those_that_were_run():
    rows = fits("sarcos_test", "elbo", 0.5)
    rows += fits("pol", "elbo", 0.5) + fits("pol", "elbo", 0.5, parameterisation="unwhitened")
    assert evidence(rows).datasets_and_q("pol", "sarcos", "song") == [
        ("pol", "whitened"),
        ("pol", "unwhitened"),
        ("sarcos", "whitened"),
        ("song", "whitened"),
        ("sarcos_test", "whitened"),
    ]


def test_parameterisations_are_those_of_the_same_kind_of_rows():
    rows = fits("airline", "elbo", 0.5, parameterisation="unwhitened")
    rows += fits("airline", "elbo", 0.5, role="curve")
    assert evidence(rows).datasets_and_q("airline", kind="curve") == [("airline", "whitened")]
    assert evidence(rows).datasets_and_q("airline") == [("airline", "unwhitened")]


def test_origin_has_the_most_frequent_commands_and_all_commits():
    commands = ["b"] * 2 + ["a"] * 3 + ["d", "c", "c"]
    commits = ["y"] * 7 + ["x"]
    origin = origin_of(commands, commits)
    assert origin.records == 8
    assert origin.commands == ["a", "b", "c"]
    assert origin.commits == ["x", "y"]


def test_missing_commands_are_left_out_of_the_origin():
    assert origin_of([None, "a"], [None, "x"]).commands == ["a"]


def compared(rows, dataset, relation=BETTER, within="nll", ours="joint_log_dlm", rivals=("elbo",)):
    """Return a part with ours compared with rivals."""
    table = evidence(rows)
    line = table.fit(dataset, ours, "nll")
    pairs = [(line, table.fit(dataset, name, "nll")) for name in rivals]
    return table.compare("says", dataset, "whitened", pairs, relation, within)


def test_a_comparison_has_a_test_per_size_with_the_nearest_rival():
    part = compared(
        lines("pol", elbo=0.6, fitc=0.5, joint_log_dlm=0.2), "pol", rivals=("elbo", "fitc")
    )
    assert [(test.rival_name, test.n) for test in part.tests] == [
        ("FITC", n) for n in (100, 200, 500)
    ]
    assert {test.rivals for test in part.tests} == {2}
    assert {test.direction for test in part.tests} == {"lower than"}
    assert part.repetitions == 5
    assert part.origin.records == 45
    assert {test.outcome for test in part.tests} == {Outcome.UNCLEAR}  # not decided yet
    assert all(test.p_values[Outcome.SUPPORTED] < 0.001 for test in part.tests)


@pytest.mark.parametrize(
    ("dataset", "overlap"), [("pol", 1 / 3), ("thyroid", 1000 / 2772), ("song", 10_000 / 505_345)]
)
def test_p_value_and_interval_have_the_overlap_of_the_datasets_split(dataset, overlap):
    rows = lines(dataset, elbo=0.5, joint_log_dlm=0.4)
    test = compared(rows, dataset).tests[0]
    values = {method: [] for method in ("elbo", "joint_log_dlm")}
    for row in rows:
        if row["n"] == 100:
            values[row["method"]].append(row["test_nll"])
    differences = np.subtract(values["elbo"], values["joint_log_dlm"])
    error = differences.std(ddof=1) * np.sqrt(1 / 5 + overlap)
    p = 2 * stats.t.sf(differences.mean() / error, 4)
    assert test.p_values[Outcome.SUPPORTED] == pytest.approx(p, rel=1e-9)
    half_width = stats.t.ppf(0.975, 4) * error
    assert test.high - test.difference == pytest.approx(half_width)
    assert test.difference - test.low == pytest.approx(half_width)


def test_a_number_can_be_the_margin():
    rows = lines("pol", elbo=0.5, joint_log_dlm=0.4)
    small = compared(rows, "pol", within=0.05).tests[0]
    large = compared(rows, "pol", within=0.15).tests[0]
    assert (small.margin, large.margin) == (0.05, 0.15)
    assert small.p_values[Outcome.SUPPORTED] < 0.001
    assert large.p_values[Outcome.SUPPORTED] == 1.0
    assert large.p_values[Outcome.NO_DIFFERENCE] < 0.001


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_all_margins_have_a_common_factor(factor):
    rows = lines("pol", elbo=0.5, joint_log_dlm=0.4)
    table = evidence(rows)
    table.margin_factor = factor
    pair = (table.fit("pol", "joint_log_dlm", "nll"), table.fit("pol", "elbo", "nll"))
    by_metric = table.compare("says", "pol", "whitened", [pair], BETTER, "nll").tests[0]
    by_number = table.compare("says", "pol", "whitened", [pair], BETTER, 0.1).tests[0]
    assert by_metric.margin == pytest.approx(factor * 0.025, rel=0.05)
    assert by_number.margin == pytest.approx(factor * 0.1)


def test_a_part_whose_rival_was_not_run_is_not_run():
    part = compared(lines("pol", joint_log_dlm=0.2), "pol")
    assert not part.was_run
    assert part.tests == []


def reasons(part) -> set[str]:
    return {test.reason for test in part.tests}


def test_a_rival_that_is_missing_is_named_in_the_reason():
    part = compared(lines("pol", elbo=0.5, joint_log_dlm=0.2), "pol", rivals=("elbo", "fitc"))
    assert reasons(part) == {"too few repetitions of FITC"}
    assert [list(test.p_values) for test in part.tests] == [[]] * 3


def test_without_a_margin_the_reason_says_so():
    part = compared(lines("pol", fitc=0.5, joint_log_dlm=0.2), "pol", rivals=("fitc",))
    assert reasons(part) == {"no margin: ELBO at β = 1 was not run, or explains nothing"}


def test_too_few_repetitions_are_counted_in_the_reason():
    part = compared(lines("pol", elbo=0.5, joint_log_dlm=0.2, seeds=2), "pol")
    assert reasons(part) == {"repetitions: 2 of the 3 that a test needs"}


def test_lost_repetitions_are_counted_in_the_reason():
    rows = lines("pol", elbo=0.5, joint_log_dlm=0.2)
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    part = compared(rows, "pol")
    assert part.reason == "1 failed or not finite, left out"
    assert part.repetitions == 4


def test_a_constant_stands_wherever_the_line_has_a_value():
    rows = fits("pol", "elbo", 0.5, seeds=2)
    rows[0]["test_nll"] = np.nan
    table = evidence(rows)
    constant = table.constant("2", table.fit("pol", "elbo", "nll"), 2.0)
    assert np.isnan(constant.values).sum() == 1
    assert np.nansum(constant.values) == 2.0 * 5
