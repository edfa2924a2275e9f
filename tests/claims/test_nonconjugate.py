"""Claims 7 to 9, both ways, under both parameterisations."""

from dlmexp.claims.judge import PAPER
from dlmexp.claims.rules import Verdict
from tests.support.levels import fits, on

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN
BETTER = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
WORSE = {"elbo": 0.1, "beta_elbo": 0.1, "joint_log_dlm": 0.5, "fixed_log_dlm": 0.4}
SAME = {"elbo": 0.3, "beta_elbo": 0.301, "joint_log_dlm": 0.303, "fixed_log_dlm": 0.299}
BMC = {"estimator": "bmc", "samples": 10}


def test_7_ringnorm_better_others_comparable(judged) -> None:
    assert judged(7, fits("ringnorm", "nll", BETTER) + fits("banana", "nll", SAME)).verdict is HOLDS
    assert judged(7, fits("ringnorm", "nll", WORSE) + fits("banana", "nll", BETTER)).verdict is FAILS
    assert judged(7, fits("ringnorm", "nll", BETTER) + fits("banana", "nll", BETTER)).verdict is MIXED


def test_7_a_difference_between_parameterisations_is_said(judged) -> None:
    judgement = judged(
        7, fits("ringnorm", "nll", BETTER) + fits("ringnorm", "nll", WORSE, parameterisation="unwhitened")
    )
    assert judgement.by_basis[PAPER] == {"whitened": HOLDS, "unwhitened": FAILS}
    assert judgement.verdict is MIXED
    assert "holds with q whitened, fails with q unwhitened" in judgement.difference
    assert "ringnorm: joint DLM beats ELBO" in judgement.difference


def test_7_agreement_and_absence_are_said_too(judged) -> None:
    both = fits("ringnorm", "nll", BETTER) + fits("ringnorm", "nll", BETTER, parameterisation="unwhitened")
    assert "the same under both parameterisations" in judged(7, both).difference
    assert "only the whitened q was run" in judged(7, fits("ringnorm", "nll", BETTER)).difference


def test_7_default_jobs_data_is_a_stand_in(judged) -> None:
    judgement = judged(7, fits("ringnorm_drawn", "nll", BETTER, seeds=3))
    assert judgement.basis == "stand-in data"
    assert judgement.data == ["ringnorm_drawn (stand-in for ringnorm)"]
    assert judgement.verdict is HOLDS


def test_8_no_loss(judged) -> None:
    level = {"elbo": 0.10, "beta_elbo": 0.10, "joint_log_dlm": 0.102, "fixed_log_dlm": 0.05}
    assert judged(8, fits("banana", "error", level) + fits("abalone", "mre", level, **BMC)).verdict is HOLDS
    assert judged(8, fits("banana", "error", WORSE)).verdict is FAILS
    assert judged(8, fits("banana", "error", level) + fits("abalone", "mre", WORSE, **BMC)).verdict is MIXED


def test_9_counts(judged) -> None:
    names = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
    second = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.6, "fixed_log_dlm": 0.2}
    everywhere = [record for name in names for record in fits(name, "nll", BETTER, **BMC)]
    three = [record for name in names[:3] for record in fits(name, "nll", BETTER, **BMC)]
    assert judged(9, everywhere).verdict is HOLDS
    assert judged(9, three + fits(names[3], "nll", second, **BMC)).verdict is HOLDS
    assert judged(9, three + fits(names[3], "nll", WORSE, **BMC)).verdict is MIXED
    assert judged(9, [r for name in names for r in fits(name, "nll", WORSE, **BMC)]).verdict is FAILS
    two = [r for name in names[:2] for r in fits(name, "nll", second, **BMC)]
    assert judged(9, everywhere[: len(everywhere) // 2] + two).verdict is not FAILS


def test_9_one_dataset_alone_gives_no_room_for_the_exception(judged) -> None:
    second = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.6, "fixed_log_dlm": 0.2}
    judgement = judged(9, fits("abalone", "nll", second, **BMC))
    assert judgement.verdict is MIXED
    assert [found.verdict for found in on(judgement, "abalone", how="whitened")] == [FAILS, HOLDS]


def test_9_exact_dlm_is_not_taken_for_bmc(judged) -> None:
    assert judged(9, fits("abalone", "nll", BETTER)).verdict is NOT_RUN
