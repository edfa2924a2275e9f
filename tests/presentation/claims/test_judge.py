"""Claims under every protocol: what a verdict rests on, and what would compute the rest."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import pytest

from dlmexp.common import catalogue
from dlmexp.experiment.plan.cell import Changes
from dlmexp.presentation.claims.claim import CLAIMS, Part
from dlmexp.presentation.claims.judge import computes, datasets_of
from dlmexp.presentation.claims.rules import Verdict
from tests.support.tidy import fits
from tests.support.verdicts import LOG_METHODS, LOW, Rows, judged, lines, verdict, words

GOOD = lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2)


def under(protocol: str, changes: Changes | None = None, gap: float = 0.0) -> Rows:
    """Return rows of a protocol on which claim 7 holds, or fails with a gap of 0.6."""
    rows = [row | {"protocol": protocol, "changes": changes or {}} for row in GOOD]
    return [row | {"test_nll": row["test_nll"] + gap * (row["method"] != "elbo")} for row in rows]


def by_column(rows: Rows, **options) -> dict[str, str]:
    return {one.column: one.words for one in judged(rows, 7, **options).verdicts}


def test_protocols_are_columns_of_their_own():
    rows = under("released", gap=0.6) + under("paper")
    assert by_column(rows) == {"paper": "holds on 1 of 4", "released": "fails on 1 of 4"}


def test_other_contents_of_a_dataset_do_not_mix():
    other = [row | {"data": "other", "test_nll": 9.0} for row in under("paper") if row["seed"] < 2]
    assert by_column(under("paper") + other) == {"paper": "holds on 1 of 4"}


def test_changed_settings_are_columns_on_request():
    rows = (
        under("paper")
        + under("paper", {"training.lr": 0.01}, gap=0.6)
        + under("paper", {"M": 50}, gap=0.6)
    )
    assert by_column(rows) == {"paper": "holds on 1 of 4"}
    assert judged(rows, 7).left_out == [
        "--protocol paper --where training.lr=0.01",
        "--protocol paper --where M=50",
    ]
    assert by_column(rows, where=["training.lr=0.01"]) == {
        "paper, training.lr=0.01": "fails on 1 of 4"
    }


def test_a_changed_setting_is_judged_where_there_is_no_other():
    assert by_column(under("paper", {"M": 50})) == {"paper, M=50": "holds on 1 of 4"}


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
    assert frame[["column", "number", "verdict", "words", "basis"]].to_dict("records") == [
        {
            "column": "paper",
            "number": 7,
            "verdict": "holds",
            "words": "holds on 1 of 4",
            "basis": "paper",
        }
    ]


def test_a_verdict_counts_datasets_repetitions_and_records():
    rows = lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW})
    rows += lines("sarcos", seeds=4, **LOG_METHODS | {"joint_log_dlm": LOW})
    result = verdict(rows, 1)
    assert result.verdict == "holds"
    assert (result.seen, result.named) == (2, 3)
    assert result.repetitions == [4, 5]
    assert result.data == ["pol", "sarcos"]
    assert result.origin.records == 5 * 3 * (5 + 4)
    assert result.origin.commits == ["abc"]
    assert result.origin.commands == ["dlmexp run experiment=made-up"]


def test_stand_ins_are_judged_apart_and_decide_only_where_there_is_nothing_else():
    stand_in = lines("sarcos_test", **LOG_METHODS | {"fitc": LOW})
    paper = lines("pol", **LOG_METHODS | {"joint_log_dlm": LOW})
    alone = verdict(stand_in, 1)
    assert (alone.paper, alone.stand_in, alone.verdict) == ("not run", "fails", "fails")
    assert alone.basis == "stand-in"
    assert alone.data == ["sarcos_test (stand-in for sarcos)"]
    assert alone.words == "stand-ins: fails"
    both = verdict(stand_in + paper, 1)
    assert (both.paper, both.stand_in, both.verdict) == ("holds", "fails", "holds")
    assert both.basis == "paper"
    assert both.words == "holds on 1 of 3; stand-ins: fails"
    assert both.seen == 1


def test_a_claim_without_data_has_no_basis():
    assert verdict(GOOD, 17).basis == "none"


def test_too_few_repetitions_are_said():
    rows = lines("ringnorm", elbo=0.2, joint_log_dlm=0.1, seeds=2)
    assert words(rows, 7) == "too few repetitions (2 of 3)"


def test_a_count_of_datasets_names_stand_ins():
    rows = []
    for dataset in ("abalone", "peds1_left"):
        rows += lines(dataset, elbo=0.5, beta_elbo=0.5, fixed_log_dlm=0.5, joint_log_dlm=0.2)
    assert words(rows, 9) == "2 of 2 seen (1 a stand-in)"


@pytest.fixture
def claim_of_parts(monkeypatch):
    """Register a claim 100 that yields given parts; returns the function that judges it."""
    from dlmexp.presentation.claims.claim import Claim

    def judge_parts(*parts: Part):
        items = {"100": Claim(100, "text", "where", lambda evidence: parts)}
        monkeypatch.setattr(CLAIMS, "_items", items | {n: CLAIMS[n] for n in CLAIMS.names()})
        return verdict(GOOD, 100)

    return judge_parts


def test_supplementary_parts_do_not_count(claim_of_parts):
    holds = Part("a", "pol", verdict=Verdict.HOLDS, repetitions=5)
    fails = Part("b", "pol", verdict=Verdict.FAILS, repetitions=3, supplementary=True)
    result = claim_of_parts(holds, fails)
    assert result.verdict == "holds"
    assert result.repetitions == [5, 5]
    assert len(result.parts_run) == 2


def test_corrected_verdicts_are_summed_up_like_the_others(claim_of_parts):
    weaker = Part("a", "pol", verdict=Verdict.HOLDS, corrected=Verdict.UNDECIDED)
    without = Part("b", "pol", verdict=Verdict.HOLDS)
    result = claim_of_parts(weaker, without)
    assert result.verdict == "holds"
    assert result.corrected == "undecided"


def test_missing_datasets_have_a_command_per_experiment_of_their_task():
    result = verdict(fits("pol", "beta_elbo", 0.5), 20)
    assert "dlmexp run experiment=reg-log dataset=sarcos" in result.missing
    assert "dlmexp run experiment=class-log dataset=banana" in result.missing
    assert "dlmexp run experiment=count-log dataset=abalone" in result.missing
    assert len(result.missing) == 11  # all but pol, once each


def test_missing_commands_have_protocol_and_changes():
    rows = under("released", {"M": 50})
    assert verdict(rows, 7).missing[0] == (
        "dlmexp run experiment=class-log dataset=banana protocol=released M=50"
    )


def test_an_experiment_is_about_the_task_of_its_datasets():
    assert computes("reg-log", "song")
    assert not computes("reg-log", "banana")
    assert not computes("count-mre", "banana")
    assert computes("nosuch", "banana")


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
    assert computes("reg-mine", "thyroid")
    assert not computes("reg-mine", "pol")
