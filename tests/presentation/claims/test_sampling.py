"""Claims about sampled gradients."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

from tests.support.tidy import fits
from tests.support.verdicts import HIGH, Rows, parts, words

NAN = float("nan")


def curves(dataset: str, **means: float) -> Rows:
    """Ends of learning curves of joint DLM at beta = 0.1, by estimator: exact, bmc_10, ups_1 ...

    ELBO stands beside them, for the margin of 0.025.
    """
    rows = fits(dataset, "beta_elbo", HIGH, sizes=(900,), role="curve", beta=1.0)
    for kind, mean in means.items():
        name, _, samples = ("exact", "", NAN) if kind == "exact" else kind.rpartition("_")
        how = {"estimator": name, "samples": float(samples), "beta": 0.1, "role": "curve"}
        rows += [row | how for row in fits(dataset, "joint_log_dlm", mean, sizes=(900,))]
    return rows


@pytest.mark.parametrize(
    ("number", "rows", "expected"),
    [
        (
            11,
            curves("flights", exact=0.3, ups_10=0.3, bmc_100=0.3, bmc_10=0.4, ups_1=0.35),
            "stand-ins: holds",
        ),
        (
            11,
            curves("flights", exact=0.3, ups_10=0.4, bmc_100=0.4, bmc_10=0.3, ups_1=0.5),
            "stand-ins: fails",
        ),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.3), "stand-ins: holds"),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.31), "stand-ins: holds"),
        (12, curves("flights", bmc_100=0.3, smooth_bmc_100=0.4), "stand-ins: fails"),
        (13, curves("abalone", bmc_1=0.3, ups_1=0.3, smooth_bmc_1=0.4), "mixed on 1 of 2"),
        (14, curves("pol", exact=0.3, bmc_1=0.5, bmc_10=0.3, bmc_100=0.3), "holds on 1 of 4"),
        (14, curves("pol", exact=0.3, bmc_1=0.3, bmc_10=0.5, bmc_100=0.5), "fails on 1 of 4"),
        (14, curves("pol", exact=0.3, bmc_1=0.5, bmc_10=0.4, bmc_100=0.3), "mixed on 1 of 4"),
    ],
)
def test_verdict(number, rows, expected):
    assert words(rows, number) == expected


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

    `kinds` has, by estimator and number of samples: error, scatter and mean of condition (i), and
    the two biases.
    """
    rows = []
    arrays = {}
    for (estimator, samples), (error, scatter, condition, bias, by_quadrature) in kinds.items():
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
    return rows, arrays


def statement(kinds: dict, says: str):
    """Return the part of claim 15 with this statement."""
    rows, arrays = gradients(kinds)
    (part,) = (part for part in parts(rows, 15, arrays=arrays) if part.statement == says)
    return part


PLAIN = (1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(0.9, "holds"), (0.953, "better within the margin"), (1.1, "fails")],
)
def test_errors_are_compared_as_ratios_with_a_margin_of_five_per_cent(error, verdict):
    kinds = {("bmc", 10): PLAIN, ("ups", 10): (error, 1.0, 1.0, 1.0, 1.0)}
    part = statement(kinds, "uPS-10 has a smaller |g - G|² than bMC-10")
    assert part.verdict == verdict
    (test,) = part.tests
    assert test.margin == pytest.approx(np.log(1.05))
    assert test.difference == pytest.approx(-np.log(error), abs=1e-9)


@pytest.mark.parametrize(
    ("biases", "verdict"), [((0.5, 0.5), "holds"), ((0.5, 1.5), "fails"), ((1.5, 0.5), "fails")]
)
def test_bias_is_judged_with_both_gradients(biases, verdict):
    kinds = {("bmc", 1): PLAIN, ("smooth_bmc", 1): (1.0, 1.0, 1.0, *biases)}
    part = statement(kinds, "smooth-bMC-1 is less biased than bMC-1")
    assert part.verdict == verdict
    assert len(part.tests) == 2


@pytest.mark.parametrize(("scatter", "verdict"), [(0.5, "holds"), (2.0, "fails")])
def test_the_noisiest_scatters_most(scatter, verdict):
    others = [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in (1, 10, 100)]
    kinds = dict.fromkeys(others, (1.0, scatter, 1.0, 1.0, 1.0)) | {("bmc", 1): PLAIN}
    part = statement(kinds, "bMC-1 is the noisiest")
    assert part.verdict == verdict
    assert len(part.tests) == 8


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(0.81, "holds"), (1.19, "holds"), (0.79, "fails"), (1.21, "fails")],
)
def test_condition_one_is_about_one_within_a_fifth(mean, verdict):
    part = statement({("ups", 1): (1.0, 0.1, mean, 1.0, 1.0)}, "uPS-1: condition (i) is about 1")
    assert part.verdict == verdict
    assert part.figures == {"mean": pytest.approx(mean)}
    assert part.repetitions == 4


def test_condition_one_of_bmc_1_is_not_judged():
    rows, arrays = gradients({("bmc", 1): PLAIN})
    assert [part.statement for part in parts(rows, 15, arrays=arrays)] == []


def test_a_statistic_that_is_not_positive_is_missing():
    kinds = {("bmc", 1): PLAIN, ("ups", 1): (1.0, 1.0, 1.0, 0.0, 0.5)}
    part = statement(kinds, "uPS-1 is less biased than bMC-1")
    assert len(part.tests) == 1


def test_records_without_draws_are_left_out():
    rows, _ = gradients({("bmc", 1): PLAIN, ("ups", 1): PLAIN})
    assert words(rows, 15) == "not run"
