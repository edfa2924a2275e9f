"""`dlmexp run -m` without a cluster: what is refused before anything starts, and jobs side by side on this machine."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dlmexp.sweep import multirun, run
from joblib import cpu_count

from dlmexp.cli import main
from dlmexp.config import RunConfig

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


def test_a_job_that_raises_leaves_the_others_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    def execute(cfg: RunConfig, *rest: Any) -> int:
        if cfg.seeds == [0]:
            raise RuntimeError("the roof fell in")
        return run.execute(cfg, *rest)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(multirun, "execute", execute)
    assert main(["run", "-m", "seeds=[0],[1]", "training.binary.max_iterations=2", *TINY]) == 1
    said = capsys.readouterr()
    assert "RuntimeError: the roof fell in" in said.err
    assert "1 of 2 cells done, 0 failed, 1 without a record" in said.out


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


def test_workers_share_the_cores_and_save_their_work_when_told_to_stop(tmp_path: Path):
    words = ["-m", "hydra/launcher=local_parallel", "seeds=[0],[1]", "training.binary.max_iterations=100000"]
    words += ["training.binary.tolerance=0", "checkpoint_seconds=600", *TINY]
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "dlmexp", "run", *words], cwd=tmp_path, env=env, stdout=said, stderr=said
        )
    until = time.monotonic() + 90
    while len(list(tmp_path.glob("results/checkpoints/*.npz"))) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)
    threads = [re.search(r"\0OMP_NUM_THREADS=(\d+)", text) for text in _environments_of_children(process.pid)]
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert [found[1] for found in threads if found] == [str(max(1, cpu_count() // 2))] * 2
    assert (tmp_path / "said.txt").read_text().count("stopped by SIGTERM") == 2
    assert all(path.stat().st_size > 5000 for path in tmp_path.glob("results/checkpoints/*.npz")), "with tensors"
    assert not list(tmp_path.glob("results/running/*.json"))


def _environments_of_children(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/environ").read_text() for child in children]
