"""Verdicts as text, Markdown and JSON. The published claims have them in full (test_published)."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import json
from dataclasses import replace

import numpy as np
import pytest

from dlmexp.cli import main
from dlmexp.presentation.claims import render
from dlmexp.presentation.claims.claim import PairedTest, Part
from dlmexp.presentation.claims.judge import Judged
from dlmexp.presentation.claims.rules import SizeState, Verdict
from tests.support.tidy import Made, fits
from tests.support.verdicts import judged, lines

GOOD = lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2)
RELEASED = [
    row | {"protocol": "released"}
    for row in lines("ringnorm", elbo=0.5, joint_log_dlm=0.8, fixed_log_dlm=0.8)
]
TEST = PairedTest(
    ours_name="joint DLM",
    rival_name="ELBO",
    n=100,
    margin=0.025,
    ours=0.2,
    rival=0.5,
    difference=0.3,
    error=0.01,
    effect=6.71,
    repetitions=5,
    won=5,
    p=0.00123,
    p_corrected=0.0456,
    half_width=0.02,
)


def test_a_test_says_who_is_lower_by_how_much_and_how_certainly():
    assert render.paired_test_words(TEST) == (
        "joint DLM vs ELBO, n = 100: 0.2 against 0.5 "
        "(lower by 0.3, margin 0.025, p = 0.0012 [0.046], d = 6.7, 5 repetitions)"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"difference": -0.3}, "higher by 0.3"),
        ({"difference": 0.0}, "(equal, margin"),
        ({"margin": np.nan}, "no margin"),
        ({"effect": np.inf}, "d = ∞"),
    ],
)
def test_a_test_without_difference_margin_or_scatter(change, words):
    assert words in render.paired_test_words(replace(TEST, **change))


def test_states_are_counted():
    states = [SizeState.SUPPORTED] * 4 + [SizeState.UNDECIDED] * 2
    assert render.states_words(dict(enumerate(states))) == (
        "supported at 4 of 6 sizes, contradicted at 0, undecided at 2"
    )
    assert render.states_words({100: SizeState.CONTRADICTED}) == (
        "supported at 0 of 1 size, contradicted at 1"
    )


def test_a_part_says_where_it_is_judged_and_why():
    part = Part(
        "joint DLM beats ELBO",
        "sarcos_test",
        "whitened",
        Verdict.HOLDS,
        Verdict.UNDECIDED,
        reason="a reason",
        states={100: SizeState.SUPPORTED},
        tests=[TEST, TEST],
        deciding=0,
        stands_for="sarcos",
    )
    assert render.part_words(part) == (
        "sarcos_test (stand-in for sarcos), q whitened: joint DLM beats ELBO. "
        "supported at 1 of 1 size, contradicted at 0; "
        f"{render.paired_test_words(TEST)} and 1 more; "
        "corrected for overlapping splits: undecided; a reason"
    )


def test_a_part_without_data_and_numbers_is_its_statement():
    assert render.part_words(Part("it holds", verdict=Verdict.HOLDS)) == "it holds."


def test_a_supplementary_part_is_beside_the_claim():
    part = Part("it costs no more", "abalone", supplementary=True)
    assert render.part_words(part) == "abalone: (beside the claim) it costs no more."


@pytest.fixture
def both() -> Judged:
    """Claim 7, which holds under `paper` and fails under `released`."""
    return judged(GOOD + RELEASED, 7)


def test_summaries_count_verdicts_by_column(both):
    assert render.summaries(both) == ["paper: 1 claims: 1 hold", "released: 1 claims: 1 fail"]


def test_summaries_name_stand_ins_presets_and_other_settings():
    stand_in = judged(lines("sarcos_test", elbo=0.5, beta_elbo=0.2), 5)
    assert render.summaries(stand_in) == ["paper: 1 claims: 1 hold (1 on stand-ins alone)"]
    preset = judged(fits("banana", "elbo", 0.5, protocol="quick"), 18)
    assert render.summaries(preset)[1].startswith("A preset's run is a small one")
    left_out = judged(GOOD + [row | {"changes": {"M": 50}} for row in GOOD], 7)
    assert render.summaries(left_out)[1] == "Other settings: --protocol paper --where M=50."


def test_changes_name_protocols_that_disagree(both):
    assert "7: holds under paper, fails under released." in render.changes(both)


def test_changes_name_datasets_whose_parts_depend_on_q():
    unwhitened = [row | {"parameterisation": "unwhitened", "protocol": "paper"} for row in RELEASED]
    assert render.changes(judged(GOOD + unwhitened, 7)) == [
        "7 under paper: parts on ringnorm depend on the coordinates of q."
    ]


def test_changes_name_verdicts_that_the_correction_would_change(both):
    (first, _) = both.verdicts
    corrected = replace(both, verdicts=[replace(first, corrected=Verdict.UNDECIDED)])
    assert render.changes(corrected) == [
        "7 under paper: undecided with p-values corrected for overlapping splits."
    ]


def test_the_markdown_table_has_a_column_per_protocol(both):
    head, rule, row = render.as_markdown_table(both).splitlines()
    assert head == "| # | claim | paper | released | judged on | repetitions |"
    assert rule == "|---|---|---|---|---|---|"
    assert row.startswith("| 7 | ringnorm: DLM beats ELBO in NLL;")
    assert row.endswith("| holds on 1 of 4 | fails on 1 of 4 | ringnorm | 5 |")


def test_the_markdown_table_has_the_range_of_repetitions():
    rows = lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2, seeds=7)
    rows += lines("banana", elbo=0.5, beta_elbo=0.5, joint_log_dlm=0.5)
    assert render.as_markdown_table(judged(rows, 7)).endswith("| ringnorm, banana | 5–7 |\n")
    assert "| no data needed |  |" in render.as_markdown_table(judged(rows, 17))


def test_counts_have_a_row_per_protocol(both):
    assert render.as_markdown_counts(both).splitlines() == [
        "| protocol | hold | fail | of these, on stand-ins alone |",
        "|---|---|---|---|",
        "| paper | 1 | 0 | 0 |",
        "| released | 0 | 1 | 0 |",
    ]


def test_details_have_all_parts_and_commands(both):
    lines_below = render.below_table(both, details=True)
    assert "## 7. " + both.verdicts[0].claim.text in lines_below
    assert "### paper: holds on 1 of 4" in lines_below
    assert sum(line.startswith("- **holds**: ringnorm, q whitened: ") for line in lines_below) == 2
    assert "Commands for these records: `dlmexp run experiment=made-up`" in lines_below
    assert any(line.startswith("Not run: `dlmexp run experiment=class-log") for line in lines_below)


def test_bars_in_cells_of_markdown_are_escaped():
    text = render.as_markdown_table(judged(GOOD, 15))
    assert r"\|g - G\|²" in text


def test_json_has_the_keys_that_programs_read(both):
    (document,) = render.as_json(both)
    assert list(document) == ["number", "claim", "where", "verdicts", "protocols"]
    assert document["verdicts"] == {"paper": "holds", "released": "fails"}
    under_paper = document["protocols"]["paper"]
    assert list(under_paper) == [
        "paper",
        "stand_in",
        "verdict",
        "corrected",
        "basis",
        "data",
        "repetitions",
        "commands",
        "commits",
        "records",
        "missing",
        "words",
        "parts",
    ]
    part = under_paper["parts"][0]
    assert list(part) == [
        "stands_for",
        "says",
        "dataset",
        "q",
        "verdict",
        "corrected",
        "reason",
        "beside",
        "states",
        "comparisons",
        "repetitions",
        "records",
        "commands",
        "commits",
        "figures",
    ]
    assert list(part["comparisons"][0]) == [
        "ours_name",
        "rival_name",
        "n",
        "margin",
        "ours",
        "rival",
        "difference",
        "error",
        "effect",
        "repetitions",
        "won",
        "p",
        "p_corrected",
        "half_width",
    ]
    assert part["states"] == dict.fromkeys(("100", "200", "500"), "supported")


def test_numbers_in_json_have_six_digits_and_null_where_they_are_not_finite():
    value = {"a": [1 / 3, np.nan, (np.inf, 12345678.0)], 5: "text", "n": 12345678}
    assert render.six_digits(value) == {
        "a": [0.333333, None, [None, 12345700.0]],
        "5": "text",
        "n": 12345678,
    }


@pytest.fixture
def command(monkeypatch, capsys):
    """Return what `dlmexp claims` prints on made-up results."""
    made = Made(GOOD + RELEASED)
    monkeypatch.setattr("dlmexp.experiment.records.results.ResultsFolder", lambda folder: made)

    def call(*options: str, status: int = 0) -> str:
        assert main(["claims", *options]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return call


@pytest.mark.slow
def test_command_prints_all_claims(command):
    rows = [line for line in command().splitlines() if line[:4].strip().isdigit()]
    assert len(rows) == 22


@pytest.mark.slow
def test_command_prints_details_of_chosen_claims(command):
    text = command("7", "18", "--details")
    headings = [line.split(".")[0] for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## 7", "## 18"]
    assert "margin 0.025" in text  # 5 % of what ELBO explains


@pytest.mark.slow
def test_command_prints_json_in_the_order_of_numbers(command):
    documents = json.loads(command("18", "7", "--json"))
    assert [document["number"] for document in documents] == [7, 18]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["7 --where nosuch=1", "7 --where lr=7", "7 --protocol annealed", "23"]
)
def test_command_refuses_what_there_is_not(command, options):
    assert options.split()[-1] in command(*options.split(), status=2)
