"""`dlmexp run -m` without a cluster: what is refused, and jobs on this machine."""

import shlex
import signal
import sys

import pytest

from dlmexp.cli import main
from dlmexp.experiment.cluster import multirun, node
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.run import execute

TINY = [
    "dataset=ringnorm_drawn",
    "dataset.ringnorm_drawn.options.rows=200",
    "dataset.ringnorm_drawn.M=5",
    "sizes=[20]",
    "method=elbo",
    "device=cpu",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra/launcher=slurm"], "add -m"),
        (["-m", "hydra/launcher=slrm", *TINY], "slurm or slurm_gpu"),
        (["-m", "hydra/launcher=local_parallel", *TINY], "local_parallel"),
        (
            ["-m", "hydra/launcher=slurm", "hydra.launcher.partion=x", *TINY],
            "hydra.launcher.partition",
        ),
        (["-m", "wait=false", *TINY], "hydra/launcher=slurm"),
        (["-m", "results=a,b", *TINY], "results="),
        (["-m", "hydra/launcher=slurm", *TINY], "no sbatch"),
        (["-m", "dataset=ringnorm_drawn,pol", "data_root=nowhere", "device=cpu"], "nowhere"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(
    here, refused, monkeypatch, words, message
):
    monkeypatch.setenv("PATH", str(here))
    refused(["run", *words], message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "words", "expected"),
    [
        ("slurm", [], None),
        ("slurm_gpu", [], "device=cuda"),
        ("slurm", ["hydra.launcher.gres=gpu:1"], "device=cuda"),
        ("slurm_gpu", ["device=cpu"], "device=cpu"),
    ],
)
def test_job_that_gets_a_gpu_trains_on_it(here, monkeypatch, launcher, words, expected):
    submitted = []
    monkeypatch.setattr(multirun, "which", lambda _: "sbatch")
    monkeypatch.setattr(
        multirun, "submit", lambda store, blocks, launcher: submitted.extend(blocks)
    )
    command = ["run", "-m", f"hydra/launcher={launcher}", "seeds=[0],[1]", "wait=false"]
    assert main([*command, *TINY[:-1], *words]) == 0
    devices = []
    for block in submitted:
        devices.append([word for word in block.overrides if "device" in word])
    assert devices == [[expected] if expected else []] * 2


@pytest.fixture
def two_blocks(monkeypatch):
    """The words of a multirun of two blocks; `sys.argv` has them too."""
    words = ["run", "-m", "seeds=[0],[1]", "training.binary.max_iterations=2", *TINY]
    monkeypatch.setattr(sys, "argv", ["dlmexp", *words])
    return words


@pytest.mark.slow
def test_block_that_raises_leaves_the_others_alone(here, two_blocks, capsys, monkeypatch):
    started = []

    def execute_second(cfg, *arguments):
        started.append(cfg.seeds)
        if cfg.seeds == [0]:
            raise RuntimeError("the first block fails")
        return execute(cfg, *arguments)

    monkeypatch.setattr(node, "execute", execute_second)
    assert main(two_blocks) == 1
    assert started == [[0], [1]]
    printed = capsys.readouterr()
    assert "RuntimeError: the first block fails" in printed.err
    assert "1 of 2 cells done, 0 failed, 1 without a record" in printed.out


@pytest.mark.slow
def test_records_name_the_command_without_what_concerns_this_machine(here, two_blocks):
    assert main(two_blocks) == 0
    commands = {record.made.command for record in Store(here / "results").own_records()}
    assert two_blocks[-1] == "device=cpu"
    assert commands == {shlex.join(["dlmexp", *two_blocks[:-1]])}


@pytest.mark.slow
@pytest.mark.parametrize("by_signal", [False, True])
def test_block_that_is_stopped_is_the_last(here, two_blocks, capsys, monkeypatch, by_signal):
    started = []

    def stopped(cfg, *_):
        started.append(cfg.seeds)
        if by_signal:  # which comes too late for the block itself
            signal.raise_signal(signal.SIGTERM)
            return 0
        return 128 + signal.SIGTERM

    monkeypatch.setattr(node, "execute", stopped)
    assert main(two_blocks) == 128 + signal.SIGTERM
    assert started == [[0]]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    last = capsys.readouterr().out.splitlines()[-1]
    command = shlex.join(["dlmexp", *two_blocks])
    assert last == f"everything is saved, continue with: {command}"
