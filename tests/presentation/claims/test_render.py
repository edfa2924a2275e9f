"""Verdicts as text, Markdown and JSON. The published claims have them in full (test_published)."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import json
from dataclasses import replace

import numpy as np
import pytest

from dlmexp.cli import main
from dlmexp.presentation.claims import render
from dlmexp.presentation.claims.claim import ClaimTest, Part
from dlmexp.presentation.claims.judge import Judged, judge
from dlmexp.presentation.claims.rules import Outcome
from tests.support.tidy import Made, fits
from tests.support.verdicts import judged, lines

GOOD = lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2)
RELEASED = [
    row | {"protocol": "released"}
    for row in lines("ringnorm", elbo=0.5, joint_log_dlm=0.8, fixed_log_dlm=0.8)
]
TEST = ClaimTest(
    outcome=Outcome.SUPPORTED,
    n=100,
    direction="lower than",
    ours_name="joint DLM",
    rival_name="ELBO",
    rivals=1,
    ours=0.2,
    rival=0.5,
    difference=0.3,
    low=0.28,
    high=0.32,
    margin=0.025,
    effect=6.71,
    repetitions=5,
    won=5,
    p=0.00123,
    p_adjusted=0.0456,
)


def test_a_test_says_who_is_lower_by_how_much_and_how_certainly():
    assert render.numbers_of_test(TEST) == (
        "n = 100, joint DLM 0.2, ELBO 0.5: difference 0.3 [0.28, 0.32], margin 0.025, "
        "p = 0.0012 [0.046], 5 repetitions"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"margin": np.nan}, "no margin"),
        ({"low": -np.inf, "high": np.inf}, "difference 0.3, margin"),
        ({"rivals": 4}, "ELBO (the nearest of 4) 0.5"),
        ({"median": True}, "median difference 0.3"),
        ({"p": np.nan}, "margin 0.025, 5 repetitions"),
        ({"reason": "a reason"}, "5 repetitions, a reason"),
    ],
)
def test_a_test_without_margin_interval_or_p_value_and_with_several_rivals(change, words):
    assert words in render.numbers_of_test(replace(TEST, **change))


def test_a_part_is_a_statement_with_its_tests():
    part = Part(
        "joint DLM beats ELBO",
        "sarcos_test",
        "whitened",
        [TEST, ClaimTest(Outcome.CONTRADICTED)],
        reason="a reason",
        stands_for="sarcos",
    )
    assert render.part_lines(part) == [
        "- sarcos_test (stand-in for sarcos), q whitened: joint DLM beats ELBO (a reason)",
        f"  - **supported**: {render.numbers_of_test(TEST)}",
        "  - **contradicted**",
    ]


def test_a_part_without_data_is_its_statement():
    assert render.statement_of_part(Part("it holds")) == "it holds"


def test_a_supplementary_part_is_counted_apart():
    part = Part("it costs no more", "abalone", supplementary=True)
    assert render.statement_of_part(part) == "abalone, (counted apart) it costs no more"


@pytest.fixture
def both() -> Judged:
    """Claim 7, which is reproduced under `paper` and not under `released`."""
    return judged(GOOD + RELEASED, 7)


def test_summaries_count_verdicts_by_column(both):
    assert render.summaries(both) == [
        "paper: 1 claim: 1 reproduced",
        "released: 1 claim: 1 not reproduced",
    ]


def test_summaries_name_presets_and_other_settings():
    preset = judged(fits("banana", "elbo", 0.5, protocol="quick"), 18)
    assert render.summaries(preset)[1].startswith("A preset makes runs smaller.")
    left_out = judged(GOOD + [row | {"changes": {"M": 50}} for row in GOOD], 7)
    assert render.summaries(left_out)[1] == "Other settings: --protocol paper --where M=50."


def test_claims_without_tests_are_one_line():
    everything = judge(Made(GOOD))
    tested, others = render.split_by_tested(everything)
    assert {7, 17, 18} <= {claim.number for claim, _ in tested}
    assert len(tested) + len(others) == 33
    assert render.not_tested_words(others[:2], everything.with_results_option) == (
        "2 claims not tested: 1, 2. What to run for one: dlmexp claims 1"
    )
    assert render.not_tested_words([], everything.with_results_option) == ""


def test_the_table_has_a_heading_for_each_section_of_the_paper():
    both = judge(Made(GOOD), [7, 8, 3])
    cells = list(render.as_table(both).columns[1].cells)
    assert [str(cell) for cell in cells if "section" in str(cell)] == ["section 6.2"]


def test_the_markdown_table_has_verdicts_per_protocol_and_numbers_of_data(both):
    head, rule, row = render.as_markdown(both).splitlines()
    assert head == ("| # | claim | paper | released | data sets | stand-ins | not available |")
    assert rule == "|---|---|---|---|---|---|---|"
    assert row.startswith("| 7 | ringnorm: DLM beats ELBO in NLL;")
    assert row.endswith("| reproduced (6 of 6 tests) | not reproduced (0 of 6 tests) | 1 |  | 3 |")


def test_counts_have_a_row_per_protocol_with_verdicts_and_outcomes(both):
    head, _, paper, released = render.as_markdown_counts(both).splitlines()
    assert head == (
        "| protocol | reproduced | partly | not reproduced | not tested | tests | supported | "
        "contradicted | no difference | can't tell |"
    )
    assert paper == "| paper | 1 | 0 | 0 | 0 | 6 | 6 | 0 | 0 | 0 |"
    assert released == "| released | 0 | 0 | 1 | 0 | 6 | 0 | 6 | 0 | 0 |"


def test_a_claim_in_full_has_tests_pictures_and_commands(both):
    text = render.detail_lines(both)
    assert text[0] == "## 7. " + both.verdicts[0].claim.text
    assert "### paper: reproduced (6 of 6 tests)" in text
    assert "6 tests: 6 supported" in text
    assert sum(line.startswith("  - **supported**: n = ") for line in text) == 6
    assert sum(line.startswith("  - **contradicted**: n = ") for line in text) == 6
    assert "Data: ringnorm" in text
    assert "Not available: banana, thyroid, twonorm" in text
    assert "Commands for these records: `dlmexp run experiment=made-up`" in text
    assert any(line.startswith("Not run: `dlmexp run experiment=class-log") for line in text)
    assert text[-1] == "Pictures: `dlmexp plot class-log`"


def test_bars_in_cells_of_markdown_are_escaped():
    rows = fits("abalone", "fixed_log_dlm", 0.3, role="gradient", estimator="bmc", samples=1.0)
    arrays = {f"key{i}": {"error": [1.0], "condition_i": [1.0]} for i in range(len(rows))}
    others = [row | {"estimator": "ups"} for row in rows]
    arrays |= {f"key{i + len(rows)}": arrays[f"key{i}"] for i in range(len(rows))}
    text = render.as_markdown(judged(rows + others, 15, arrays))
    assert r"\|g - G\|²" in text


def test_json_has_the_keys_that_programs_read(both):
    (document,) = render.as_json(both)
    assert list(document) == ["number", "claim", "where", "verdicts", "protocols"]
    assert document["verdicts"] == {"paper": "reproduced", "released": "not reproduced"}
    under_paper = document["protocols"]["paper"]
    assert list(under_paper) == [
        "verdict",
        "words",
        "supported",
        "contradicted",
        "no_difference",
        "unclear",
        "data",
        "stand_ins",
        "not_available",
        "repetitions",
        "commands",
        "commits",
        "records",
        "missing",
        "parts",
    ]
    part = under_paper["parts"][0]
    assert list(part) == [
        "says",
        "dataset",
        "stands_for",
        "q",
        "beside",
        "reason",
        "figures",
        "repetitions",
        "records",
        "commands",
        "commits",
        "tests",
    ]
    assert list(part["tests"][0]) == [
        "outcome",
        "n",
        "direction",
        "ours_name",
        "rival_name",
        "rivals",
        "ours",
        "rival",
        "difference",
        "low",
        "high",
        "margin",
        "effect",
        "repetitions",
        "won",
        "median",
        "p",
        "p_adjusted",
        "reason",
    ]
    assert [test["n"] for test in part["tests"]] == [100, 200, 500]


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
    monkeypatch.setattr("dlmexp.experiment.records.results.ResultsFolder", lambda folder, **_: made)

    def call(*options: str, status: int = 0) -> str:
        assert main(["claims", *options]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return call


@pytest.mark.slow
def test_command_prints_what_was_tested_and_folds_the_rest(command):
    text = command()
    rows = [line.split()[0] for line in text.splitlines() if line[:5].strip().isdigit()]
    assert {"7", "17", "18"} <= set(rows)
    assert len(rows) < 12
    assert f"{33 - len(rows)} claims not tested: 1, 2, " in text
    example = text.partition("One claim in full: dlmexp claims ")[2].split()[0]
    assert example in rows


@pytest.mark.slow
def test_command_prints_chosen_claims_in_full(command):
    text = command("7", "18")
    headings = [line.split(".")[0] for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## 7", "## 18"]
    assert "margin 0.025" in text  # 5 % of what ELBO explains


@pytest.mark.slow
def test_command_multiplies_margins(command):
    assert "margin 0.05" in command("7", "--margins", "2")


@pytest.mark.slow
def test_command_prints_json_in_the_order_of_numbers(command):
    documents = json.loads(command("18", "7", "--json"))
    assert [document["number"] for document in documents] == [7, 18]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "7 --where nosuch=1",
        "7 --where lr=7",
        "7 --protocol annealed",
        "99",
        "--margins 0",
        "--margins nan",
        "--margins inf",
    ],
)
def test_command_refuses_what_there_is_not(command, options):
    assert options.split()[-1] in command(*options.split(), status=2)
