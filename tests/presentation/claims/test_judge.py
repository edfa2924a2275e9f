"""Claims under every protocol: outcomes, verdicts, data, and what would compute the rest."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import pytest

from dlmexp.common import catalogue
from dlmexp.experiment.plan.cell import Changes
from dlmexp.presentation.claims.claim import CLAIMS, ClaimTest, Part
from dlmexp.presentation.claims.judge import datasets_of, is_about_same_task, judge
from dlmexp.presentation.claims.rules import Outcome
from tests.support.tidy import Made, fits
from tests.support.verdicts import (
    LOG_METHODS,
    LOW,
    Rows,
    judged,
    lines,
    outcomes,
    verdict,
    words,
)

GOOD = lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2)
GOOD_WORDS = "reproduced (6 of 6 tests)"
BAD_WORDS = "not reproduced (0 of 6 tests)"


def under(protocol: str, changes: Changes | None = None, gap: float = 0.0) -> Rows:
    """Return rows of a protocol that support claim 7, or contradict it with a gap of 0.6."""
    rows = [row | {"protocol": protocol, "changes": changes or {}} for row in GOOD]
    return [row | {"test_nll": row["test_nll"] + gap * (row["method"] != "elbo")} for row in rows]


def by_column(rows: Rows, **options) -> dict[str, str]:
    return {one.column: one.words for one in judged(rows, 7, **options).verdicts}


def test_protocols_are_columns_of_their_own():
    rows = under("released", gap=0.6) + under("paper")
    assert by_column(rows) == {"paper": GOOD_WORDS, "released": BAD_WORDS}


def test_other_contents_of_a_dataset_do_not_mix():
    other = [row | {"data": "other", "test_nll": 9.0} for row in under("paper") if row["seed"] < 2]
    assert by_column(under("paper") + other) == {"paper": GOOD_WORDS}


def test_changed_settings_are_columns_on_request():
    rows = (
        under("paper")
        + under("paper", {"training.lr": 0.01}, gap=0.6)
        + under("paper", {"M": 50}, gap=0.6)
    )
    assert by_column(rows) == {"paper": GOOD_WORDS}
    assert judged(rows, 7).left_out == [
        "--protocol paper --where training.lr=0.01",
        "--protocol paper --where M=50",
    ]
    assert by_column(rows, where=["training.lr=0.01"]) == {"paper, training.lr=0.01": BAD_WORDS}


def test_a_changed_setting_is_judged_where_there_is_no_other():
    assert by_column(under("paper", {"M": 50})) == {"paper, M=50": GOOD_WORDS}


def test_a_preset_is_left_out_beside_a_whole_protocol():
    quick = fits("banana", "elbo", 0.5, protocol="quick")
    assert [column.label for column in judged(quick, 18).columns] == ["quick (preset)"]
    both = judged(quick + fits("banana", "elbo", 0.5), 18)
    assert [column.label for column in both.columns] == ["paper"]
    assert both.left_out == ["--protocol quick"]


def test_claims_are_in_the_order_of_their_numbers_with_a_verdict_per_column():
    result = judged(under("paper") + under("released"), 7)
    ((claim, verdicts),) = result.by_claim()
    assert claim is CLAIMS["7"]
    assert list(verdicts) == ["paper", "released"]
    assert list(result.by_column()) == ["paper", "released"]


def test_a_frame_has_a_row_per_verdict():
    frame = judged(under("paper"), 7).as_frame()
    (row,) = frame.drop(columns=["claim", "where", "missing", "commands"]).to_dict("records")
    assert row == {
        "column": "paper",
        "number": 7,
        "verdict": "reproduced",
        "words": GOOD_WORDS,
        "supported": 6,
        "contradicted": 0,
        "no_difference": 0,
        "unclear": 0,
        "data": ["ringnorm"],
        "stand_ins": [],
        "not_available": ["banana", "thyroid", "twonorm"],
        "repetitions": [5, 5],
    }


def test_a_verdict_counts_datasets_repetitions_and_records():
    rows = lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW})
    rows += lines("sarcos", seeds=4, **LOG_METHODS | {"joint_log_dlm": LOW})
    result = verdict(rows, 1)
    assert result.verdict == "reproduced"
    assert result.repetitions == [4, 5]
    assert result.dataset_labels == ["pol", "sarcos"]
    assert result.not_available == ["song"]
    assert result.origin.records == 5 * 3 * (5 + 4)
    assert result.origin.commits == ["abc"]
    assert result.origin.commands == ["dlmexp run experiment=made-up"]


def test_tests_on_stand_ins_count_and_are_named():
    rows = lines("sarcos_test", **LOG_METHODS | {"fitc": LOW})
    rows += lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW})
    result = verdict(rows, 1)
    assert result.words == "partly (3 of 6 tests)"
    assert result.dataset_labels == ["pol", "sarcos_test (stand-in for sarcos)"]
    assert result.datasets == ["pol", "sarcos_test"]
    assert result.stand_ins == ["sarcos_test"]
    assert result.not_available == ["song"]


def test_a_stand_in_for_a_direction_of_peds1_makes_up_for_one_of_three():
    result = verdict(on_counts("peds1_left"), 9)
    assert result.stand_ins == ["peds1_left"]
    assert result.not_available == ["abalone", "peds1_dir0", "peds1_dir2"]


def on_counts(dataset: str) -> Rows:
    return lines(dataset, elbo=0.5, beta_elbo=0.5, fixed_log_dlm=0.5, joint_log_dlm=0.2)


def test_a_claim_without_data_names_none():
    result = verdict(GOOD, 17)
    assert (result.dataset_labels, result.not_available, result.repetitions) == ([], [], [])


def test_tests_that_can_not_tell_are_counted_where_there_are_no_others():
    rows = lines("ringnorm", elbo=0.2, joint_log_dlm=0.1, seeds=2)
    assert words(rows, 7) == "not tested (3 tests can't tell)"


@pytest.fixture
def claim_of_parts(monkeypatch):
    """Register claims that yield given parts; returns the function that judges the first."""
    from dlmexp.presentation.claims.claim import Claim

    def judge_parts(*parts: Part, number: int = 100, others: tuple[Part, ...] = ()):
        items = {n: CLAIMS[n] for n in CLAIMS.names()}
        items[str(number)] = Claim(number, "text", "where", lambda evidence: parts)
        if others:
            items["101"] = Claim(101, "text", "where", lambda evidence: others)
        monkeypatch.setattr(CLAIMS, "_items", items)
        return verdict(GOOD, number)

    return judge_parts


def part_with(*p_values: float, outcome: Outcome = Outcome.SUPPORTED, **facts) -> Part:
    """Return a part with a test for each p-value."""
    tests = [ClaimTest(n=100, p_values={outcome: p}) for p in p_values]
    return Part("says", "pol", tests=tests, **facts)


def test_supplementary_parts_do_not_count(claim_of_parts):
    good = part_with(0.001, repetitions=5)
    bad = part_with(0.001, outcome=Outcome.CONTRADICTED, repetitions=3, supplementary=True)
    result = claim_of_parts(good, bad)
    assert result.verdict == "reproduced"
    assert result.repetitions == [5, 5]
    assert len(result.parts_run) == 2


def test_outcomes_hold_the_false_discovery_rate_of_the_whole_table(claim_of_parts):
    """Of four tests, p = 0.03 is adjusted to 0.04 if three reject, to 0.12 if it is alone."""
    several = claim_of_parts(part_with(0.01, 0.02, 0.03, 0.9)).parts[0]
    assert outcomes(several) == ["supported"] * 3 + ["can't tell"]
    assert several.tests[2].p_adjusted == pytest.approx(0.04)
    alone = claim_of_parts(part_with(0.03, 0.9, 0.9, 0.9)).parts[0]
    assert outcomes(alone) == ["can't tell"] * 4
    assert alone.tests[0].p_adjusted == pytest.approx(0.12)
    assert alone.tests[0].p == 0.03


def test_tests_of_all_claims_of_plugins_are_one_table(claim_of_parts):
    alone = claim_of_parts(part_with(0.03))
    assert alone.words == "reproduced (1 of 1 test)"
    with_others = claim_of_parts(part_with(0.03), others=(part_with(0.9, 0.9, 0.9),))
    assert with_others.words == "not tested (1 test can't tell)"


def test_claims_of_plugins_change_no_verdict_of_the_papers(claim_of_parts):
    before = verdict(GOOD, 7).parts_run[0].tests[0].p_adjusted
    claim_of_parts(part_with(*[0.9] * 500))
    assert verdict(GOOD, 7).parts_run[0].tests[0].p_adjusted == before


def test_the_most_certain_outcome_is_that_of_the_test(claim_of_parts):
    both = ClaimTest(n=1, p_values={Outcome.SUPPORTED: 0.9, Outcome.NO_DIFFERENCE: 0.001})
    (test,) = claim_of_parts(Part("says", "pol", tests=[both])).parts[0].tests
    assert (test.outcome, test.p) == ("no difference", 0.001)


def test_outcomes_that_need_no_p_value_stay(claim_of_parts):
    counted = Part("says", "pol", tests=[ClaimTest(Outcome.CONTRADICTED)])
    assert claim_of_parts(counted, part_with(0.001)).words == "partly (1 of 2 tests)"


def test_a_claim_is_the_same_whichever_are_asked_for():
    rows = GOOD + lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW})
    alone = judged(rows, 7).verdicts[0]
    among_all = judge(Made(rows)).by_claim()[6][1]["paper"]
    adjusted = [
        [test.p_adjusted for part in one.parts_run for test in part.tests]
        for one in (alone, among_all)
    ]
    assert adjusted[0] == adjusted[1]


def test_margins_change_outcomes():
    rows = lines("ringnorm", elbo=0.5, joint_log_dlm=0.46, fixed_log_dlm=0.46)
    assert judged(rows, 7).verdicts[0].verdict == "reproduced"
    assert judged(rows, 7, margins=2.0).verdicts[0].verdict == "not reproduced"


def test_missing_datasets_have_a_command_per_experiment_of_their_task():
    result = verdict(fits("pol", "beta_elbo", 0.5), 20)
    assert "dlmexp run experiment=reg-log dataset=sarcos" in result.missing
    assert "dlmexp run experiment=class-log dataset=banana" in result.missing
    assert "dlmexp run experiment=count-log dataset=abalone" in result.missing
    assert len(result.missing) == 12  # once each; also pol, where other methods are missing


def test_missing_commands_have_protocol_and_changes():
    rows = under("released", {"M": 50})
    assert verdict(rows, 7).missing[0] == (
        "dlmexp run experiment=class-log dataset=banana protocol=released M=50"
    )


def test_an_experiment_is_about_the_task_of_its_datasets():
    assert is_about_same_task("reg-log", "song")
    assert not is_about_same_task("reg-log", "banana")
    assert not is_about_same_task("count-mre", "banana")
    assert is_about_same_task("nosuch", "banana")


def test_datasets_of_an_experiment_may_come_from_another(monkeypatch):
    assert datasets_of("count-log") == ["abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2"]
    assert datasets_of("count-mre") == datasets_of("count-log")
    assert datasets_of("nosuch") == []


def test_the_name_of_an_experiment_says_nothing_about_its_task(monkeypatch):
    own = {"reg-mine": {"defaults": [{"override /dataset": "banana"}]}}
    experiments = catalogue.entries("experiment") | own
    datasets = catalogue.entries("dataset")
    monkeypatch.setattr(
        "dlmexp.presentation.claims.judge.entries",
        lambda group: experiments if group == "experiment" else datasets,
    )
    assert is_about_same_task("reg-mine", "thyroid")
    assert not is_about_same_task("reg-mine", "pol")
