"""The plan of a multirun: its jobs, what they ask for, and the totals."""

import pytest

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster import plan_table, slurm
from dlmexp.experiment.running.clock import Clock

WORDS = [
    "run", "-m", "seeds=[0],[1,2]", "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200",
    "dataset.ringnorm_drawn.M=5", "sizes=[20]", "method=[elbo]", "device=cpu", "plan=true",
]  # fmt: skip
ON_SLURM = [
    *WORDS,
    "hydra/launcher=slurm",
    "hydra.launcher.timeout_min=90",
    "hydra.launcher.mem_gb=8",
]


@pytest.fixture
def start(monkeypatch):
    """The options of sbatch that a likely start was asked for."""
    asked = []
    monkeypatch.setattr(
        plan_table, "likely_start", lambda options: asked.append(options) or "in a minute"
    )
    return asked


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of the lines of a table by their first word."""
    lines = [line.replace("│", " ").split() for line in text.splitlines()]
    return {words[0]: words[1:] for words in lines if words}


def test_plan_of_a_multirun_is_one_table_with_totals(here, capsys, start):
    assert main(WORDS) == 0
    out = capsys.readouterr().out
    table = rows(out)
    assert table["seeds=[0]"] == ["1", "0", "0", "1"]
    assert table["seeds=[1,2]"] == ["2", "0", "0", "2"]
    assert table["total"] == ["3", "0", "0", "3"]
    assert "2 jobs to run, with 3 cells" in out
    assert not start
    assert not (here / "results").exists()


def test_plan_on_a_cluster_has_what_jobs_ask_for(here, capsys, start):
    assert main(ON_SLURM) == 0
    out = capsys.readouterr().out
    assert "90 min" in out
    assert "8 GB" in out
    # 4 cores for 90 minutes
    assert rows(out)["seeds=[0]"][-1] == "6.0"
    assert rows(out)["total"][-1] == "12.0"
    assert "a job would start: in a minute" in out
    assert start == [["--cpus-per-task=4", "--mem=8G", "--time=90"]]


def test_time_limit_is_proposed_from_timed_steps(here, capsys, start, monkeypatch):
    monkeypatch.setattr(Clock, "is_short", lambda self: False)
    assert main(ON_SLURM) == 0
    assert "on cores like those here: hydra.launcher.timeout_min=" in capsys.readouterr().out


def test_likely_start_is_the_first_line_of_sbatch(here, monkeypatch):
    sbatch = here / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "sbatch: Job 7 to start at 12:00 on $1 $2" >&2\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:/bin:/usr/bin")
    assert slurm.likely_start(["--time=9"]) == "Job 7 to start at 12:00 on --test-only --time=9"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: no such partition' >&2\nexit 1\n")
    with pytest.raises(UserError, match="no such partition"):
        slurm.likely_start([])
