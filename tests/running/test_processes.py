"""Several processes on one run."""

import sys

import pytest

from dlmexp.running import processes
from dlmexp.running.processes import ExtraProcesses


class Recorded:
    started: list = []  # noqa: RUF012
    told: list = []  # noqa: RUF012
    gpus: list = []  # noqa: RUF012

    def __init__(self, command, stdout, stderr, env):
        self.started.append((command, stdout.name, env["OMP_NUM_THREADS"]))
        self.gpus.append(env.get("CUDA_VISIBLE_DEVICES"))

    def terminate(self):
        self.told.append("terminate")

    def wait(self):
        self.told.append("wait")


def test_copies_of_the_command_with_their_own_logs_and_share_of_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.subprocess, "Popen", Recorded)
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "running").mkdir()
    with ExtraProcesses(2, ["dataset=banana", "workers=3"], tmp_path):
        pass
    commands = [command for command, _, _ in Recorded.started]
    assert commands == [[sys.executable, "-m", "dlmexp", "run", "dataset=banana", "workers=1"]] * 2
    assert len({log for _, log, _ in Recorded.started}) == 2
    assert {threads for _, _, threads in Recorded.started} == {"2"}
    assert Recorded.told == ["wait", "wait"]


def test_alone_is_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.subprocess, "Popen", None)
    with ExtraProcesses(0, [], tmp_path):
        pass


def test_one_process_for_each_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.subprocess, "Popen", Recorded)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    (tmp_path / "running").mkdir()
    Recorded.gpus.clear()
    with ExtraProcesses(2, ["dataset=banana"], tmp_path, processes.visible_gpus(3)):
        pass
    assert Recorded.gpus == ["5", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert processes.visible_gpus(2) == ["0", "1"]


def test_more_processes_than_gpus_are_refused(monkeypatch):
    import torch

    from dlmexp.errors import UserError
    from dlmexp.running.device import check_workers

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_workers(1, "cuda")
    check_workers(8, "cpu")
    with pytest.raises(UserError, match=r"workers=8: there is one GPU here.*workers=1 at most"):
        check_workers(8, "cuda")
