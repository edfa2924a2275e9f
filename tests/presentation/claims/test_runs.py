"""Claims about runs: rejections, convergence, cost and time."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from tests.support.tidy import fits
from tests.support.verdicts import Rows, outcomes, parts, verdict, words

SAMPLER = {"estimator": "ups", "samples": 10.0, "sampler": "rejection", "role": "timing"}


def rejecting(acceptance: float = 0.5, seeds: int = 5) -> Rows:
    """Runs of the rejection sampler with an acceptance rate over all iterations."""
    rows = fits("abalone", "joint_log_dlm", 0.5, sizes=(900,), seeds=seeds)
    return [
        row | SAMPLER | {"acceptance": acceptance, "key": f"r{i}"} for i, row in enumerate(rows)
    ]


def rates(rows: Rows, *blocks: float) -> dict:
    """Acceptance rates by block of 100 steps, the same for all runs."""
    return {row["key"]: {"acceptance": np.array(blocks)} for row in rows}


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((0.01, 1 / 3, 1 / 3), "supported"),
        ((1 / 3, 0.01, 0.01), "contradicted"),
        ((0.9, 1 / 1.99), "contradicted"),
        ((0.9, 1 / 2.01), "supported"),
        ((0.9, 1 / 3.99), "supported"),
        ((0.9, 1 / 4.01), "contradicted"),
    ],
)
def test_rejections_are_about_two_after_the_first_block(blocks, expected):
    rows = rejecting()
    (part,) = parts(rows, 16, arrays=rates(rows, *blocks))
    assert outcomes(part) == [expected]
    later = 1 / np.mean(blocks[1:]) - 1
    assert part.tests[0].ours == pytest.approx(later)


def test_rejections_over_all_iterations_are_only_told():
    (part,) = parts(rejecting(0.25), 16)
    assert outcomes(part) == ["can't tell"]
    assert part.figures == {"rejected_over_all_iterations": 3.0}
    assert part.tests[0].reason == "rates by 100 steps were not recorded"
    assert part.reason == "3 over all iterations"


def test_of_two_runs_the_longer_one_counts():
    short = [row | {"max_iterations": 200.0} for row in rejecting()]
    long = [row | {"key": f"l{row['seed']}", "max_iterations": 1000.0} for row in short]
    arrays = rates(short, 0.9, 0.9) | rates(long, 0.9, 1 / 3)
    (part,) = parts(long + short, 16, arrays=arrays)
    assert part.tests[0].ours == pytest.approx(2.0)


def test_rejections_of_a_single_block_are_not_tested():
    rows = rejecting()
    assert words(rows, 16, arrays=rates(rows, 1 / 3)) == "not tested (1 test can't tell)"


def test_rejections_need_three_repetitions():
    rows = rejecting(seeds=2)
    assert words(rows, 16, arrays=rates(rows, 1 / 3, 1 / 3)) == "not tested (1 test can't tell)"


def test_other_samplers_reject_nothing():
    rows = [row | {"sampler": "auto"} for row in rejecting()]
    assert words(rows, 16) == "not tested"


def converging(count: int, of: int, dataset: str = "banana", **facts) -> Rows:
    """Fits of which the first `count` have converged."""
    rows = fits(dataset, "elbo", 0.5, sizes=(100,), seeds=of, **facts)
    return [row | {"converged": row["seed"] < count} for row in rows]


@pytest.mark.parametrize(
    ("count", "of", "expected"),
    [
        (20, 20, "supported"),
        (19, 20, "supported"),
        (37, 40, "no difference"),
        (18, 20, "no difference"),
        (35, 40, "contradicted"),
    ],
)
def test_almost_all_are_nineteen_in_twenty(count, of, expected):
    (part,) = parts(converging(count, of), 18)
    assert outcomes(part) == [expected]
    assert part.figures == {"converged": count, "runs": of}
    assert part.reason == f"{count} of {of} runs converged"


def test_each_dataset_is_a_test():
    large = converging(200, 200)
    assert words(large + converging(1, 3, "thyroid"), 18) == "partly (1 of 2 tests)"
    assert words(large + converging(3, 3, "thyroid"), 18) == "reproduced (2 of 2 tests)"


def test_a_failed_run_has_not_converged():
    rows = converging(20, 20)
    for row in rows[:3]:
        row |= {"status": "failed", "converged": None, "test_nll": np.nan}
    (part,) = parts(rows, 18)
    assert part.reason == "17 of 20 runs converged, 3 failed"
    assert outcomes(part) == ["contradicted"]


@pytest.mark.parametrize(
    "facts",
    [{"samples": 10.0, "estimator": "bmc"}, {"minibatch": 1000.0}],
    ids=["sampled", "minibatch"],
)
def test_sampled_and_minibatch_runs_are_counted_apart(facts):
    rows = converging(20, 20)
    apart = [row | {"method": "joint_log_dlm"} | facts for row in converging(0, 20)]
    assert words(rows + apart, 18) == "reproduced (1 of 1 test)"
    supplementary = [part for part in parts(rows + apart, 18) if part.supplementary]
    assert [outcomes(part) for part in supplementary] == [["contradicted"]]


@pytest.mark.parametrize(
    "facts", [{"role": "anatomy"}, {"window": np.nan}, {"max_iterations": np.nan}]
)
def test_only_fits_and_curves_with_a_stopping_rule_count(facts):
    rows = converging(20, 20)
    others = [row | {"method": "fitc"} | facts for row in converging(0, 20)]
    assert words(rows + others, 18) == "reproduced (1 of 1 test)"


def test_users_own_data_do_not_count():
    rows = converging(20, 20) + converging(0, 20, "mine")
    assert words(rows, 18) == "reproduced (1 of 1 test)"


def test_a_preset_that_ends_runs_early_says_nothing_about_convergence():
    rows = converging(0, 5, protocol="quick")
    (part,) = parts(rows, 18)
    assert outcomes(part) == ["can't tell"]
    assert part.tests[0].reason == "the preset ends runs early"
    assert part.reason == "0 of 5 runs converged"


def timed(seconds: float = 1.0, seeds: int = 3, **facts) -> Rows:
    """Runs of 100 iterations that took so many seconds: of bMC-10, unless facts say otherwise."""
    rows = fits("abalone", "joint_log_dlm", 0.5, sizes=(900,), seeds=seeds, beta=0.1, role="timing")
    return [row | {"seconds": seconds} | facts for row in rows]


REJECTION = {"estimator": "ups", "sampler": "rejection"}
WITHOUT = {"estimator": "ups", "sampler": "auto"}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1.11, "supported"), (1.09, "no difference"), (2.0, "supported"), (0.5, "contradicted")],
)
def test_ups_by_rejection_is_slower_from_ten_per_cent_on(seconds, expected):
    rows = timed() + timed(seconds, **REJECTION)
    (part,) = parts(rows, 19)
    assert part.statement == "uPS-10 by rejection is slower than bMC-10, on cpu"
    assert outcomes(part) == [expected]
    assert part.figures == {"ratio": pytest.approx(seconds)}
    assert part.reason == f"a step takes {seconds:.2f} times as long"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.11, "contradicted"), (1.09, "supported"), (0.1, "supported")]
)
def test_ups_without_rejection_costs_no_more_up_to_ten_per_cent(seconds, expected):
    (part,) = parts(timed() + timed(seconds, **WITHOUT), 19)
    assert part.statement == "uPS-10 without rejection costs no more than bMC-10, on cpu"
    assert part.supplementary
    assert outcomes(part) == [expected]


def test_cost_is_per_iteration():
    (part,) = parts(timed() + timed(4.0, iterations=200.0, **REJECTION), 19)
    assert part.figures == {"ratio": pytest.approx(2.0)}


def test_ratios_have_a_geometric_mean():
    rows = timed()
    for row, seconds in zip(timed(**REJECTION), (1.0, 2.0, 4.0), strict=True):
        rows.append(row | {"seconds": seconds})
    (part,) = parts(rows, 19)
    assert part.figures == {"ratio": pytest.approx(2.0)}
    assert part.repetitions == 3


@pytest.mark.parametrize("facts", [{"seconds": 0.0}, {"iterations": 0.0}])
def test_runs_without_time_or_iterations_are_not_timed(facts):
    rows = timed() + [row | facts for row in timed(2.0, **REJECTION)]
    assert words(rows, 19) == "not tested"


@pytest.mark.parametrize("shared", ["bmc", "ups"])
def test_only_runs_that_were_alone_on_their_device_are_compared(shared):
    rows = timed() + timed(2.0, **REJECTION)
    rows = [row | {"alone": row["estimator"] != shared} for row in rows]
    (part,) = parts(rows, 19)
    assert outcomes(part) == ["can't tell"]
    assert part.tests[0].reason == (
        "no two runs that could be compared had the device to themselves"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"device": "cuda"},
        {"host": "other"},
        {"commit": "other"},
        {"n": 800},
        {"variant": "fixed"},
        {"beta": 1.0},
        {"max_iterations": 7.0},
        {"epochs": 7.0},
    ],
    ids=str,
)
def test_only_runs_with_the_same_work_are_compared(other):
    rows = timed() + timed(2.0, **REJECTION, **other)
    (part,) = parts(rows, 19)
    assert outcomes(part) == ["can't tell"]


def test_devices_are_judged_apart():
    rows = timed() + timed(2.0, **REJECTION)
    rows += timed(device="cuda") + timed(1.0, device="cuda", **REJECTION)
    assert {part.statement[-7:]: outcomes(part) for part in parts(rows, 19)} == {
        " on cpu": ["supported"],
        "on cuda": ["no difference"],
    }


def test_cost_needs_three_repetitions():
    rows = timed(seeds=2) + timed(2.0, seeds=2, **REJECTION)
    assert words(rows, 19) == "not tested (1 test can't tell)"


HYBRID = {"estimator": "ups", "sampler": "hybrid"}
INDIVIDUAL = {"estimator": "ups", "sampler": "individual"}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.3, "supported"), (0.5, "supported"), (0.6, "contradicted")]
)
def test_the_hybrid_sampler_takes_at_most_half_of_the_time(seconds, expected):
    rows = timed(seconds, **HYBRID) + timed(1.0, **INDIVIDUAL)
    (part,) = parts(rows, 26)
    assert outcomes(part) == [expected]
    assert part.reason == f"the hybrid sampler takes {seconds:.2f} of the time"


def test_samplers_that_are_compared_with_one_another_are_not_compared_with_bmc():
    rows = timed() + timed(0.3, **HYBRID) + timed(1.0, **INDIVIDUAL)
    assert words(rows, 19) == "not tested"


def learning(estimator: str, reached_at: int, alone: bool = True) -> tuple[Rows, dict]:
    """Learning curves of 100 iterations in 100 s that reach their end after some iterations."""
    rows = fits("abalone", "joint_log_dlm", 0.5, sizes=(900,), role="curve", beta=0.1)
    arrays = {}
    made = []
    for samples in (1.0, 100.0):
        for row in rows:
            key = f"{estimator}{samples}-{row['seed']}"
            facts = {"estimator": estimator, "samples": samples, "seconds": 100.0, "alone": alone}
            made.append(row | facts | {"key": key, "iterations": 100.0})
            evaluated_at = np.arange(0, 101, 10)
            nll = np.where(evaluated_at >= reached_at, row["test_nll"] - 0.01, 1.0)
            arrays[key] = {"test_nll": nll, "evaluated_at": evaluated_at}
    return made, arrays


@pytest.mark.parametrize(
    ("bmc", "ups", "expected"),
    [
        (20, 40, "reproduced (2 of 2 tests)"),
        (40, 20, "not reproduced (0 of 2 tests)"),
        (20, 1000, "reproduced (2 of 2 tests)"),  # it never gets there
    ],
)
def test_the_better_trade_is_sooner_at_the_same_nll(bmc, ups, expected):
    margin = fits("abalone", "elbo", 0.5, sizes=(900,), role="curve", beta=1.0)
    bmc_rows, bmc_arrays = learning("bmc", bmc)
    ups_rows, ups_arrays = learning("ups", ups)
    rows = margin + bmc_rows + ups_rows
    assert words(rows, 33, bmc_arrays | ups_arrays) == expected


def test_runs_that_shared_their_device_say_nothing_about_time():
    margin = fits("abalone", "elbo", 0.5, sizes=(900,), role="curve", beta=1.0)
    bmc_rows, bmc_arrays = learning("bmc", 20)
    ups_rows, ups_arrays = learning("ups", 40, alone=False)
    assert words(margin + bmc_rows + ups_rows, 33, bmc_arrays | ups_arrays) == "not tested"


def test_what_was_not_run_is_not_tested():
    rows = fits("banana", "elbo", 0.5)
    for number in (16, 19, 26):
        assert words(rows, number) == "not tested"
        assert verdict(rows, number).missing
