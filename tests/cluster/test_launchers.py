"""`dlmexp run -m` without a cluster: what is refused before anything starts, and jobs side by side on this machine."""

import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from joblib import cpu_count

from dlmexp.cli import main
from dlmexp.cluster import task
from dlmexp.cluster.submission import Submission
from dlmexp.config import RunConfig
from dlmexp.plugins import extended
from dlmexp.running.run import execute

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "method=elbo", "device=cpu",
]  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["run", *words]) == 2
    return capsys.readouterr().err


def test_what_is_typed_wrong_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "add -m" in refused(capsys, "hydra/launcher=slurm")
    assert "slurm or slurm_gpu" in refused(capsys, "-m", "hydra/launcher=slrm", *TINY)
    assert "hydra.launcher.partition" in refused(
        capsys, "-m", "hydra/launcher=slurm", "hydra.launcher.partion=x", *TINY
    )
    assert "hydra/launcher=slurm" in refused(capsys, "-m", "wait=false", *TINY)
    monkeypatch.setenv("DLMEXP_SLURM_MINUTES", "soon")
    assert "DLMEXP_SLURM_MINUTES" in refused(capsys, "-m", "hydra/launcher=slurm", *TINY)
    assert not list(tmp_path.iterdir())


def test_without_slurm_the_launcher_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no sbatch" in refused(capsys, "-m", "hydra/launcher=slurm", *TINY)
    assert not list(tmp_path.iterdir())


def test_missing_data_is_noticed_before_anything_is_queued(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ["-m", "hydra/launcher=slurm", "dataset=ringnorm_drawn,pol", "data_root=nowhere", "device=cpu"]
    assert "nowhere" in refused(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_a_plan_is_shown_and_nothing_is_queued(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", "hydra/launcher=slurm", "seeds=[0],[1]", "plan=true", *TINY]) == 0
    assert capsys.readouterr().out.count("1 to run in 1 batch\n") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
def test_a_job_that_raises_leaves_the_others_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    def execute_or_raise(cfg: RunConfig, *rest: Any) -> int:
        if cfg.seeds == [0]:
            raise RuntimeError("the first block fails")
        return execute(cfg, *rest)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(task, "execute", execute_or_raise)
    assert main(["run", "-m", "seeds=[0],[1]", "training.binary.max_iterations=2", *TINY]) == 1
    output = capsys.readouterr()
    assert "RuntimeError: the first block fails" in output.err
    assert "1 of 2 cells done, 0 failed, 1 without a record" in output.out


@pytest.fixture
def multirun_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs three blocks, with a function in place of training, until it is stopped; the seeds of those that started."""

    def run(train: Callable[[], int]) -> list[list[int]]:
        started: list[list[int]] = []

        def execute(cfg: RunConfig, *_: Any) -> int:
            started.append(cfg.seeds)
            return train()

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(task, "execute", execute)
        assert main(["run", "-m", "seeds=[0],[1],[2]", *TINY]) == 128 + signal.SIGTERM
        return started

    return run


@pytest.mark.processes
def test_a_block_that_is_stopped_is_the_last_one(multirun_of_three):
    assert multirun_of_three(lambda: 128 + signal.SIGTERM) == [[0]]


@pytest.mark.processes
def test_a_signal_between_blocks_stops_the_multirun_and_not_the_next_one(multirun_of_three):
    def train() -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    assert multirun_of_three(train) == [[0]]
    assert multirun_of_three(train) == [[0]]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_other_processes_start_no_block_once_one_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task, "run_block", lambda cfg: 128 + signal.SIGINT)
    first, second = (pickle.loads(pickle.dumps(task.LocalTask(tmp_path / "stop"))) for _ in range(2))
    assert first({}) == 128 + signal.SIGINT
    monkeypatch.setattr(task, "run_block", lambda cfg: pytest.fail("started"))
    assert second({}) >= 128


@pytest.mark.processes
def test_jobs_find_the_conf_folders_of_the_command_line_and_of_the_environment(tmp_path: Path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLMEXP_CONFIG_DIRS", f"{tmp_path / 'theirs'}{os.pathsep}{tmp_path / 'mine'}")
    job = "from dlmexp.paths import conf_dirs; print(*conf_dirs()[1:3], sep='\\n')"
    with extended("mine"):
        found = subprocess.check_output([sys.executable, "-c", job], cwd="/", text=True).splitlines()
    assert found == [str(tmp_path / "theirs"), str(tmp_path / "mine")]


@pytest.mark.slow
def test_what_is_pickled_for_slurm_jobs_leaves_the_submission_behind(tmp_path: Path, monkeypatch, capsys):
    def submit(submission: Submission, launcher: Any, job_overrides: Sequence[Sequence[str]], first: int) -> None:
        assert [len(block.cells) for block in submission.blocks] == [1, 1]
        assert (len(job_overrides), first) == (2, 0)
        pickled.append(cloudpickle.dumps(launcher))
        submission.error = "SLURM refused the job"

    pickled: list[bytes] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dlmexp.cluster.submission.submit", submit)
    monkeypatch.setattr("dlmexp.cluster.scheduler.can_submit", lambda: True)
    assert "SLURM refused the job" in refused(capsys, "-m", "hydra/launcher=slurm", "seeds=[0],[1]", *TINY)
    (content,) = pickled
    assert b"run_block" in content
    assert b"Submission" not in content
    assert pickle.loads(content).context.folder == str(tmp_path)


@pytest.mark.processes
def test_jobs_side_by_side(tmp_path: Path):
    words = ["-m", "hydra/launcher=local_parallel", "seeds=[0],[1]", "training.binary.max_iterations=5", *TINY]
    done = subprocess.run([sys.executable, "-m", "dlmexp", "run", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 cells done" in done.stdout
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/records/*/*.json")]
    assert {record["cell"]["seed"] for record in records} == {0, 1}
    # What was typed, without what concerns this machine only.
    assert {record["made"]["command"] for record in records} == {
        shlex.join(["dlmexp", "run", "-m", "seeds=[0],[1]", "training.binary.max_iterations=5", *TINY[:-1]])
    }


@pytest.mark.processes
def test_parallel_jobs_share_the_cores_and_save_their_work_when_asked_to_stop(tmp_path: Path):
    words = ["-m", "hydra/launcher=local_parallel", "seeds=[0],[1]", "training.binary.max_iterations=100000"]
    words += ["training.binary.tolerance=0", "checkpoint_seconds=600", *TINY]
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dlmexp", "run", *words], cwd=tmp_path, env=env, stdout=output, stderr=output
        )
    until = time.monotonic() + 90
    while len(list(tmp_path.glob("results/checkpoints/*.npz"))) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)
    threads = [re.search(r"\0OMP_NUM_THREADS=(\d+)", text) for text in _environments_of_children(process.pid)]
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert [found[1] for found in threads if found] == [str(max(1, cpu_count() // 2))] * 2
    assert (tmp_path / "output.txt").read_text().count("stopped by SIGTERM") == 2
    assert all(path.stat().st_size > 5000 for path in tmp_path.glob("results/checkpoints/*.npz")), "with tensors"
    assert not list(tmp_path.glob("results/running/*.json"))


def _environments_of_children(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/environ").read_text() for child in children]
