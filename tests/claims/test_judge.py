"""All claims together, and how they are told."""

import argparse
import json
from pathlib import Path

import pytest
import yaml

from dlmexp.claims.changes import claim_by_claim, part_changes, protocol_changes
from dlmexp.claims.judge import claims, judge, judge_protocols
from dlmexp.claims.render import as_json, as_markdown, as_table, as_text, summaries, summary_words, verdict_words
from dlmexp.claims.rules import Verdict
from dlmexp.cli import claims as command
from dlmexp.config import PARAMETERISATIONS
from dlmexp.errors import UserError
from dlmexp.paths import CONFIG_DIRS, conf_dir
from dlmexp.records.manifest import Asked
from dlmexp.records.results import Results, load
from dlmexp.records.settings import Setting
from dlmexp.records.store import Store
from dlmexp.records.wanted import Wanted
from tests.support.levels import fits
from tests.support.made_up import asked, fill, method_cell, paper

pytestmark = pytest.mark.slow

JOINT = {"elbo": 0.5, "beta_elbo": 0.45, "fitc": 0.4, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    fill(folder, paper(seeds=range(3), betas=2))
    return folder


def test_there_are_22_in_order() -> None:
    assert [claim.number for claim in claims()] == list(range(1, 23))


def test_with_nearly_nothing_run_only_the_bounds_are_judged(tmp_path: Path) -> None:
    fill(tmp_path, [method_cell("elbo", "csv", task="binary")])
    judged = judge_protocols(load(tmp_path))
    assert [one.claim.number for one in judged["paper"] if one.verdict is not Verdict.NOT_RUN] == [17]
    words = "22 claims: 1 hold, 0 fail, 0 mixed, 0 undecided, 0 undecidable, 21 not run"
    assert summary_words(judged["paper"]) == words
    assert f"Protocol paper: {words}." in as_text(judged)
    assert "not run: dlmexp run experiment=reg-log dataset=pol" in as_text(judged, details=True)


def test_everything_is_judged_where_everything_was_run(whole: Path) -> None:
    assert all(one.verdict is not Verdict.NOT_RUN for one in judge(load(whole)))


def test_json_is_strict_and_whole(whole: Path) -> None:
    text = json.dumps(as_json(judge_protocols(load(whole))), allow_nan=False)
    data = json.loads(text)
    assert len(data) == 22
    first = data[0]
    assert first.keys() == {"number", "claim", "verdicts", "changes", "protocols"}
    assert first["verdicts"].keys() == first["protocols"].keys() == {"paper"}
    judgement = first["protocols"]["paper"]
    fields = {"verdict", "basis", "paper", "stand_in", "data", "repetitions", "commands", "missing", "findings"}
    assert fields <= judgement.keys()
    found = judgement["findings"][0]
    assert found["counts"].startswith("supported at ")
    assert set(found["sizes"].values()) <= {"supported", "contradicted", "undecided", "neither"}
    assert {"name", "n", "ours", "rival", "difference", "p", "effect", "repetitions"} <= set(found["comparisons"][0])
    by_q = data[6]["protocols"]["paper"]["parameterisations"]
    assert by_q["the paper's data"].keys() == {"whitened", "unwhitened"}


def test_stand_ins_never_appear_under_the_papers_name(whole: Path) -> None:
    for one in as_json(judge_protocols(load(whole))):
        for found in one["protocols"]["paper"]["findings"]:
            if found["verdict"] != "not run":
                assert found["dataset"] not in ("sarcos", "airline", "song", "peds1_dir0", "peds1_dir1", "peds1_dir2")


def test_markdown_is_a_table_with_details(whole: Path) -> None:
    text = as_markdown(judge_protocols(load(whole)))
    lines = text.splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 23
    assert len([line for line in lines if line.startswith("## ") and line[3].isdigit()]) == 22
    assert "sarcos_test (stand-in for sarcos)" in text
    assert "supported at" in text


def test_text_is_a_line_per_claim_and_details_on_request(tmp_path: Path) -> None:
    fill(tmp_path, fits("pol", "nll", JOINT))
    judged = judge_protocols(load(tmp_path))
    short, long = as_text(judged), as_text(judged, details=True)
    assert " 1  holds        pol, sarcos, song: joint log-DLM has the lowest NLL." in short.splitlines()
    assert " not run. On a part of the paper's data: 1, " in short
    assert "p = " not in short
    assert " 1. HOLDS: pol, sarcos, song: joint log-DLM has the lowest NLL." in long
    assert "supported at 1 of 1 size, contradicted at 0; joint DLM vs fixed DLM: 0." in long
    assert "p = " in long


@pytest.fixture
def two_protocols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """On pol joint DLM is lowest under `paper` and not under `slower`, a protocol with another learning rate."""
    slower = yaml.safe_load((conf_dir() / "protocol" / "paper.yaml").read_text())
    slower["training"]["regression"]["lr"] = 0.01
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "slower.yaml").write_text(yaml.safe_dump(slower))
    monkeypatch.setenv(CONFIG_DIRS, str(tmp_path))
    worse = JOINT | {"joint_log_dlm": 0.45}
    parts = {"slower": fits("pol", "nll", worse, lr=0.01), "paper": fits("pol", "nll", JOINT)}
    wanted = [
        Asked(one.method, one.betas, one.keys, protocol=name)
        for name, records in parts.items()
        for one in asked(records)
    ]
    return Results(Store("nowhere"), [record for records in parts.values() for record in records], wanted)


def test_protocols_are_judged_side_by_side(two_protocols: Results) -> None:
    judged = judge_protocols(two_protocols)
    assert {name: several[0].verdict for name, several in judged.items()} == {"paper": "holds", "slower": "fails"}
    assert list(judged) == ["paper", "slower"]
    text = as_text(judged)
    assert " 1  holds        fails        pol, sarcos, song" in text
    assert (
        "1. On the paper's data: holds under paper, fails under slower; they differ in: pol: joint DLM has the "
        "lowest NLL (paper holds, slower fails)." in text
    )
    assert "Protocol slower: 22 claims" in text
    assert as_json(judged)[0]["verdicts"] == {"paper": "holds", "slower": "fails"}
    assert "| # | claim | verdict, protocol paper | verdict, protocol slower |" in as_markdown(judged)
    assert [column.header for column in as_table(judged).columns] == ["#", "claim", "paper", "slower"]


def test_parts_are_compared_with_the_q_of_each_protocol(tmp_path: Path) -> None:
    """`released` has one q for binary data, `paper` two: the missing one is no difference."""
    better = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
    fixed_worse = better | {"fixed_log_dlm": 0.6}
    parts = {
        "paper": [record for q in PARAMETERISATIONS for record in fits("ringnorm", "nll", better, parameterisation=q)],
        "released": fits("ringnorm", "nll", fixed_worse, parameterisation="unwhitened", lr=0.01),
    }
    judged = {}
    for name, records in parts.items():
        results = Results(Store(tmp_path), records, asked(records))
        judged[name] = judge(results, Setting(name))
    (said,) = protocol_changes(claim_by_claim(judged)[6])
    part = "ringnorm, q unwhitened: fixed DLM beats ELBO in NLL (paper holds, released fails)."
    assert said == f"On the paper's data: holds under paper, mixed under released; they differ in: {part}"
    count, *lines = part_changes(judged)
    both_differ = sum(line.count("paper ") for line in lines)
    assert count.startswith(f"{both_differ} of ")
    assert f"7. {part}" in lines
    assert f"- 7. {part}" in as_markdown(judged).splitlines()
    assert part_changes({"paper": judged["paper"]}) == []


def test_a_verdict_on_fewer_datasets_says_so(tmp_path: Path) -> None:
    """Verdicts of a claim stand in one row: where one rests on less data than another, its cell names what it lacks."""
    better = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
    pol, stand_in = (fits(name, "nll", better | {"fitc": 0.45}) for name in ("pol", "sarcos_test"))
    parts = {"paper": [*pol, *stand_in, *fits("ringnorm", "nll", better)], "converged": fits("ringnorm", "nll", better)}
    judged = {
        name: judge(Results(Store(tmp_path), records, asked(records)), Setting(name)) for name, records in parts.items()
    }
    together, whole = claim_by_claim(judged)[20], claim_by_claim(judged)[6]
    assert verdict_words(together, "paper") == "holds; stand-ins: holds"
    assert verdict_words(together, "converged") == "holds (without pol)", "of stand-ins it has none"
    assert verdict_words(whole, "converged") == "holds", "ringnorm is all that the claim was judged on"
    assert verdict_words(claim_by_claim(judged)[0], "converged") == "not run"
    assert "| holds; stand-ins: holds | holds (without pol) |" in as_markdown(judged)
    parts["converged"] = fits("ringnorm", "nll", better | {"elbo": 0.05})
    judged["converged"] = judge(Results(Store(tmp_path), parts["converged"], asked(parts["converged"])), Setting("c"))
    (said,) = protocol_changes(claim_by_claim(judged)[20])
    assert said.startswith("On the paper's data: holds under paper, undecidable (without pol) under converged; ")
    assert "pol:" not in said, "a dataset that one protocol lacks is no difference"


def test_a_verdict_on_fewer_sizes_says_so(tmp_path: Path) -> None:
    """Claims that compare (21), that count fits (18) and that count selected betas (20); and the parts that differ."""
    better = {"elbo": 0.5, "beta_elbo": 0.45, "fitc": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
    worse = better | {"elbo": 0.01}
    small, middle = (fits("pol", "nll", better, n=n) for n in (100, 200))
    parts = {"paper": [*small, *middle, *fits("pol", "nll", worse, n=400)], "converged": small}
    judged = {
        name: judge(Results(Store(tmp_path), records, asked(records)), Setting(name)) for name, records in parts.items()
    }
    by_number = dict(enumerate(claim_by_claim(judged), 1))
    lacks = "(without pol at n = 200, 400)"
    for number in (1, 18, 20, 21):
        assert verdict_words(by_number[number], "converged").endswith(lacks)
        assert lacks not in verdict_words(by_number[number], "paper")
    (said,) = protocol_changes(by_number[1])
    assert said.startswith(f"On the paper's data: mixed under paper, holds {lacks} under converged; ")
    assert said.endswith("pol: joint DLM has the lowest NLL (paper mixed at 3 sizes, converged holds at 1 size).")


def test_what_was_run_with_another_q_is_named(tmp_path: Path) -> None:
    better = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
    other = [
        record for name in ("ringnorm", "banana") for record in fits(name, "nll", better, parameterisation="whitened")
    ]
    records = [*other, *fits("ringnorm", "nll", better, parameterisation="unwhitened")]
    said = "Run and not judged, for this q is not the protocol's: banana, ringnorm with q whitened."
    for name, expected in (("released", True), ("paper", False)):
        judged = judge(Results(Store(tmp_path), records, asked(records)), Setting(name))
        (summary,) = summaries({name: judged})
        assert (said in summary) == expected, "paper has both"


def test_a_verdict_may_change_with_q_alone(tmp_path: Path) -> None:
    better = {"elbo": 0.5, "beta_elbo": 0.45, "joint_log_dlm": 0.1, "fixed_log_dlm": 0.2}
    worse = better | {"elbo": 0.05}
    same = fits("ringnorm", "nll", better, parameterisation="unwhitened")
    judged = {}
    for name, records in {"paper": [*fits("ringnorm", "nll", worse), *same], "released": same}.items():
        judged[name] = judge(Results(Store(tmp_path), records, asked(records)), Setting(name))
    (said,) = protocol_changes(claim_by_claim(judged)[6])
    assert said == "On the paper's data: mixed under paper, holds under released; with the same q no part differs."


def test_one_protocol_alone(two_protocols: Results) -> None:
    assert list(judge_protocols(two_protocols, Wanted("slower"))) == ["slower"]
    with pytest.raises(UserError, match="no record was made under protocol 'convergd'"):
        judge_protocols(two_protocols, Wanted("convergd"))


def test_command(tmp_path: Path, capsys) -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    fill(tmp_path, fits("pol", "nll", JOINT))
    options = ("--json", '"number": 1'), ("--markdown", "| # | claim"), ("--details", "p = "), (None, "22 claims:")
    for option, sign in options:
        args = parser.parse_args(["claims", "--results", str(tmp_path), *([option] if option else [])])
        assert args.run(args) == 0
        assert sign in capsys.readouterr().out
    args = parser.parse_args(["claims", "--results", str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="there is no folder"):
        args.run(args)


def test_command_on_a_terminal(tmp_path: Path, capsys, monkeypatch) -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    fill(tmp_path, fits("pol", "nll", JOINT))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    args = parser.parse_args(["claims", "--results", str(tmp_path), "--protocol", "paper"])
    assert args.run(args) == 0
    said = capsys.readouterr().out
    assert "joint log-DLM" in said
    assert "Protocol paper: 22 claims" in said
