"""Which settings are judged, and which rows belong to each."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.claims.columns import VerdictColumn, choose_columns, columns_of, rows_of
from tests.support.tidy import Made, fits

PAPER = VerdictColumn("paper")
FASTER = VerdictColumn("paper", "training.lr=0.5", ("training.lr=0.5",))
BOTH = VerdictColumn("paper", "training.lr=0.5, M=50", ("training.lr=0.5", "M=50"))
RELEASED = VerdictColumn("released")
QUICK = VerdictColumn("quick", preset=True)
OWN = VerdictColumn("aaa")


def test_label_has_changes_and_preset():
    assert PAPER.label == "paper"
    assert BOTH.label == "paper, training.lr=0.5, M=50"
    assert QUICK.label == "quick (preset)"


def test_options_show_the_setting():
    assert BOTH.options == "--protocol paper --where training.lr=0.5 --where M=50"


def test_each_protocol_is_judged_with_the_fewest_changes():
    assert choose_columns([BOTH, FASTER, PAPER], None) == [PAPER]
    assert choose_columns([BOTH, FASTER], None) == [FASTER]


def test_protocols_of_the_paper_come_first():
    assert choose_columns([OWN, RELEASED, PAPER], None) == [PAPER, RELEASED, OWN]


def test_a_preset_is_judged_only_without_a_whole_protocol():
    assert choose_columns([QUICK, PAPER], None) == [PAPER]
    assert choose_columns([QUICK], None) == [QUICK]


def test_everything_is_judged_on_request():
    assert choose_columns([QUICK, FASTER, PAPER], None, everything=True) == [PAPER, FASTER, QUICK]


def test_a_protocol_can_be_chosen():
    assert choose_columns([PAPER, RELEASED], "released") == [RELEASED]


def test_a_protocol_that_was_not_run_is_refused():
    with pytest.raises(UserError, match=r"--protocol nosuch: .*there is paper, released"):
        choose_columns([PAPER, FASTER, RELEASED], "nosuch")


def test_settings_are_found_from_the_most_frequent_on():
    rows = fits("banana", "elbo", 0.5, sizes=(100,), changes={"M": 50})
    rows += fits("banana", "elbo", 0.5)
    rows += fits("banana", "elbo", 0.5, sizes=(100,), seeds=2, protocol="quick")
    made = Made(rows)
    columns = columns_of(made.candidates, made.changes)
    assert columns == [PAPER, VerdictColumn("paper", "M=50", ("M=50",)), QUICK]


def test_runs_for_timing_are_settings_only_where_there_is_nothing_else():
    timing = fits("banana", "elbo", 0.5, role="timing", changes={"M": 50})
    alone = Made(timing)
    with_fits = Made(timing + fits("banana", "elbo", 0.5))
    assert columns_of(alone.candidates, alone.changes) == [
        VerdictColumn("paper", "M=50", ("M=50",))
    ]
    assert columns_of(with_fits.candidates, with_fits.changes) == [PAPER]


def test_rows_of_a_protocol_have_those_for_timing_whatever_their_changes():
    timing = fits("banana", "elbo", 0.5, sizes=(900,), role="timing", changes={"M": 50})
    made = Made(
        timing + fits("banana", "elbo", 0.5) + fits("banana", "elbo", 0.5, protocol="released")
    )
    assert sorted(rows_of(made.candidates, PAPER)["n"].unique()) == [100, 200, 500, 900]
    assert set(rows_of(made.candidates, PAPER)["protocol"]) == {"paper"}
    changed = VerdictColumn("paper", "M=50", ("M=50",))
    assert rows_of(made.candidates, changed)["n"].unique().tolist() == [900]


@pytest.mark.parametrize("column", ["data", "split", "evaluate"])
def test_the_contents_with_most_rows_count(column):
    few = fits("banana", "elbo", 0.9, seeds=2, **{column: "other"})
    made = Made(few + fits("banana", "elbo", 0.5) + fits("pol", "elbo", 0.5, **{column: "other"}))
    rows = rows_of(made.candidates, PAPER)
    assert set(rows[rows["dataset"] == "banana"][column]) != {"other"}
    assert "other" not in set(rows[rows["dataset"] == "banana"][column])
    assert set(rows[rows["dataset"] == "pol"][column]) == {"other"}
