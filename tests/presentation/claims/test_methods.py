"""Claims about methods: what makes them reproduced, and what does not."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import pytest

from dlmexp.presentation.claims.claim import CLAIMS, Part
from dlmexp.presentation.claims.evidence import DLM
from tests.support.tidy import fits
from tests.support.verdicts import (
    ALL_METHODS,
    HIGH,
    LOG_METHODS,
    LOW,
    Rows,
    lines,
    outcomes,
    parts,
    words,
)

RATES = dict.fromkeys(("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm"), 0.1)


def with_zero_mean(dataset: str, mean: float) -> Rows:
    """ELBO with a constant mean at an NLL of 0.5, and with a zero mean."""
    return fits(dataset, "elbo", HIGH) + fits(dataset, "elbo", mean, role="zero-mean")


def curve_ends(dataset: str, metric: str = "nll", **means: float) -> Rows:
    """Ends of learning curves, by method and ten times beta: `joint_log_dlm_1` has beta = 0.1."""
    rows = []
    for name, mean in means.items():
        method, _, tenfold = name.rpartition("_")
        options = {"sizes": (900,), "role": "curve", "beta": int(tenfold) / 10}
        rows += fits(dataset, method, mean, metric=metric, **options)
    return rows


AIRLINE = {"beta_elbo_1": 0.4, "beta_elbo_10": 0.5, "beta_elbo_100": 0.4}
DLM_LOW = {f"{method}_{tenfold}": 0.3 for method in DLM for tenfold in (1, 10, 100)}


def on_counts(*joint: float) -> Rows:
    """Count data, with a mean of joint DLM for each dataset; all others are equal."""
    datasets = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
    others = {"elbo": HIGH, "beta_elbo": HIGH, "fixed_log_dlm": HIGH}
    rows = []
    for dataset, mean in zip(datasets, joint, strict=False):
        rows += lines(dataset, **others, joint_log_dlm=mean)
    return rows


@pytest.mark.parametrize(
    ("number", "rows", "expected"),
    [
        (1, lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW}), "reproduced (3 of 3 tests)"),
        (1, lines("pol", **LOG_METHODS | {"fitc": LOW}), "not reproduced (0 of 3 tests)"),
        (1, lines("sarcos_test", **LOG_METHODS | {"joint_log_dlm": LOW}), "reproduced (3 of 3"),
        (2, lines("cadata", **LOG_METHODS | {"fixed_log_dlm": LOW}), "reproduced (3 of 3 tests)"),
        (2, lines("cadata", **LOG_METHODS), "not reproduced (0 of 3 tests)"),
        (3, lines("pol", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW}), "reproduced (3 of 3"),
        (3, lines("cadata", "mse", **ALL_METHODS | {"fixed_sq_dlm": LOW}), "reproduced (3 of 3"),
        (
            3,
            lines("pol", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW, "elbo": 0.1}),
            "not reproduced (0 of 3 tests)",
        ),
        (4, lines("sarcos", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW}), "partly (3 of 6"),
        (
            4,
            lines("sarcos", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW, "fixed_sq_dlm": LOW}),
            "reproduced (6 of 6 tests)",
        ),
        (5, lines("sarcos", **LOG_METHODS | {"beta_elbo": 0.7}), "not reproduced (0 of 3 tests)"),
        (5, lines("sarcos", **LOG_METHODS | {"beta_elbo": LOW}), "reproduced (3 of 3 tests)"),
        (
            7,
            lines("ringnorm", **LOG_METHODS | {"joint_log_dlm": LOW, "fixed_log_dlm": LOW}),
            "reproduced (6 of 6 tests)",
        ),
        (
            7,
            lines("ringnorm", **LOG_METHODS | {"joint_log_dlm": 0.49, "fixed_log_dlm": 0.49}),
            "not reproduced (0 of 6 tests)",
        ),
        (7, lines("banana", **LOG_METHODS), "reproduced (6 of 6 tests)"),
        (
            7,
            lines("banana", **LOG_METHODS | {"joint_log_dlm": LOW, "fixed_log_dlm": LOW}),
            "not reproduced (0 of 6 tests)",
        ),
        (8, lines("banana", "error", **RATES), "reproduced (6 of 6 tests)"),
        (8, lines("banana", "error", **RATES | dict.fromkeys(DLM, 0.105)), "reproduced (6 of 6"),
        (
            8,
            lines("abalone", "mre", elbo=0.2, beta_elbo=0.2, joint_log_dlm=0.3, fixed_log_dlm=0.3),
            "not reproduced (0 of 6 tests)",
        ),
        (9, on_counts(LOW, LOW, LOW, LOW), "reproduced (12 of 12 tests)"),
        (9, on_counts(LOW, LOW, LOW, 0.9), "reproduced (9 of 12 tests)"),
        (9, on_counts(LOW, LOW, 0.9, HIGH), "partly (6 of 12 tests)"),
        (9, on_counts(0.9, 0.9), "not reproduced (0 of 6 tests)"),
        (10, curve_ends("flights", **AIRLINE, **DLM_LOW), "reproduced (6 of 6 tests)"),
        (
            10,
            curve_ends("flights", **AIRLINE, **DLM_LOW | {"fixed_log_dlm_10": 0.6}),
            "partly (5 of 6 tests)",
        ),
        (
            10,
            curve_ends("flights", **AIRLINE | {"beta_elbo_100": 0.2}, **DLM_LOW),
            "partly (4 of 6 tests)",
        ),
        (28, curve_ends("flights", "error", **AIRLINE, **DLM_LOW), "reproduced (6 of 6 tests)"),
        (28, curve_ends("flights", "nll", **AIRLINE, **DLM_LOW), "not tested"),
        (23, lines("pol", joint_log_dlm=HIGH, fixed_log_dlm=LOW, elbo=HIGH), "reproduced (3 of 3"),
        (23, lines("pol", joint_log_dlm=LOW, fixed_log_dlm=LOW, elbo=HIGH), "not reproduced (0"),
        (32, lines("sarcos", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW}), "reproduced (3 of 3"),
        (
            32,
            lines("sarcos", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW, "fixed_sq_dlm": 0.1}),
            "reproduced (3 of 3",
        ),
        (
            32,
            lines("sarcos", "mse", **ALL_METHODS | {"joint_sq_dlm": LOW, "fitc": 0.1}),
            "not reproduced (0 of 3",
        ),
        (31, with_zero_mean("banana", 0.7), "reproduced (3 of 3 tests)"),
        (31, with_zero_mean("banana", HIGH), "not reproduced (0 of 3 tests)"),
    ],
)
def test_verdict(number, rows, expected):
    assert words(rows, number).startswith(expected)


def test_fixed_dlm_on_counts_is_counted_apart():
    apart = [part for part in parts(on_counts(LOW), 9) if part.supplementary]
    assert [part.statement for part in apart] == ["fixed DLM is at least as good as ELBO"]
    assert outcomes(apart[0]) == ["supported"] * 3


def test_claim_10_compares_with_elbo_at_beta_1_and_with_beta_elbo_at_the_same_beta():
    rows = curve_ends("flights", **AIRLINE, **DLM_LOW)
    rivals = {part.statement: part.tests[0].rivals for part in parts(rows, 10)}
    assert rivals == {
        "joint DLM, β=0.1 beats β-ELBO, β=0.1, and ELBO in NLL": 2,
        "fixed DLM, β=0.1 beats β-ELBO, β=0.1, and ELBO in NLL": 2,
        "joint DLM, β=1 beats ELBO in NLL": 1,
        "fixed DLM, β=1 beats ELBO in NLL": 1,
        "joint DLM, β=10 beats β-ELBO, β=10, and ELBO in NLL": 2,
        "fixed DLM, β=10 beats β-ELBO, β=10, and ELBO in NLL": 2,
    }


def with_validation(joint: float, fixed: float) -> Rows:
    """Fits of pol with validation NLLs: joint DLM tests at 0.2, fixed DLM at 0.8, ELBO at 0.5."""
    rows = lines("pol", elbo=0.5, beta_elbo=0.5)
    for method, tested, validation in (
        ("joint_log_dlm", 0.2, joint),
        ("fixed_log_dlm", 0.8, fixed),
    ):
        rows += fits("pol", method, tested, validation_nll=validation)
    return rows


@pytest.mark.parametrize(
    ("joint", "fixed", "verdict", "share"),
    [
        (0.1, 0.2, "supported", 1.0),
        (0.2, 0.1, "contradicted", 0.0),
        (0.1, 0.1, "supported", 1.0),
    ],
)
def test_the_better_variant_has_the_lower_validation_nll(joint, fixed, verdict, share):
    (part,) = parts(with_validation(joint, fixed), 21)
    assert outcomes(part) == [verdict] * 3
    assert part.figures == {"joint_selected": share}


def test_without_both_validation_nlls_no_variant_is_better():
    assert parts(with_validation(0.1, float("nan")), 21) == []


def calibration(measure: str, elbo: float, dlm: float, dataset: str = "banana") -> list[Part]:
    rows = lines(dataset, measure, elbo=elbo, joint_log_dlm=dlm)
    return [part for part in parts(rows, 22) if part.statement.startswith("joint DLM")]


@pytest.mark.parametrize(
    ("dlm", "verdict"),
    [(0.08, "supported"), (0.095, "no difference"), (0.12, "contradicted")],
)
def test_calibration_errors_have_a_margin_of_one_percentage_point(dlm, verdict):
    (part,) = calibration("ece", 0.1, dlm)
    assert outcomes(part) == [verdict] * 3
    assert {test.margin for test in part.tests} == {0.01}


@pytest.mark.parametrize("measure", ["brier"])
def test_scores_have_the_margin_of_their_metric(measure):
    (part,) = calibration(measure, 0.1, 0.05)
    assert part.tests[0].margin == pytest.approx(0.01, rel=0.05)  # 10 % of ELBO's


@pytest.mark.parametrize("level", [50, 90, 95])
def test_coverage_is_judged_by_its_distance_from_the_nominal_level(level):
    too_high, too_low = level / 100 + 0.02, level / 100 - 0.05
    (part,) = calibration(f"coverage_{level}", too_low, too_high, dataset="pol")
    assert part.statement == f"joint DLM has a lower coverage error at {level}% than ELBO"
    assert outcomes(part) == ["supported"] * 3
    test = part.tests[0]
    assert test.ours == pytest.approx(0.02, abs=0.002)
    assert test.rival == pytest.approx(0.05, abs=0.002)
    assert part.figures["signed_error"] == pytest.approx(0.02, abs=0.002)
    assert part.figures["signed_error_elbo"] == pytest.approx(-0.05, abs=0.002)
    assert part.reason.startswith("coverage minus nominal, mean over sizes: +0.0")


def test_equal_values_in_every_repetition_are_no_difference():
    rows = []
    for method in ("elbo", "joint_log_dlm"):
        rows += fits("banana", method, 0.1, metric="ece", scatter=0)
    (part,) = parts(rows, 22)
    assert outcomes(part) == ["no difference"] * 3


def test_measures_of_calibration_depend_on_the_task():
    measures = ("coverage_50", "coverage_90", "coverage_95", "crps", "ece", "brier")
    statements = {}
    for dataset in ("pol", "banana", "abalone"):
        elbo = fits(dataset, "elbo", 0.5, **{f"test_{name}": 0.9 for name in measures})
        dlm = fits(dataset, "joint_log_dlm", 0.5, **{f"test_{name}": 0.8 for name in measures})
        rows = elbo + dlm
        statements[dataset] = {
            part.statement.removeprefix("joint DLM has a lower ").removesuffix(" than ELBO")
            for part in parts(rows, 22)
        }
    levels = {f"coverage error at {level}%" for level in (50, 90, 95)}
    assert statements["pol"] == levels | {"CRPS"}
    assert statements["banana"] == {"ECE", "Brier score"}
    assert statements["abalone"] == {"coverage error at 95%"}


def test_texts_of_claims_name_what_is_compared():
    assert CLAIMS["1"].text == "pol, sarcos, song: joint log-DLM has the lowest NLL."
