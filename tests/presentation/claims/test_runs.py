"""Claims about runs: rejections, convergence and cost."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from tests.support.tidy import fits
from tests.support.verdicts import Rows, parts, verdict, words

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
        ((0.01, 1 / 3, 1 / 3), "holds"),
        ((1 / 3, 0.01, 0.01), "fails"),
        ((0.9, 1 / 1.99), "fails"),
        ((0.9, 1 / 2.01), "holds"),
        ((0.9, 1 / 3.99), "holds"),
        ((0.9, 1 / 4.01), "fails"),
    ],
)
def test_rejections_are_about_two_after_the_first_block(blocks, expected):
    rows = rejecting()
    (part,) = parts(rows, 16, arrays=rates(rows, *blocks))
    assert part.verdict == expected
    later = 1 / np.mean(blocks[1:]) - 1
    assert part.figures["rejected_per_accepted"] == pytest.approx(later)
    assert part.reason.endswith("rejected per accepted after 100 steps")


def test_rejections_over_all_iterations_are_only_told():
    (part,) = parts(rejecting(0.25), 16)
    assert part.verdict == "undecidable"
    assert part.figures == {"rejected_over_all_iterations": 3.0}
    assert part.reason == "rates by 100 steps were not recorded; 3 over all iterations"


def test_rejections_of_a_single_block_are_undecidable():
    rows = rejecting()
    assert words(rows, 16, arrays=rates(rows, 1 / 3)) == "undecidable"


def test_rejections_need_three_repetitions():
    rows = rejecting(seeds=2)
    assert words(rows, 16, arrays=rates(rows, 1 / 3, 1 / 3)) == "undecidable"


def test_other_samplers_reject_nothing():
    rows = [row | {"sampler": "auto"} for row in rejecting()]
    assert words(rows, 16) == "not run"


def converging(count: int, of: int, dataset: str = "banana", **facts) -> Rows:
    """Fits of which the first `count` have converged."""
    rows = fits(dataset, "elbo", 0.5, sizes=(100,), seeds=of, **facts)
    return [row | {"converged": row["seed"] < count} for row in rows]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(20, "holds"), (19, "holds"), (18, "fails"), (15, "fails")],
)
def test_almost_all_are_nineteen_in_twenty(count, expected):
    (part,) = parts(converging(count, 20), 18)
    assert part.verdict == expected
    assert part.figures == {"converged": count, "runs": 20}
    assert part.reason == f"{count} of 20 runs converged"
    assert words(converging(count, 20), 18) == expected


def test_between_nine_in_ten_and_nineteen_in_twenty_is_mixed():
    assert words(converging(37, 40), 18) == "mixed"


def test_a_dataset_on_which_it_fails_is_not_hidden_by_a_larger_one():
    large = converging(200, 200)
    assert words(large + converging(1, 3, "thyroid"), 18) == "mixed"
    assert words(large + converging(3, 3, "thyroid"), 18) == "holds"


def test_a_failed_run_has_not_converged():
    rows = converging(20, 20)
    for row in rows[:2]:
        row |= {"status": "failed", "converged": None, "test_nll": np.nan}
    (part,) = parts(rows, 18)
    assert part.reason == "18 of 20 runs converged, 2 failed"
    assert part.verdict == "fails"


@pytest.mark.parametrize(
    "facts",
    [{"samples": 10.0, "estimator": "bmc"}, {"minibatch": 1000.0}],
    ids=["sampled", "minibatch"],
)
def test_sampled_and_minibatch_runs_are_counted_apart(facts):
    rows = converging(20, 20)
    apart = [row | {"method": "joint_log_dlm"} | facts for row in converging(0, 20)]
    assert words(rows + apart, 18) == "holds"
    supplementary = [part for part in parts(rows + apart, 18) if part.supplementary]
    assert [part.verdict for part in supplementary] == ["fails"]


@pytest.mark.parametrize(
    "facts", [{"role": "anatomy"}, {"window": np.nan}, {"max_iterations": np.nan}]
)
def test_only_fits_and_curves_with_a_stopping_rule_count(facts):
    rows = converging(20, 20)
    others = [row | {"method": "fitc"} | facts for row in converging(0, 20)]
    assert words(rows + others, 18) == "holds"


def test_users_own_data_do_not_count():
    assert words(converging(20, 20) + converging(0, 20, "mine"), 18) == "holds"


def test_a_preset_that_ends_runs_early_says_nothing_about_convergence():
    rows = converging(0, 5, protocol="quick")
    assert words(rows, 18) == "undecidable"
    assert parts(rows, 18)[0].reason.startswith("the preset ends runs early; 0 of 5")


def timed(seconds: float = 1.0, seeds: int = 3, **facts) -> Rows:
    """Runs of 100 iterations that took so many seconds: of bMC-10, unless facts say otherwise."""
    rows = fits("abalone", "joint_log_dlm", 0.5, sizes=(900,), seeds=seeds, beta=0.1, role="timing")
    return [row | {"seconds": seconds} | facts for row in rows]


REJECTION = {"estimator": "ups", "sampler": "rejection"}
WITHOUT = {"estimator": "ups", "sampler": "auto"}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.11, "holds"), (1.09, "fails"), (2.0, "holds"), (0.5, "fails")]
)
def test_ups_by_rejection_is_slower_from_ten_per_cent_on(seconds, expected):
    rows = timed() + timed(seconds, **REJECTION)
    (part,) = parts(rows, 19)
    assert part.statement == "uPS-10 by rejection is slower than bMC-10, on cpu"
    assert part.verdict == expected
    assert part.figures == {"ratio": pytest.approx(seconds)}
    assert part.reason == f"a step takes {seconds:.2f} times as long"
    assert words(rows, 19) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.11, "fails"), (1.09, "holds"), (0.1, "holds")]
)
def test_ups_without_rejection_costs_no_more_up_to_ten_per_cent(seconds, expected):
    (part,) = parts(timed() + timed(seconds, **WITHOUT), 19)
    assert part.statement == "uPS-10 without rejection costs no more than bMC-10, on cpu"
    assert part.supplementary
    assert part.verdict == expected


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
    assert words(rows, 19) == "not run"


@pytest.mark.parametrize("shared", ["bmc", "ups"])
def test_only_runs_that_were_alone_on_their_device_are_compared(shared):
    rows = timed() + timed(2.0, **REJECTION)
    rows = [row | {"alone": row["estimator"] != shared} for row in rows]
    (part,) = parts(rows, 19)
    assert part.verdict == "undecidable"
    assert part.reason == "no two runs that could be compared had the device to themselves"


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
    assert part.verdict == "undecidable"


def test_devices_are_judged_apart():
    rows = timed() + timed(2.0, **REJECTION)
    rows += timed(device="cuda") + timed(1.0, device="cuda", **REJECTION)
    assert {part.statement[-7:]: part.verdict for part in parts(rows, 19)} == {
        " on cpu": "holds",
        "on cuda": "fails",
    }


def test_cost_needs_three_repetitions():
    rows = timed(seeds=2) + timed(2.0, seeds=2, **REJECTION)
    assert words(rows, 19) == "undecidable"


def test_what_was_not_run_is_not_run():
    rows = fits("banana", "elbo", 0.5)
    for number in (16, 19):
        assert words(rows, number) == "not run"
        assert verdict(rows, number).missing
