"""Claims 20 to 22, both ways."""

import pytest

from dlmexp.claims.judge import PAPER
from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record
from tests.support.levels import fits, on
from tests.support.made_up import fit, method_cell

HOLDS, FAILS, MIXED, UNDECIDABLE = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.UNDECIDABLE
SAME = {"elbo": 0.3, "beta_elbo": 0.301, "joint_log_dlm": 0.303, "fixed_log_dlm": 0.299}


def selecting(dataset: str, *betas: float, q: str = "whitened") -> list[Record]:
    """β-ELBO at several sizes, where validation selects the given betas among 0.25 and 4."""
    return [
        fit(
            method_cell("beta_elbo", dataset, n=100 * (i + 1), seed=seed, beta=beta, parameterisation=q),
            nll=abs(beta - best), error=0.1,
        )
        for i, best in enumerate(betas)
        for beta in (0.25, 4.0)
        for seed in range(5)
    ]  # fmt: skip


def test_20_small_betas(judged) -> None:
    holds = judged(20, selecting("banana", 0.25, 0.25, 4.0))
    assert holds.verdict is HOLDS
    (found,) = on(holds, "banana", how="whitened")
    assert found.figures == {"below": 2, "cases": 3}
    assert "β-ELBO at 2 of 3 sizes" in found.words
    assert judged(20, selecting("banana", 0.25, 4.0, 4.0)).verdict is FAILS
    assert judged(20, selecting("banana", 0.25, 4.0)).verdict is MIXED
    three = [*selecting("banana", 0.25), *selecting("thyroid", 0.25), *selecting("twonorm", 4.0)]
    assert judged(20, three).verdict is HOLDS  # most datasets, not all


def test_21_either_dlm(judged) -> None:
    assert judged(21, fits("banana", "nll", SAME), trivial=0.7).verdict is HOLDS
    one_is_bad = fits("banana", "nll", SAME | {"joint_log_dlm": 0.6})
    assert judged(21, one_is_bad, trivial=0.7).verdict is HOLDS  # the better of the two counts
    both_bad = fits("banana", "nll", SAME | {"joint_log_dlm": 0.6, "fixed_log_dlm": 0.4})
    assert judged(21, both_bad, trivial=0.7).verdict is FAILS
    assert judged(21, fits("banana", "nll", SAME) + fits("pol", "nll", SAME)).verdict is UNDECIDABLE
    good = SAME | {"fixed_log_dlm": 0.1}
    assert judged(21, fits("banana", "nll", good)).verdict is HOLDS  # better, whatever the margin
    mixed = fits("banana", "nll", SAME) + fits("twonorm", "nll", SAME | {"joint_log_dlm": 0.6, "fixed_log_dlm": 0.4})
    assert judged(21, mixed, trivial=0.7).verdict is MIXED


def test_20_regression_has_one_q_and_counts_under_either(judged) -> None:
    """Under q unwhitened too a β < 1 is selected on two of three datasets, not on one of the two binary ones."""
    records = [*selecting("pol", 0.25), *selecting("banana", 0.25), *selecting("twonorm", 4.0)]
    records += [*selecting("banana", 0.25, q="unwhitened"), *selecting("twonorm", 4.0, q="unwhitened")]
    judgement = judged(20, records)
    assert judgement.by_basis[PAPER] == {"whitened": HOLDS, "unwhitened": HOLDS}
    assert "the same under both parameterisations" in judgement.difference


def test_20_each_dataset_with_the_q_of_the_protocol(judged) -> None:
    """Of `released`, three datasets in all: two whitened, one unwhitened."""
    records = [*selecting("pol", 0.25), *selecting("cadata", 4.0), *selecting("banana", 0.25, q="unwhitened")]
    judgement = judged(20, records, protocol="released")
    assert (judgement.verdict, judgement.difference, judgement.changes_with_q) == (HOLDS, "", "")


def test_20_regression_alone_lacks_no_other_q(judged) -> None:
    judgement = judged(20, selecting("pol", 0.25))
    assert (judgement.verdict, judgement.difference) == (HOLDS, "")


def test_21_nothing_is_said_without_all_four(judged) -> None:
    for left_out in SAME:
        some = {name: level for name, level in SAME.items() if name != left_out}
        (found, _) = on(judged(21, fits("banana", "nll", some), trivial=0.7), "banana")
        assert found.verdict is UNDECIDABLE
        assert found.words.startswith("not run: ")


def test_21_the_comparison_that_is_told_is_of_the_better_dlm(judged) -> None:
    levels = SAME | {"joint_log_dlm": 0.9}
    (found, _) = on(judged(21, fits("banana", "nll", levels), trivial=0.7), "banana")
    assert found.deciding is not None
    assert found.deciding.name.startswith("fixed DLM vs ")


def test_21_each_dlm_must_meet_both_rivals(judged) -> None:
    """Joint matches ELBO alone, fixed matches beta-ELBO alone: neither is comparable to both."""
    levels = {"elbo": 0.5, "beta_elbo": 0.3, "joint_log_dlm": 0.5, "fixed_log_dlm": 0.45}
    assert judged(21, fits("banana", "nll", levels), trivial=1.0).verdict is FAILS


def calibrated(dataset: str, seeds: int = 5, **levels: dict[str, float]) -> list[Record]:
    """Fits with calibration metrics: method -> metric -> level."""
    made = []
    for method, metrics in levels.items():
        for seed in range(seeds):
            noise = 0.001 * ((3 * seed + len(method)) % 5 - 2)
            beta = {} if method == "elbo" else {"beta": 2.0}
            of = method_cell(method, dataset, seed=seed, **beta)
            made.append(fit(of, nll=0.3, **{name: value + noise for name, value in metrics.items()}))
    return made


@pytest.mark.parametrize(
    ("dataset", "good", "bad"),
    [
        ("banana", {"ece": 0.02, "brier": 0.05}, {"ece": 0.1, "brier": 0.2}),
        (
            "pol",
            {"crps": 0.1, "coverage_50": 0.51, "coverage_90": 0.9, "coverage_95": 0.94},
            {"crps": 0.3, "coverage_50": 0.8, "coverage_90": 0.99, "coverage_95": 0.8},
        ),
    ],
)
def test_22_calibration(judged, dataset: str, good: dict, bad: dict) -> None:
    assert judged(22, calibrated(dataset, elbo=bad, joint_log_dlm=good, fixed_log_dlm=good)).verdict is HOLDS
    assert judged(22, calibrated(dataset, elbo=good, joint_log_dlm=bad, fixed_log_dlm=bad)).verdict is FAILS
    assert judged(22, calibrated(dataset, elbo=good, joint_log_dlm=bad)).verdict is FAILS
    half = {name: (good if name == min(good) else bad)[name] for name in good}
    assert judged(22, calibrated(dataset, elbo=bad, joint_log_dlm=half)).verdict is not HOLDS


def test_22_a_narrow_interval_is_not_undecided(judged) -> None:
    """Of a score it is narrow by the margin of that score, of a calibration error by one percentage point."""
    same = {"ece": 0.02, "brier": 0.05}
    records = calibrated("banana", elbo=same, joint_log_dlm=same)
    found = on(judged(22, records, trivial=0.25), "banana", "joint DLM", how="whitened")
    assert [one.verdict for one in found] == [MIXED, MIXED]
    found = on(judged(22, records), "banana", "joint DLM", how="whitened")
    assert [one.verdict for one in found] == [MIXED, Verdict.UNDECIDED], "no margin says that the interval is narrow"


def test_22_equal_values_tell_nothing(judged) -> None:
    made = [
        fit(method_cell(method, "abalone", seed=seed, **more), nll=2.0, coverage_95=1.0)
        for method, more in (("elbo", {}), ("joint_log_dlm", {"beta": 2.0, "estimator": "bmc", "samples": 10}))
        for seed in range(5)
    ]
    (found,) = on(judged(22, made), "abalone", "joint DLM", how="whitened")
    assert found.verdict is UNDECIDABLE
    assert "the same value in every repetition" in found.words


def test_22_old_records_have_no_calibration_metrics(judged) -> None:
    judgement = judged(22, fits("banana", "nll", SAME))
    assert judgement.verdict is UNDECIDABLE
    assert "no calibration metrics" in on(judgement, "banana")[0].words
