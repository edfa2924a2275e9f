"""Claims 1 to 6 and 14, both ways."""

import pytest

from dlmexp.claims.judge import PAPER, STAND_IN
from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record
from tests.support.levels import ends, fits, on
from tests.support.made_up import failed, fit, method_cell

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN
UNDECIDED, UNDECIDABLE = Verdict.UNDECIDED, Verdict.UNDECIDABLE
JOINT = {"elbo": 0.5, "beta_elbo": 0.45, "fitc": 0.4, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.3}
FIXED = JOINT | {"joint_log_dlm": 0.3, "fixed_log_dlm": 0.1}
SQUARE = {"joint_sq_dlm": 0.05, "fixed_sq_dlm": 0.2}


def test_1_joint_log_dlm_lowest(judged) -> None:
    assert judged(1, fits("pol", "nll", JOINT) + fits("song", "nll", JOINT)).verdict is HOLDS
    assert judged(1, fits("pol", "nll", FIXED)).verdict is FAILS
    assert judged(1, fits("pol", "nll", JOINT) + fits("song", "nll", FIXED)).verdict is MIXED


def test_1_says_what_was_not_run(judged) -> None:
    judgement = judged(1, fits("pol", "nll", JOINT))
    folder = f"results={judgement.results.store.root}"
    assert judgement.missing == [
        f"dlmexp run experiment=reg-log dataset=sarcos {folder}",
        f"dlmexp run experiment=reg-log dataset=song {folder}",
    ]
    assert judgement.data == ["pol"]
    assert judgement.repetitions == (5, 5)
    assert judgement.commands == [f"dlmexp run experiment=made-up {folder}"]


def test_1_stand_ins_are_judged_apart_and_labelled(judged) -> None:
    judgement = judged(1, fits("pol", "nll", JOINT) + fits("sarcos_test", "nll", FIXED))
    assert (judgement.verdict, judgement.on(PAPER), judgement.on(STAND_IN)) == (HOLDS, HOLDS, FAILS)
    assert judgement.data == ["pol", "sarcos_test (stand-in for sarcos)"]
    alone = judged(1, fits("sarcos_test", "nll", JOINT))
    assert (alone.verdict, alone.basis, alone.on(PAPER)) == (HOLDS, STAND_IN, NOT_RUN)


def test_1_two_repetitions_are_too_few(judged) -> None:
    judgement = judged(1, fits("pol", "nll", JOINT, seeds=2))
    assert judgement.verdict is UNDECIDABLE
    assert "too few to judge" in on(judgement, "pol")[0].words


def test_1_is_judged_by_size(judged) -> None:
    def sizes(*levels: dict[str, float]) -> list[Record]:
        return [record for i, level in enumerate(levels) for record in fits("pol", "nll", level, n=100 * (i + 1))]

    (found,) = on(judged(1, sizes(JOINT, JOINT, JOINT)), "pol")
    assert found.verdict is HOLDS
    assert found.sizes is not None
    assert found.sizes.words == "supported at 3 of 3 sizes, contradicted at 0"
    assert judged(1, sizes(JOINT, JOINT, FIXED)).verdict is MIXED  # contradicted somewhere
    assert judged(1, sizes(JOINT, FIXED)).verdict is FAILS  # at half of the sizes
    even = JOINT | {"fixed_log_dlm": 0.1, "joint_log_dlm": 0.1}
    assert judged(1, sizes(JOINT, even)).verdict is HOLDS
    assert judged(1, sizes(even, even, JOINT)).verdict is UNDECIDED
    assert judged(1, sizes(even, even, JOINT), trivial=2.0).verdict is MIXED  # narrow enough to see no difference


def test_1_failed_repetitions_are_counted(judged) -> None:
    records = [*fits("pol", "nll", JOINT, seeds=4), failed(method_cell("joint_log_dlm", "pol", seed=4, beta=2.0))]
    (found,) = on(judged(1, records), "pol")
    assert found.verdict is HOLDS
    assert "1 repetition failed" in found.words


def test_1_a_rival_that_was_not_run_can_not_be_beaten(judged) -> None:
    (found,) = on(judged(1, fits("pol", "nll", {"elbo": 0.5, "joint_log_dlm": 0.1})), "pol")
    assert found.verdict is UNDECIDABLE
    assert found.words == "not run: β-ELBO, FITC, fixed DLM"
    worse = judged(1, fits("pol", "nll", {"elbo": 0.1, "joint_log_dlm": 0.5}))
    assert worse.verdict is FAILS, "one rival that is better is enough"
    without = {name: level for name, level in JOINT.items() if name != "fitc"}
    (found,) = on(judged(1, fits("pol", "nll", without) + fits("pol", "nll", {"fitc": 0.01}, seeds=2)), "pol")
    assert found.verdict is UNDECIDABLE
    assert "too few repetitions" in found.words


def test_1_the_comparison_that_is_told_is_that_with_the_strongest_rival(judged) -> None:
    (found,) = on(judged(1, fits("pol", "nll", JOINT)), "pol")
    assert found.deciding is not None
    assert found.deciding.name == "joint DLM vs fixed DLM"


def test_1_fits_with_another_q_are_not_taken_for_whitened_ones(judged) -> None:
    """The anatomy experiment has both in regression."""
    whitened = fits("pol", "nll", JOINT)
    other = fits("pol", "nll", {"joint_log_dlm": -9.0}, parameterisation="unwhitened")
    alone, both = (
        [[one.comparison for one in found.measured] for found in judged(1, records).findings]
        for records in (whitened, whitened + other)
    )
    assert alone == both


def test_2_fixed_log_dlm_lowest_on_cadata(judged) -> None:
    assert judged(2, fits("cadata", "nll", FIXED)).verdict is HOLDS
    assert judged(2, fits("cadata", "nll", JOINT)).verdict is FAILS


def test_3_square_loss_lowest(judged) -> None:
    swapped = {"joint_sq_dlm": 0.2, "fixed_sq_dlm": 0.05}
    assert judged(3, fits("pol", "mse", JOINT | SQUARE) + fits("cadata", "mse", JOINT | swapped)).verdict is HOLDS
    assert judged(3, fits("pol", "mse", JOINT | swapped)).verdict is FAILS
    assert judged(3, fits("pol", "mse", JOINT | SQUARE) + fits("cadata", "mse", JOINT | SQUARE)).verdict is MIXED


def test_4_square_beats_log(judged) -> None:
    low = {"joint_sq_dlm": 0.05, "fixed_sq_dlm": 0.2, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.3}
    high = {"joint_sq_dlm": 0.15, "fixed_sq_dlm": 0.4, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.3}
    assert judged(4, fits("sarcos", "mse", low)).verdict is HOLDS
    assert judged(4, fits("sarcos", "mse", high)).verdict is FAILS


def test_5_beta_elbo_beats_elbo(judged) -> None:
    assert judged(5, fits("sarcos", "mse", {"elbo": 0.5, "beta_elbo": 0.4})).verdict is HOLDS
    worse = fits("sarcos", "mse", {"elbo": 0.4, "beta_elbo": 0.5})
    same = judged(5, worse)  # validation selects beta = 1 for beta-ELBO too
    assert same.verdict is MIXED
    assert "neither at 1" in same.findings[0].sizes.words
    for record in worse:
        record.result.validation = {"nll": record.cell.beta == 1.0, "mse": record.cell.beta == 1.0}
    assert judged(5, worse).verdict is FAILS  # validation misleads it


def grid(n: int, best: dict[str, float]) -> list[Record]:
    """Fits over beta whose validation and test NLL are lowest at the given beta."""
    return [
        fit(method_cell(method, "cadata", n=n, seed=seed, beta=beta), nll=abs(beta - at) + 0.01 * seed, mse=1.0)
        for method, at in best.items()
        for beta in (0.25, 0.5, 2.0, 4.0)
        for seed in range(5)
    ]


def test_6_best_beta(judged) -> None:
    above = {"beta_elbo": 4.0, "joint_log_dlm": 2.0, "fixed_log_dlm": 2.0}
    below = above | {"joint_log_dlm": 0.5}
    holds = judged(6, grid(691, above) + grid(11063, below))
    assert holds.verdict is HOLDS
    first = holds.findings[0]
    assert first.figures == {"median_beta": 4.0, "share": 1.0}
    assert first.measured[0].comparison.difference == pytest.approx(3.5)
    assert judged(6, grid(691, below)).verdict is MIXED
    assert judged(6, grid(691, dict.fromkeys(above, 0.25))).verdict is FAILS
    everything_above = judged(6, grid(691, above) + grid(11063, above))
    assert everything_above.verdict is MIXED  # joint DLM does not go below 1 at 80 %


def test_6_says_what_was_not_run(judged) -> None:
    judgement = judged(6, grid(691, {"beta_elbo": 4.0, "joint_log_dlm": 2.0, "fixed_log_dlm": 2.0}))
    assert judgement.missing == [f"dlmexp run experiment=reg-log dataset=cadata results={judgement.results.store.root}"]


def test_6_only_whole_grids_select(judged) -> None:
    below = {"beta_elbo": 0.25, "joint_log_dlm": 0.25, "fixed_log_dlm": 0.25}
    whole = grid(691, below)
    interrupted = [record for record in whole if (record.cell.beta or 0) > 1]
    assert judged(6, whole).verdict is FAILS
    nothing = judged(6, interrupted, asked=whole)
    assert nothing.verdict is NOT_RUN
    assert not any(found.measured or found.repetitions or found.commands for found in nothing.findings)


def test_6_zero_is_below_1(judged) -> None:
    zero = [
        fit(method_cell("joint_log_dlm", "cadata", n=11063, seed=seed, beta=beta), nll=beta + 0.01 * seed, mse=1.0)
        for beta in (0.0, 1.0, 2.0)
        for seed in range(5)
    ]
    (found,) = on(judged(6, zero), "cadata", "joint DLM at 80%")
    assert found.verdict is HOLDS
    (measured,) = found.measured
    assert measured.name == "joint DLM: best β < 1 vs best β ≥ 1"
    assert measured.comparison.difference == pytest.approx(1.0)


def test_6_the_others_do_not_select_below_1(judged) -> None:
    """At 80 % a beta of 1 is as good as a larger one."""
    one = [
        fit(method_cell("beta_elbo", "cadata", n=11063, seed=seed, beta=beta), nll=abs(beta - 1) + 0.01 * seed, mse=1.0)
        for beta in (0.5, 1.0, 2.0)
        for seed in range(5)
    ]
    (found,) = on(judged(6, one), "cadata", "β-ELBO at 80%")
    assert found.about.endswith("selects no β < 1")
    assert found.verdict is HOLDS


def curve_levels(**levels: float) -> dict:
    pairs = {"exact": ("exact", None), "one": ("bmc", 1), "ten": ("bmc", 10), "hundred": ("bmc", 100)}
    return {("joint_log_dlm", 0.1, *pairs[name]): level for name, level in levels.items()}


def test_14_sampled_gradients(judged) -> None:
    elbo = fits("pol", "nll", {"elbo": 0.2}, n=2000)
    good = curve_levels(exact=0.1, one=0.5, ten=0.12, hundred=0.101)
    bad = curve_levels(exact=0.1, one=0.1, ten=0.5, hundred=0.4)
    assert judged(14, ends("pol", good) + elbo, trivial=1.5).verdict is HOLDS
    assert judged(14, ends("pol", bad) + elbo, trivial=1.5).verdict is FAILS
    only_hundred = judged(14, ends("pol", good | curve_levels(ten=0.3)) + elbo, trivial=1.5)
    assert only_hundred.verdict is MIXED
    assert [found.verdict for found in on(only_hundred, "pol")] == [HOLDS, FAILS, HOLDS]
    assert [found.about for found in on(only_hundred, "pol")[1:]] == [
        "bMC-10 recovers exact gradients (main text)",
        "bMC-100 recovers exact gradients (supplement)",
    ]


def test_14_without_a_margin_nothing_matches(judged) -> None:
    good = ends("pol", curve_levels(exact=0.1, one=0.5, ten=0.12, hundred=0.101))
    blind = judged(14, good + fits("pol", "nll", {"elbo": 0.2}, n=2000))
    assert blind.verdict is UNDECIDABLE
    assert on(blind, "pol")[1].words == "records of version 0.1 have no trivial predictor, so there is no margin"
    assert "ELBO was not run" in on(judged(14, good, trivial=1.5), "pol")[1].words
