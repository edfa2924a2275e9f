"""A user's own table all the way: run, plot, claims, report, status; and every command that is advised works."""

import html
import re
import shlex
import shutil
import sys
from itertools import pairwise

import numpy as np
import pytest

from dlmexp.cli import main

RUN = [
    "run", "dataset=csv", "csv.path=mall visits.csv", "csv.target=visits", "csv.task=count", "csv.name=mall",
    "method=[elbo,joint_log_dlm]", "estimator=[ups]", "beta=list", "beta.values=[1,0.1]", "seeds=[0]", "sizes=[20,40]",
    "training.count.max_iterations=3", "device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, and results on it."""
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},{rng.choice(['u', 'v'])},{rng.poisson(2)}" for _ in range(120)]
    (folder / "mall visits.csv").write_text("a,kind,visits\n" + "\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dlmexp", *RUN])
        assert main(RUN) == 0
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DLMEXP_DATA", str(folder))


@pytest.mark.slow
def test_what_was_read_is_said_before_anything_is_trained(here, capsys):
    assert main([*RUN, "plan=true"]) == 0
    said = capsys.readouterr().out
    assert (
        "mall: 120 rows of mall visits.csv, 2 features from 2 columns: a (number), kind (category of 2 levels" in said
    )
    assert "divided at random: 54 rows for training, 12 for validation, 54 for testing; n = 20, 40; M = 20" in said


@pytest.mark.slow
def test_the_experiment_is_named_after_its_data(here, folder, capsys):
    assert main(["status"]) == 0
    assert re.search(r"\bmall\b", capsys.readouterr().out)
    assert (folder / "results" / "mall" / "cells").is_dir()


@pytest.mark.slow
def test_whatever_was_run_is_drawn(here, capsys):
    import pandas as pd

    assert main(["plot"]) == 0
    said = capsys.readouterr().out
    assert "own-mall: results/figures/own-mall.{png,csv,md}" in said
    assert "not run" not in said
    assert "no results yet" not in said, "of the paper's figures, which nobody asked for"
    assert "missing" not in said
    numbers = pd.read_csv("results/figures/own-mall.csv")
    lines = set(zip(numbers["method"], numbers["estimator"], numbers["samples"].fillna(0), strict=True))
    assert lines == {("elbo", "exact", 0), ("joint_log_dlm", "ups", 10)}
    assert set(numbers["against"]) == {"n", "beta"}
    assert {"nll", "mre", "crps", "coverage_95"} <= set(numbers["metric"])
    for words in (["own-mall"], ["--by", "dataset=mall"]):
        assert main(["plot", *words, "--out", "elsewhere"]) == 0
        assert capsys.readouterr().out.startswith("own-mall: elsewhere/own-mall.")
    assert main(["plot", "own-hall"]) == 2
    assert "did you mean own-mall" in capsys.readouterr().err


@pytest.mark.slow
def test_another_table_under_the_same_name(here, folder, capsys):
    text = (folder / "mall visits.csv").read_text().replace("visits\n", "visits\n0.5,u,3\n")
    (folder / "other.csv").write_text(text)
    assert main([word.replace("mall visits.csv", "other.csv") for word in RUN]) == 2
    assert "csv.name=NAME" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_of_own_data_has_no_claims_of_the_paper(here, folder):
    assert main(["report"]) == 0
    page = (folder / "results" / "report.html").read_text()
    assert "What the paper says" not in page
    assert "#claims" not in page
    assert "own-mall" in page
    assert "lost" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


def advised(text: str) -> set[str]:
    """Every command in a text: after an arrow, in quotes, in backquotes, in <code> or at the end of a line."""
    found = {html.unescape(command) for command in re.findall(r"<code>(dlmexp [^<]+)</code>", text)}
    if "<html" not in text:
        quoted = re.findall(r"'(dlmexp [^'\n]+)'|`(dlmexp [^`\n]+)`", text)
        found |= {command for pair in quoted for command in pair if command}
        found |= {command.strip() for command in re.findall(r"(?:->|:)\s+(dlmexp [a-z].*?)\s*$", text, flags=re.M)}
    return {command for command in found if not re.search(r"\b(ID|NAME|FILE|COLUMN|DIR)\b|\.\.\.", command)}


@pytest.mark.slow
@pytest.mark.usefixtures("no_trials")
def test_every_command_that_is_advised_works(here, folder, monkeypatch, capsys):
    """And goes on with the folder that was read, which is not the usual one here."""
    results, said = "my results", ""
    shutil.copytree(folder / "results", folder / results)
    gaps = [word.replace("[20,40]", "[30]").replace("seeds=[0]", "seeds=[0,1]") for word in RUN]
    gaps.append(f"results={results}")
    monkeypatch.setattr(sys, "argv", ["dlmexp", *gaps])
    main(gaps)
    told = capsys.readouterr()
    said += told.out + told.err
    for words in (
        ["plot"], ["plot", "count-log", "--by", "dataset=mall"], ["plot", "count-mre", "--by", "dataset=mall"],
        ["claims", "--details"], ["claims", "--markdown"], ["status"], ["status", "--missing"], ["status", "--failed"],
        ["report"], ["logs", "mall"],
    ):  # fmt: skip
        main([*words, "--results", results])
        captured = capsys.readouterr()
        said += captured.out + captured.err
    commands = advised(said) | advised((folder / results / "report.html").read_text())
    assert len(commands) > 10
    assert any("dataset=csv 'csv.path=mall visits.csv'" in command for command in commands)
    for program in ("run", "plot", "claims", "report"):
        assert any(command.startswith(f"dlmexp {program}") for command in commands)
    failed = {}
    for command in sorted(commands):
        program, *words = shlex.split(command)
        assert program == "dlmexp"
        assert folder_of(words) == results, command
        code = main([*words, "plan=true"] if words[0] == "run" else words)
        problem = capsys.readouterr().err
        # Data of the paper that is not here can't be run here; the message says how to get it.
        if code != 0 and "data fetch" not in problem and "data import" not in problem:
            failed[command] = problem
    assert not failed


def folder_of(words: list[str]) -> str:
    """The results folder that a command names; '' for none, or for `dlmexp data`, which has none."""
    named = [word.removeprefix("results=") for word in words if word.startswith("results=")]
    named += [after for before, after in pairwise(words) if before == "--results"]
    assert len(named) < 2
    return named[0] if named else ""


@pytest.mark.slow
def test_a_folder_without_records_is_named_in_what_makes_some(here, folder, capsys):
    (folder / "no records").mkdir(exist_ok=True)
    for words in (["plot"], ["collect"], ["claims"], ["report"], ["status"]):
        for results in ("nowhere", "no records"):
            if main([*words, "--results", results]) == 2:
                said = capsys.readouterr().err
                assert all(folder_of(shlex.split(command)) == results for command in advised(said)), said


@pytest.mark.slow
def test_own_files_of_settings_work_in_every_command(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    own = folder / "my" / "dataset"
    own.mkdir(parents=True)
    (folder / "data" / "mall").mkdir(parents=True)
    (folder / "data" / "mall" / "visits.csv").write_bytes((folder / "mall visits.csv").read_bytes())
    (own / "town.yaml").write_text(
        "# @package dataset.town\nname: town\nloader: table\ntask: count\nlikelihood: poisson\nM: 5\nsizes: [20]\n"
        "split: counts\noptions: {target: visits, drop: [kind]}\nfiles:\n  - name: mall/visits.csv\n"
    )
    words = [*RUN[6:], "dataset=town", "results=town", "sizes=[20]", "data_root=data"]
    assert main(["run", *words, "--config-dir", "my"]) == 0
    assert (folder / "town" / "town" / "cells").is_dir()
    for command in (["data", "list"], ["data", "check", "town"], ["plot", "--results", "town"], ["--config-dir", "my"]):
        arguments = [*command, "data", "list"] if command[0].startswith("--") else [*command, "--config-dir", "my"]
        capsys.readouterr()
        assert main(arguments) == 0
        assert "town" in capsys.readouterr().out
    assert main(["data", "check", "town"]) == 2
