"""Claims 7 to 9, both ways, under both parameterisations."""

from dlmexp.claims.judge import PAPER
from dlmexp.claims.rules import Verdict
from tests.support.levels import fits, on

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN
UNDECIDED, UNDECIDABLE = Verdict.UNDECIDED, Verdict.UNDECIDABLE
BETTER = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
WORSE = {"elbo": 0.1, "beta_elbo": 0.1, "joint_log_dlm": 0.5, "fixed_log_dlm": 0.4}
SAME = {"elbo": 0.3, "beta_elbo": 0.301, "joint_log_dlm": 0.303, "fixed_log_dlm": 0.299}
BMC = {"estimator": "bmc", "samples": 10}


def test_7_ringnorm_better_others_comparable(judged) -> None:
    assert judged(7, fits("ringnorm", "nll", BETTER) + fits("banana", "nll", SAME), trivial=0.7).verdict is HOLDS
    assert judged(7, fits("ringnorm", "nll", WORSE) + fits("banana", "nll", BETTER), trivial=0.7).verdict is FAILS
    assert judged(7, fits("ringnorm", "nll", BETTER) + fits("banana", "nll", BETTER), trivial=0.7).verdict is MIXED
    assert judged(7, fits("ringnorm", "nll", BETTER) + fits("banana", "nll", SAME)).verdict is UNDECIDABLE


def test_7_a_difference_between_parameterisations_is_said(judged) -> None:
    judgement = judged(
        7, fits("ringnorm", "nll", BETTER) + fits("ringnorm", "nll", WORSE, parameterisation="unwhitened")
    )
    assert judgement.by_basis[PAPER] == {"whitened": HOLDS, "unwhitened": FAILS}
    assert judgement.verdict is MIXED
    assert "holds with q whitened, fails with q unwhitened" in judgement.difference
    assert "ringnorm: joint DLM beats ELBO" in judgement.difference


def test_7_the_comparison_that_is_told_is_the_largest_difference(judged) -> None:
    """In favour or not: either way they are not comparable."""
    levels = {"elbo": 0.5, "beta_elbo": 0.3, "joint_log_dlm": 0.301, "fixed_log_dlm": 0.301}
    (joint, _) = on(judged(7, fits("banana", "nll", levels), trivial=0.7), "banana", how="whitened")
    assert joint.deciding is not None
    assert joint.deciding.name == "joint DLM vs ELBO"


def test_7_agreement_and_absence_are_said_too(judged) -> None:
    both = fits("ringnorm", "nll", BETTER) + fits("ringnorm", "nll", BETTER, parameterisation="unwhitened")
    assert "the same under both parameterisations" in judged(7, both).difference
    assert "only the whitened q was run" in judged(7, fits("ringnorm", "nll", BETTER)).difference


def test_7_a_protocol_with_one_parameterisation_lacks_no_other(judged) -> None:
    """`released` has an unwhitened q for binary data, `converged` a whitened one."""
    for protocol, how in (("released", "unwhitened"), ("converged", "whitened")):
        records = fits("ringnorm", "nll", BETTER, parameterisation=how)
        judgement = judged(7, records, protocol=protocol)
        assert (judgement.verdict, judgement.difference) == (HOLDS, "")
        assert {found.parameterisation for found in judgement.findings} == {how}
        datasets = [command.split("dataset=")[1].split()[0] for command in judgement.missing]
        assert datasets == ["banana", "thyroid", "twonorm"]


def test_7_another_q_than_the_protocols_is_not_judged(judged) -> None:
    """As `anatomy` trains it, with fewer methods and at one size."""
    both = fits("ringnorm", "nll", BETTER) + fits("ringnorm", "nll", WORSE, parameterisation="unwhitened")
    judgement = judged(7, both, protocol="released")
    assert judgement.verdict is FAILS
    assert {found.parameterisation for found in judgement.findings} == {"unwhitened"}


def test_7_default_jobs_data_is_a_stand_in(judged) -> None:
    judgement = judged(7, fits("ringnorm_drawn", "nll", BETTER, seeds=3))
    assert judgement.basis == "stand-in data"
    assert judgement.data == ["ringnorm_drawn (stand-in for ringnorm)"]
    assert judgement.verdict is HOLDS


def test_8_no_loss(judged) -> None:
    level = {"elbo": 0.10, "beta_elbo": 0.10, "joint_log_dlm": 0.102, "fixed_log_dlm": 0.05}
    assert (
        judged(8, fits("banana", "error", level) + fits("abalone", "mre", level, **BMC), trivial=0.5).verdict is HOLDS
    )
    assert judged(8, fits("banana", "error", WORSE), trivial=0.5).verdict is FAILS
    assert (
        judged(8, fits("banana", "error", level) + fits("abalone", "mre", WORSE, **BMC), trivial=0.5).verdict is MIXED
    )
    assert judged(8, fits("banana", "error", BETTER)).verdict is HOLDS  # better is no worse, whatever the margin
    assert judged(8, fits("banana", "error", level)).verdict is UNDECIDABLE


def test_8_a_loss_beyond_the_margin_fails_however_small(judged) -> None:
    """The margin follows the metric: a loss of 0.01 is one where ELBO explains 0.1, and none where it explains 1."""
    level = {"elbo": 0.10, "beta_elbo": 0.10, "joint_log_dlm": 0.11, "fixed_log_dlm": 0.11}
    elbo = 0.10 + 0.05 * 2  # `fits` adds 0.05 per seed
    assert judged(8, fits("ringnorm", "error", level), trivial=elbo + 0.1).verdict is FAILS
    assert judged(8, fits("ringnorm", "error", level), trivial=elbo + 1.0).verdict is HOLDS


SECOND = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.6, "fixed_log_dlm": 0.2}
NAMES = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")


def counts(*levels: dict[str, float]) -> list:
    return [record for name, level in zip(NAMES, levels, strict=False) for record in fits(name, "nll", level, **BMC)]


def test_9_counts(judged) -> None:
    assert judged(9, counts(BETTER, BETTER, BETTER, BETTER)).verdict is HOLDS
    assert judged(9, counts(BETTER, BETTER, BETTER, SECOND)).verdict is HOLDS
    assert judged(9, counts(BETTER, BETTER, BETTER, WORSE), trivial=1.0).verdict is MIXED
    assert judged(9, counts(WORSE, WORSE, WORSE, WORSE)).verdict is FAILS
    assert judged(9, counts(BETTER, BETTER, SECOND, SECOND)).verdict is FAILS  # two of four are not three


def test_9_needs_three_of_the_four(judged) -> None:
    assert judged(9, counts(BETTER, BETTER, BETTER)).verdict is HOLDS
    assert judged(9, counts(BETTER, BETTER, SECOND)).verdict is UNDECIDED  # the fourth would tell
    assert judged(9, counts(BETTER, BETTER)).verdict is UNDECIDABLE
    judgement = judged(9, counts(SECOND))
    assert judgement.verdict is UNDECIDABLE
    assert [found.verdict for found in on(judgement, "abalone", how="whitened")] == [FAILS, HOLDS]


def test_9_exact_dlm_is_not_taken_for_bmc(judged) -> None:
    assert judged(9, fits("abalone", "nll", BETTER)).verdict is NOT_RUN
