"""A user's own table all the way: run, plot, claims, report, status; and every command that is
advised works."""

import contextlib
import html
import io
import re
import shlex
import sys
from itertools import pairwise

import numpy as np
import pytest

from dlmexp.cli import main

pytestmark = pytest.mark.slow
RESULTS = "my results"  # not the usual folder, which every advised command has to name
OWN = [
    "method=[elbo,joint_log_dlm]",
    "estimator=[ups]",
    "beta=list",
    "beta.values=[1,0.1]",
    "sizes=[20]",
    "device=cpu",
    "training.count.max_iterations=3",
    "seeds=[0]",
]
TABLE = [
    "dataset=csv",
    "csv.path=mall visits.csv",
    "csv.target=visits",
    "csv.task=count",
    "csv.name=mall",
]
RUN = ["run", *TABLE, *OWN, f"results={RESULTS}"]
READERS = {
    "plot": ["plot"],
    "by": ["plot", "count-log", "--by", "dataset=mall"],
    "claims": ["claims", "--details"],
    "status": ["status", "--missing", "--failed"],
    "report": ["report"],
    "logs": ["logs", "mall"],
}


def told(words: list[str]) -> tuple[int, str]:
    """The exit code of a command and all that it prints."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["dlmexp", *words])
        return main(words), said.getvalue()


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The current folder, with a table."""
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},{rng.choice(['u', 'v'])},{rng.poisson(2)}" for _ in range(120)]
    (folder / "mall visits.csv").write_text("a,kind,visits\n" + "\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DLMEXP_DATA", str(folder))
        yield folder


@pytest.fixture(scope="module")
def said(folder) -> dict[str, str]:
    """What commands say, after a run and another with one more seed that was only planned."""
    code, run = told(RUN)
    assert code == 0, run
    _, plan = told([*RUN, "seeds=[0,1]", "plan=true"])
    readers = {name: told([*words, "--results", RESULTS])[1] for name, words in READERS.items()}
    return {"run": run, "plan": plan, **readers}


def test_what_was_read_is_said_before_anything_is_trained(said, folder):
    read = (
        "mall: 120 rows of mall visits.csv, 2 columns of features: a (number), "
        "kind (category of 2 levels"
    )
    assert read in said["plan"]
    assert (
        "divided at random: 66 rows for training, 54 for testing; n = 20; M = 20; "
        "selected by 5 folds" in said["plan"]
    )
    assert re.search(r"\bmall\b", said["status"])
    assert (folder / RESULTS / "mall" / "cells").is_dir(), "the experiment is named after its data"


def test_whatever_was_run_is_drawn(said, folder):
    import pandas as pd

    assert f"own-mall: {RESULTS}/figures/own-mall.{{png,csv,md}}" in said["plot"]
    assert not re.search("not run|missing|no results yet", said["plot"]), (
        "nobody asked for the paper's figures"
    )
    numbers = pd.read_csv(folder / RESULTS / "figures" / "own-mall.csv")
    lines = set(
        zip(numbers["method"], numbers["estimator"], numbers["samples"].fillna(0), strict=True)
    )
    assert lines == {("elbo", "exact", 0), ("joint_log_dlm", "ups", 10)}
    assert {"nll", "rmse", "crps", "coverage_95"} <= set(numbers["metric"])
    code, text = told(["plot", "own-hall", "--results", RESULTS])
    assert (code, "did you mean own-mall" in text) == (2, True)
    page = (folder / RESULTS / "report.html").read_text()
    assert "own-mall" in page
    assert not re.search(
        "What the paper says|#claims|lost", re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    )


def test_tables_that_are_refused(said, folder):
    """Another one under the same name; and one with problems, which ends with the settings to
    add."""
    (folder / "other.csv").write_text(
        (folder / "mall visits.csv").read_text().replace("visits\n", "visits\n0.5,u,3\n")
    )
    code, text = told([word.replace("mall visits.csv", "other.csv") for word in RUN])
    assert (code, "csv.name=NAME" in text) == (2, True)
    (folder / "ids.csv").write_text(
        "id,a,y\n" + "".join(f"n{k},{k % 7},{k % 5}\n" for k in range(60))
    )
    typed = [
        "run",
        "dataset=csv",
        "csv.path=ids.csv",
        "csv.target=y",
        "csv.task=count",
        "csv.name=ids",
        "plan=true",
    ]
    code, text = told(typed)
    assert code == 2
    assert text.splitlines()[-1] == "Remedy: csv.drop=[id]"


def advised(text: str) -> set[str]:
    """Every command in a text: after an arrow, in quotes, in backquotes, in <code> or at the end of
    a line."""
    commands = {
        html.unescape(command) for command in re.findall(r"<code>(dlmexp [^<]+)</code>", text)
    }
    if "<html" not in text:
        quoted = re.findall(r"'(dlmexp [^'\n]+)'|`(dlmexp [^`\n]+)`", text)
        commands |= {command for pair in quoted for command in pair if command}
        commands |= {
            command.strip()
            for command in re.findall(r"(?:->|:)\s+(dlmexp [a-z].*?)\s*$", text, flags=re.M)
        }
    return {
        command
        for command in commands
        if not re.search(r"\b(ID|NAME|FILE|COLUMN|DIR)\b|\.\.\.", command)
    }


def results_of(words: list[str]) -> str:
    """The results folder that a command names; '' for none, or for `dlmexp data`, which has
    none."""
    named = [word.removeprefix("results=") for word in words if word.startswith("results=")]
    named += [after for before, after in pairwise(words) if before == "--results"]
    assert len(named) < 2
    return named[0] if named else ""


def test_a_table_beside_another_dataset_is_a_job_of_its_own(here, capsys):
    (here / "t.csv").write_text("a,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(300)))
    words = [
        "dataset=csv,ringnorm_drawn",
        "csv.path=t.csv",
        "csv.target=y",
        "csv.task=count",
        "method=elbo",
    ]
    assert main(["run", "-m", *words, "sizes=[40]", "seeds=[0]", "plan=true"]) == 0
    assert "ringnorm_drawn" in capsys.readouterr().out


def test_every_command_that_is_advised_works(said, folder, monkeypatch):
    """And goes on with the folder that was read. Of commands that differ in values only, one is
    tried."""
    monkeypatch.setattr(
        "dlmexp.experiment.running.clock.Clock.is_short", lambda *_: True
    )  # no steps are timed
    commands = advised("\n".join(said.values())) | advised(
        (folder / RESULTS / "report.html").read_text()
    )
    assert any("dataset=csv 'csv.path=mall visits.csv'" in command for command in commands)
    assert {"run", "plot", "claims", "report"} <= {command.split()[1] for command in commands}
    kinds = {}
    for command in sorted(commands):
        program, *words = shlex.split(command)
        assert (program, results_of(words)) == ("dlmexp", RESULTS), command
        kinds[tuple(word.partition("=")[0] for word in words)] = words
    for words in kinds.values():
        if words[:1] + words[-2:] not in [
            ["plot", "--results", RESULTS],
            ["report", "--results", RESULTS],
        ]:
            code, text = told([*words, "plan=true"] if words[0] == "run" else words)
            # Data of the paper that is not here can't be run here; the message says how to get it.
            assert code == 0 or "data fetch" in text or "data import" in text, (words, text)


def test_own_files_of_settings_work_in_every_command(folder, monkeypatch):
    monkeypatch.delenv("DLMEXP_DATA")
    for made in (folder / "my" / "dataset", folder / "odd" / "dataset", folder / "data" / "mall"):
        made.mkdir(parents=True)
    (folder / "data" / "mall" / "visits.csv").write_bytes((folder / "mall visits.csv").read_bytes())
    (folder / "my" / "dataset" / "town.yaml").write_text(
        "# @package dataset.town\nname: town\nloader: table\ntask: count\nlikelihood: poisson\n"
        "M: 5\nsizes: [20]\nsplit: counts\noptions: {target: visits, drop: [kind]}\n"
        "files:\n  - name: mall/visits.csv\n"
    )
    assert (
        told(["run", *OWN, "dataset=town", "results=town", "data_root=data", "--config-dir", "my"])[
            0
        ]
        == 0
    )
    assert (folder / "town" / "town" / "cells").is_dir()
    for words in (
        ["data", "check", "town", "--config-dir", "my"],
        ["status", "--results", "town"],
        ["--config-dir", "my", "data", "list"],
    ):
        code, text = told(words)
        assert (code, "town" in text) == (0, True), text
    assert told(["data", "check", "town"])[0] == 2
    (folder / "odd" / "dataset" / "town.yaml").write_text("- a\n")
    code, text = told(["data", "check", "town", "--config-dir", "odd"])
    assert (code, "town.yaml: write its settings" in text) == (2, True)
