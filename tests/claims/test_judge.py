"""All claims together, and how they are told."""

import argparse
import json
from pathlib import Path

import pytest

from dlmexp.claims.judge import claims, judge
from dlmexp.claims.render import as_json, as_markdown, as_text, summary_words
from dlmexp.claims.rules import Verdict
from dlmexp.cli import claims as command
from dlmexp.errors import UserError
from dlmexp.records.results import load
from tests.support.levels import fits
from tests.support.made_up import fill, method_cell, paper

pytestmark = pytest.mark.slow

JOINT = {"elbo": 0.5, "beta_elbo": 0.45, "fitc": 0.4, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    fill(folder, paper(seeds=range(3), betas=2))
    return folder


def test_there_are_19_in_order() -> None:
    assert [claim.number for claim in claims()] == list(range(1, 20))


def test_with_nearly_nothing_run_only_the_bounds_are_judged(tmp_path: Path) -> None:
    fill(tmp_path, [method_cell("elbo", "csv", task="binary")])
    judgements = judge(load(tmp_path))
    assert [one.claim.number for one in judgements if one.verdict is not Verdict.NOT_RUN] == [17]
    assert summary_words(judgements) == "19 claims: 1 hold, 0 fail, 0 mixed, 18 not run"
    text = as_text(judgements)
    assert "not run: dlmexp run experiment=reg-log dataset=pol" in text


def test_everything_is_judged_where_everything_was_run(whole: Path) -> None:
    assert all(one.verdict is not Verdict.NOT_RUN for one in judge(load(whole)))


def test_json_is_strict_and_whole(whole: Path) -> None:
    judgements = judge(load(whole))
    text = json.dumps(as_json(judgements), allow_nan=False)
    data = json.loads(text)
    assert len(data) == 19
    first = data[0]
    assert {"verdict", "basis", "paper", "stand_in", "data", "repetitions", "commands", "missing", "findings"} <= set(
        first
    )
    comparison = first["findings"][0]["comparisons"][0]
    assert {"name", "ours", "rival", "difference", "p", "effect", "repetitions"} <= set(comparison)
    assert data[6]["parameterisations"]["the paper's data"].keys() == {"whitened", "unwhitened"}


def test_stand_ins_never_appear_under_the_papers_name(whole: Path) -> None:
    for one in as_json(judge(load(whole))):
        for found in one["findings"]:
            if found["verdict"] != "not run":
                assert found["dataset"] not in ("sarcos", "airline", "song", "peds1_dir0", "peds1_dir1", "peds1_dir2")


def test_markdown_is_a_table_with_details(whole: Path) -> None:
    text = as_markdown(judge(load(whole)))
    lines = text.splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 20
    assert len([line for line in lines if line.startswith("## ")]) == 19
    assert "sarcos_test (stand-in for sarcos)" in text


def test_text_gives_figures_and_p_values(tmp_path: Path) -> None:
    fill(tmp_path, fits("pol", "nll", JOINT))
    text = as_text(judge(load(tmp_path)))
    assert " 1. HOLDS: pol, sarcos, song: joint log-DLM has the lowest NLL." in text
    assert "joint DLM vs fixed DLM: 0." in text
    assert "p = " in text


def test_command(tmp_path: Path, capsys) -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    fill(tmp_path, fits("pol", "nll", JOINT))
    for option, sign in (("--json", '"number": 1'), ("--markdown", "| # | claim"), (None, "19 claims:")):
        args = parser.parse_args(["claims", "--results", str(tmp_path), *([option] if option else [])])
        assert args.run(args) == 0
        assert sign in capsys.readouterr().out
    args = parser.parse_args(["claims", "--results", str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="there is no folder"):
        args.run(args)
