"""Several processes on one run."""

import sys

import pytest
from dlmexp.running.threads import GIVEN

from dlmexp.cli import main
from dlmexp.plan.batches import Plan
from dlmexp.plan.compose import compose
from dlmexp.running import processes
from dlmexp.running.processes import ExtraProcesses, processes_that_pay
from dlmexp.running.run import execute


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
    monkeypatch.setattr(processes, "cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "running").mkdir()
    with ExtraProcesses(2, ["dataset=banana", "workers=3"], tmp_path):
        pass
    commands = [command for command, _, _ in Recorded.started]
    assert commands == [[sys.executable, "-m", "dlmexp", "run", "dataset=banana", "workers=1"]] * 2
    assert len({log for _, log, _ in Recorded.started}) == 2
    assert {threads for _, _, threads in Recorded.started} == {"2"}
    assert Recorded.told == ["wait", "wait"]
    Recorded.told.clear()
    with pytest.raises(KeyboardInterrupt), ExtraProcesses(2, ["dataset=banana"], tmp_path):
        raise KeyboardInterrupt
    assert Recorded.told == ["terminate", "terminate", "wait", "wait"], "they save and leave at the same time"


@pytest.mark.parametrize(
    ("cores", "batches", "expected"), [(1, 9, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (2, 9, 2), (8, 6, 3), (64, 99, 8)]
)
def test_as_many_processes_as_pay(monkeypatch, cores, batches, expected):
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "is_short", lambda plan: False)
    plan = Plan((), ((),) * batches, frozenset(), frozenset())
    assert processes_that_pay(plan, "cpu", {}) == expected
    assert processes_that_pay(plan, "cuda", {}) == 1
    assert processes_that_pay(plan, "cpu", {"OMP_NUM_THREADS": "2"}) == 1
    monkeypatch.setattr(processes, "is_short", lambda plan: True)
    assert processes_that_pay(plan, "cpu", {}) == 1


def test_a_command_chooses_and_a_call_does_not(monkeypatch, here, capsys):
    monkeypatch.setattr(processes, "cores", lambda: 4)
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)
    words = ["dataset=ringnorm_drawn", "sizes=[100,200,300]", "method=[elbo,joint_log_dlm]", "seeds=[0]", "device=cpu"]
    for extra, expected in (([], ", 3 processes: about"), (["workers=2"], ", 2 processes: about")):
        assert main(["run", *words, *extra, "plan=true"]) == 0
        assert expected in capsys.readouterr().out
    assert execute(compose([*words, "plan=true"]), words) == 0
    assert "processes: about" not in capsys.readouterr().out


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
