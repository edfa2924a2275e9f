"""`dlmexp run -m` without a cluster: what is refused, jobs on this machine, and a job as it is
called on a node."""

import importlib
import os
import pickle
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dlmexp.cli import main
from dlmexp.experiment.cluster import multirun as module
from dlmexp.experiment.cluster.multirun import BlockOnNode
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.run import execute
from tests.support.cells import PLAIN

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "method=elbo", "device=cpu",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra/launcher=slurm"], "add -m"),
        (["-m", "hydra/launcher=slrm", *TINY], "slurm or slurm_gpu"),
        (["-m", "hydra/launcher=local_parallel", *TINY], "local_parallel"),
        (
            ["-m", "hydra/launcher=slurm", "hydra.launcher.partion=x", *TINY],
            "hydra.launcher.partition",
        ),
        (["-m", "wait=false", *TINY], "hydra/launcher=slurm"),
        (["-m", "hydra/launcher=submitit_local", *TINY], "LocalLauncher"),
        (["-m", "results=a,b", *TINY], "results="),
        (["-m", "hydra/launcher=slurm", *TINY], "no sbatch"),
        (["-m", "dataset=ringnorm_drawn,pol", "data_root=nowhere", "device=cpu"], "nowhere"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(
    here, refused, monkeypatch, words, said
):
    monkeypatch.setenv("PATH", str(here))
    refused(["run", *words], said)


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
def test_jobs_that_ask_for_a_gpu_train_on_it(here, monkeypatch, launcher, words, expected):
    submitted = []
    monkeypatch.setattr(module, "which", lambda _: "sbatch")
    monkeypatch.setattr(module, "submit", lambda root, blocks, params: submitted.extend(blocks))
    assert (
        main(
            [
                "run",
                "-m",
                f"hydra/launcher={launcher}",
                "seeds=[0],[1]",
                "wait=false",
                *TINY[:-1],
                *words,
            ]
        )
        == 0
    )
    devices = [[word for word in overrides if "device" in word] for _, overrides in submitted]
    assert devices == [[expected] if expected else []] * 2


def test_a_job_that_ends_while_the_queue_is_read_is_not_submitted_again(monkeypatch, capsys):
    """Its records are read after the queue that it has just left."""
    recorded: set[str] = set()
    monkeypatch.setattr(module, "unfinished_jobs", lambda _: recorded.add("key") or [])
    monkeypatch.setattr(module, "max_array_size", lambda: 4)
    monkeypatch.setattr(
        "submitit.AutoExecutor", lambda **_: SimpleNamespace(update_parameters=dict)
    )
    monkeypatch.setattr(module, "settings", lambda *_: {})
    launcher = {"submitit_folder": "jobs", "max_num_timeout": 1}
    store: Any = SimpleNamespace(keys=lambda: (set(recorded), {"failed"}))

    def block(**how) -> Any:
        return SimpleNamespace(
            cfg=SimpleNamespace(name="one", **how), by_key={"key": PLAIN, "failed": PLAIN}
        )

    module.submit(store, [(block(retry_failed=False), [])], launcher)
    assert "no new job for 1 of 1 block" in capsys.readouterr().out
    with pytest.raises(AttributeError):
        module.submit(store, [(block(retry_failed=True), [])], launcher)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "stops", "signal"])
def test_a_block_that_raises_leaves_the_others_alone_and_one_that_is_stopped_is_the_last(
    here, capsys, monkeypatch, how
):
    started = []

    def executed(cfg, *rest):
        started.append(cfg.seeds)
        if how == "raises" and cfg.seeds == [0]:
            raise RuntimeError("the first block fails")
        if how == "signal":
            signal.raise_signal(signal.SIGTERM)
        return (
            128 + signal.SIGTERM
            if how == "stops"
            else execute(cfg, *rest)
            if how == "raises"
            else 0
        )

    monkeypatch.setattr(module, "execute", executed)
    words = ["run", "-m", "seeds=[0],[1]", "training.binary.max_iterations=2", *TINY]
    monkeypatch.setattr(sys, "argv", ["dlmexp", *words])
    code = main(words)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    output = capsys.readouterr()
    if how == "raises":
        assert (code, started) == (1, [[0], [1]])
        assert "RuntimeError: the first block fails" in output.err
        assert "1 of 2 cells done, 0 failed, 1 without a record" in output.out
        (record,) = Store(here / "results").own()
        assert record.made.command == shlex.join(["dlmexp", *words[:-1]]), (
            "without what concerns this machine only"
        )
    else:
        assert (code, started) == (128 + signal.SIGTERM, [[0]])


def test_a_job_on_a_node_has_the_context_of_the_submitter(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_user.py").write_text("number = 7")
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(sys, "path", ["", *sys.path])
        patch.setenv("DLMEXP_PLUGINS", "plugin_of_a_user")
        block = pickle.loads(pickle.dumps(BlockOnNode(["seeds=[0]"])))
    monkeypatch.setattr(sys, "path", [*sys.path, "only-here"])
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.chdir("/")
    monkeypatch.setattr(module, "run_block", len)
    assert block() == 1
    assert os.getcwd() == str(tmp_path)
    assert importlib.import_module("plugin_of_a_user").number == 7
    assert os.environ["DLMEXP_PLUGINS"] == "plugin_of_a_user"
    assert sys.path[-1] == "only-here"


def test_a_job_that_slurm_does_not_requeue_says_so(monkeypatch, capsys):
    """As submitit's handler ends where `scontrol requeue` is forbidden."""

    def refused(*_):
        raise subprocess.CalledProcessError(1, ["scontrol", "requeue", "17"])

    monkeypatch.setattr(module, "run_block", lambda overrides: 128 + signal.SIGUSR2)
    before = signal.signal(signal.SIGUSR2, refused)
    try:
        assert BlockOnNode(["seeds=[0]"])() == 128 + signal.SIGUSR2
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert "does not requeue" in capsys.readouterr().out
