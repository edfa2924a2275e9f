"""Claims about sampled gradients."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from tests.support.tidy import fits
from tests.support.verdicts import HIGH, Rows, outcomes, parts, words

NAN = float("nan")


def at_high_rate(mean: float) -> Rows:
    """Ends of learning curves of uPS-1 on abalone with bMC's learning rate."""
    facts = {"estimator": "ups", "samples": 1.0, "beta": 0.1, "role": "ups-lr"}
    rows = fits("abalone", "joint_log_dlm", mean, sizes=(900,))
    return [row | facts for row in rows]


def curves(dataset: str, beta: float = 0.1, **means: float) -> Rows:
    """Ends of learning curves of joint DLM, by estimator: exact, bmc_10, ups_1 ...

    ELBO stands beside them, for the margin of 0.025.
    """
    rows = fits(dataset, "beta_elbo", HIGH, sizes=(900,), role="curve", beta=1.0)
    for kind, mean in means.items():
        name, _, samples = ("exact", "", NAN) if kind == "exact" else kind.rpartition("_")
        how = {"estimator": name, "samples": float(samples), "beta": beta, "role": "curve"}
        rows += [row | how for row in fits(dataset, "joint_log_dlm", mean, sizes=(900,))]
    return rows


@pytest.mark.parametrize(
    ("number", "rows", "expected"),
    [
        (
            11,
            curves("flights", exact=0.3, ups_10=0.3, bmc_100=0.3, bmc_10=0.4, ups_1=0.35),
            "reproduced (4 of 4 tests)",
        ),
        (
            11,
            curves("flights", exact=0.3, ups_10=0.4, bmc_100=0.4, bmc_10=0.3, ups_1=0.5),
            "not reproduced (0 of 4 tests)",
        ),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.3), "reproduced (1 of 1 test)"),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.31), "reproduced (1 of 1 test)"),
        (12, curves("flights", bmc_100=0.3, smooth_bmc_100=0.4), "not reproduced (0 of 1 test)"),
        (13, curves("abalone", bmc_1=0.3, ups_1=0.3, smooth_bmc_1=0.4), "partly (1 of 3 tests)"),
        (14, curves("pol", exact=0.3, bmc_1=0.5, bmc_10=0.3, bmc_100=0.3), "reproduced (3 of 3"),
        (14, curves("pol", exact=0.3, bmc_1=0.3, bmc_10=0.5, bmc_100=0.5), "not reproduced (0"),
        (14, curves("pol", exact=0.3, bmc_1=0.5, bmc_10=0.4, bmc_100=0.3), "partly (2 of 3"),
        (24, curves("abalone", bmc_1=0.3, bmc_100=0.3), "reproduced (1 of 1 test)"),
        (24, curves("abalone", bmc_1=0.4, bmc_100=0.3), "not reproduced (0 of 1 test)"),
        (27, curves("flights", 1.0, exact=0.3, bmc_100=0.3, ups_10=0.3), "reproduced (3 of 3"),
        (27, curves("flights", 10.0, exact=0.3, bmc_100=0.4, ups_10=0.3), "partly (2 of 3"),
        (27, curves("flights", 0.1, exact=0.3, bmc_100=0.3, ups_10=0.3), "not tested"),
        (25, curves("abalone", ups_1=0.3) + at_high_rate(0.4), "reproduced (1 of 1 test)"),
        (25, curves("abalone", ups_1=0.3) + at_high_rate(0.3), "not reproduced (0 of 1 test)"),
    ],
)
def test_verdict(number, rows, expected):
    assert words(rows, number).startswith(expected)


def test_claim_11_names_what_is_compared():
    rows = curves("flights", exact=0.3, ups_10=0.3, bmc_100=0.3, bmc_10=0.4, ups_1=0.35)
    assert [part.statement for part in parts(rows, 11)] == [
        "uPS-10 matches exact",
        "bMC-100 matches exact",
        "bMC-10 does not match exact",
        "uPS-1 beats bMC-10",
    ]


def test_claim_13_compares_each_pair_of_estimators():
    rows = curves("abalone", bmc_10=0.3, ups_10=0.3, smooth_bmc_10=0.3)
    assert [part.statement for part in parts(rows, 13)] == [
        "uPS-10 and bMC-10 end at the same NLL",
        "smooth-bMC-10 and bMC-10 end at the same NLL",
        "smooth-bMC-10 and uPS-10 end at the same NLL",
    ]


def gradients(kinds: dict, seeds: int = 4) -> tuple[Rows, dict]:
    """Rows of gradient draws with their arrays.

    `kinds` has, by estimator and number of samples: error, scatter and mean of condition (i), the
    two biases and, if given, condition (ii).
    """
    rows = []
    arrays = {}
    for (estimator, samples), (
        error,
        scatter,
        condition,
        bias,
        by_quadrature,
        *second,
    ) in kinds.items():
        for row in fits("abalone", "fixed_log_dlm", 0.3, sizes=(900,), seeds=seeds):
            jitter = 1 + 0.001 * row["seed"]
            key = f"{estimator}{samples}-{row['seed']}"
            facts = {"estimator": estimator, "samples": float(samples), "role": "gradient"}
            biases = {"bias": bias * jitter, "bias_quadrature": by_quadrature * jitter}
            rows.append(row | facts | biases | {"key": key})
            spread = scatter * jitter
            arrays[key] = {
                "error": np.array([0.5, 1.5]) * error * jitter,
                "condition_i": condition + np.array([-spread, spread]),
            }
            if second:
                arrays[key]["condition_ii"] = np.array(second) * jitter
    return rows, arrays


def statement(kinds: dict, says: str):
    """Return the part of claim 15 with this statement."""
    rows, arrays = gradients(kinds)
    (part,) = (part for part in parts(rows, 15, arrays=arrays) if part.statement == says)
    return part


PLAIN = (1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(0.9, "supported"), (0.97, "no difference"), (1.1, "contradicted")],
)
def test_errors_are_compared_as_ratios_with_a_margin_of_five_per_cent(error, verdict):
    kinds = {("bmc", 10): PLAIN, ("ups", 10): (error, 1.0, 1.0, 1.0, 1.0)}
    part = statement(kinds, "uPS-10 has a smaller |g - G|² than bMC-10")
    assert outcomes(part) == [verdict]
    (test,) = part.tests
    assert test.margin == pytest.approx(np.log(1.05))
    assert test.difference == pytest.approx(-np.log(error), abs=1e-9)


@pytest.mark.parametrize(
    ("biases", "verdict"),
    [((0.5, 0.5), "supported"), ((0.5, 1.5), "contradicted"), ((1.5, 0.5), "contradicted")],
)
def test_bias_is_judged_with_both_gradients(biases, verdict):
    kinds = {("bmc", 1): PLAIN, ("smooth_bmc", 1): (1.0, 1.0, 1.0, *biases)}
    part = statement(kinds, "smooth-bMC-1 is less biased than bMC-1")
    assert outcomes(part) == [verdict]
    assert part.tests[0].rivals == 2


@pytest.mark.parametrize(("scatter", "verdict"), [(0.5, "supported"), (2.0, "contradicted")])
def test_the_noisiest_scatters_most(scatter, verdict):
    others = [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in (1, 10, 100)]
    kinds = dict.fromkeys(others, (1.0, scatter, 1.0, 1.0, 1.0)) | {("bmc", 1): PLAIN}
    part = statement(kinds, "bMC-1 is the noisiest")
    assert outcomes(part) == [verdict]
    assert part.tests[0].rivals == 8


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(0.81, "supported"), (1.19, "supported"), (0.79, "contradicted"), (1.21, "contradicted")],
)
def test_condition_one_is_about_one_within_a_fifth(mean, verdict):
    part = statement({("ups", 1): (1.0, 0.1, mean, 1.0, 1.0)}, "uPS-1: condition (i) is about 1")
    assert outcomes(part) == [verdict]
    assert part.tests[0].ours == pytest.approx(mean)
    assert part.repetitions == 4


def test_condition_one_of_bmc_1_is_not_judged():
    rows, arrays = gradients({("bmc", 1): PLAIN})
    assert [part.statement for part in parts(rows, 15, arrays=arrays)] == []


def test_a_statistic_that_is_not_positive_is_missing():
    kinds = {("bmc", 1): PLAIN, ("ups", 1): (1.0, 1.0, 1.0, 0.0, 0.5)}
    part = statement(kinds, "uPS-1 is less biased than bMC-1")
    assert part.tests[0].reason.startswith("too few repetitions of log bias")


def test_records_without_draws_are_left_out():
    rows, _ = gradients({("bmc", 1): PLAIN, ("ups", 1): PLAIN})
    assert words(rows, 15) == "not tested"


@pytest.mark.parametrize(
    ("number", "estimator", "worse", "expected"),
    [
        (29, "ups", (0.5, 1.0, 1.0, 1.0, 1.0, 1.0), "reproduced (3 of 3 tests)"),
        (29, "ups", (2.0, 1.0, 1.0, 1.0, 1.0, 1.0), "partly (2 of 3 tests)"),
        (29, "ups", (1.0, 1.0, 1.5, 1.0, 1.0, 1.0), "partly (2 of 3 tests)"),
        (29, "ups", (1.0, 1.0, 0.5, 1.0, 1.0, 3.0), "partly (1 of 3 tests)"),
        (30, "smooth_bmc", (9.0, 1.0, 1.0, 1.0, 1.0, 1.0), "reproduced (2 of 2 tests)"),
        (30, "smooth_bmc", (1.0, 1.0, 0.5, 1.0, 1.0, 0.3), "not reproduced (0 of 2 tests)"),
    ],
)
def test_conditions_are_judged_by_their_distance_from_the_true_gradient(
    number, estimator, worse, expected
):
    """bMC has an error of 1, condition (i) 1 and condition (ii) 1 (the logarithm is 0)."""
    rows, arrays = gradients({("bmc", 10): (*PLAIN, 1.0), (estimator, 10): worse})
    assert words(rows, number, arrays) == expected
