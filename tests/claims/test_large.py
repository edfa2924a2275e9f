"""Claims 10 to 12, both ways, on the stand-in."""

from dlmexp.claims.judge import STAND_IN
from dlmexp.claims.rules import Verdict
from tests.support.levels import ends, on

HOLDS, FAILS, MIXED, UNDECIDABLE = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.UNDECIDABLE


def methods(elbo: float, joint: float, fixed: float) -> dict:
    levels = {"beta_elbo": elbo, "joint_log_dlm": joint, "fixed_log_dlm": fixed}
    return {(name, beta, "exact", None): level for name, level in levels.items() for beta in (0.1, 1.0, 10.0)}


def estimators(**levels: float) -> dict:
    pairs = {
        "exact": ("exact", None), "bmc1": ("bmc", 1), "bmc10": ("bmc", 10), "bmc100": ("bmc", 100), "ups1": ("ups", 1),
        "ups10": ("ups", 10), "smooth1": ("smooth_bmc", 1), "smooth10": ("smooth_bmc", 10),
        "smooth100": ("smooth_bmc", 100),
    }  # fmt: skip
    return {("joint_log_dlm", 0.1, *pairs[name]): level for name, level in levels.items()}


def test_10_dlm_beats_elbo_at_every_beta(judged) -> None:
    judgement = judged(10, ends("flights", methods(0.7, 0.6, 0.65)))
    assert judgement.verdict is HOLDS
    assert judgement.basis == STAND_IN
    assert judged(10, ends("flights", methods(0.6, 0.7, 0.65))).verdict is FAILS
    one_beta_worse = methods(0.7, 0.6, 0.65) | {("joint_log_dlm", 10.0, "exact", None): 0.9}
    assert judged(10, ends("flights", one_beta_worse)).verdict is MIXED


def test_11_samples_needed(judged) -> None:
    good = estimators(exact=0.6, bmc1=0.8, bmc10=0.7, bmc100=0.602, ups1=0.65, ups10=0.603)
    bad = estimators(exact=0.6, bmc1=0.8, bmc10=0.603, bmc100=0.7, ups1=0.75, ups10=0.7)
    elbo = {("beta_elbo", 1.0, "exact", None): 0.6}
    assert judged(11, ends("flights", good | elbo), trivial=0.9).verdict is HOLDS
    assert judged(11, ends("flights", bad | elbo), trivial=0.9).verdict is FAILS
    bmc_is_enough = good | estimators(bmc10=0.602) | elbo
    assert judged(11, ends("flights", bmc_is_enough), trivial=0.9).verdict is MIXED
    assert judged(11, ends("flights", good | elbo)).verdict is UNDECIDABLE


def test_12_smoothing_changes_nothing(judged) -> None:
    good = estimators(exact=0.6, bmc1=0.8, bmc10=0.7, bmc100=0.61, smooth1=0.805, smooth10=0.698, smooth100=0.61)
    bad = estimators(exact=0.6, bmc1=0.8, bmc10=0.7, bmc100=0.65, smooth1=0.6, smooth10=0.6, smooth100=0.6)
    elbo = {("beta_elbo", 1.0, "exact", None): 0.6}
    assert judged(12, ends("airline", good | elbo), trivial=0.9).verdict is HOLDS
    assert judged(12, ends("airline", bad | elbo), trivial=0.9).verdict is FAILS
    assert judged(12, ends("airline", good | elbo | estimators(smooth1=0.7)), trivial=0.9).verdict is MIXED


def test_margin_is_a_share_of_what_elbo_explains(judged) -> None:
    """The same difference matters where there is less to explain; where ELBO explains nothing, there is no margin."""
    levels = estimators(bmc1=0.6, smooth1=0.63) | {("beta_elbo", 1.0, "exact", None): 0.6}
    for trivial, verdict in ((1.6, HOLDS), (0.8, FAILS), (0.5, UNDECIDABLE), (None, UNDECIDABLE)):
        (found,) = on(judged(12, ends("airline", levels), trivial=trivial), "airline", "smooth-bMC-1 ", "whitened")
        assert found.verdict is verdict
