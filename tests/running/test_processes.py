"""Several processes on one run."""

import sys

from dlmexp.running import processes
from dlmexp.running.processes import ExtraProcesses


class Recorded:
    started: list = []  # noqa: RUF012
    told: list = []  # noqa: RUF012

    def __init__(self, command, stdout, stderr, env):
        self.started.append((command, stdout.name, env["OMP_NUM_THREADS"]))

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
