"""How a run ends where something is wrong around it: with the right exit code, nothing left running, all as before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import dlmexp
from dlmexp.cli import main
from dlmexp.records.store import Store
from dlmexp.running import processes
from dlmexp.running.leases import active_processes
from dlmexp.running.processes import ExtraProcesses, run_command

SLOW = ["training.binary.max_iterations=100000", "training.binary.tolerance=0.0"]


@pytest.mark.processes
def test_nothing_is_imported_from_the_current_folder(launcher, here, tiny):
    for name in ("random", "torch", "dlmexp"):
        (here / f"{name}.py").write_text("import sys; open('executed', 'w'); sys.exit(7)")
    code, said = launcher.run(here, "run", *tiny, "batch_cells=3", "workers=2")
    assert code == 0, said
    assert not (here / "executed").exists()
    assert "18 of 18 cells done" in (here / "results" / "running" / "process-2.log").read_text()


@pytest.mark.processes
def test_a_worker_that_died_is_seen(here, tiny, capsys, monkeypatch):
    monkeypatch.setattr(processes, "COMMAND", "import sys; sys.exit(7)")
    assert main(["run", *tiny, "workers=2"]) == 1
    said = capsys.readouterr()
    assert "18 of 18 cells done" in said.out
    assert "exit code 7" in said.err
    assert "process-2.log" in said.err


@pytest.mark.processes
def test_an_interpreter_that_is_gone_is_named_and_no_process_is_left(here, tiny, capsys, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert main(["run", *tiny, "workers=2"]) != 0
    assert "/nowhere/python" in capsys.readouterr().err
    monkeypatch.undo()
    started, plain = [], subprocess.Popen

    def second_fails(command, **how):
        if started:
            raise OSError(12, "Cannot allocate memory")
        started.append(plain([sys.executable, "-c", "import time; time.sleep(60)"], **how))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    (here / "running").mkdir()
    with pytest.raises(OSError, match="Cannot allocate"), ExtraProcesses(2, [], here):
        pass
    assert started[0].returncode == -signal.SIGTERM


def _run(here: Path, words: list[str], **how) -> "subprocess.Popen[Any]":
    return subprocess.Popen(run_command(words), cwd=here, env=os.environ | {"OMP_NUM_THREADS": "1"}, **how)


@pytest.mark.processes
def test_a_run_whose_reader_has_gone_does_not_end_well(here, tiny):
    """As `dlmexp run | head -1`: it stops as by SIGPIPE, with its state saved."""
    with _run(here, [*tiny, *SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 128 + signal.SIGPIPE
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.processes
def test_an_output_on_a_full_device_is_not_blamed_on_the_results_folder(here, tiny):
    with open("/dev/full", "w") as full:
        process = _run(here, tiny, stdout=full, stderr=subprocess.PIPE)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"standard output" in said
    assert b"results" not in said
    assert b"Traceback" not in said


@pytest.mark.slow
def test_a_run_from_python_leaves_umask_environment_and_handlers_as_they_were(here):
    (here / "results").mkdir()
    (here / "results").chmod(0o2775)
    before = os.umask(0o077), dict(os.environ), signal.getsignal(signal.SIGINT)
    try:
        dlmexp.run("ringnorm_drawn", "elbo", sizes=[20], seeds=[0], M=5, training={"max_iterations": 5}, verbose=False)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before[0])
    assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before[1:]
    (record,) = Store("results").records.glob("*/*.json")
    assert record.stat().st_mode & 0o060 == 0o060, "the group may write"


@pytest.mark.processes
def test_nine_quick_interrupts_leave_no_traceback(launcher, here, tiny):
    process = launcher.start(here, "run", *tiny, *SLOW)
    process.until(lambda: "batch 1/" in process.said)
    for _ in range(9):
        process.send(signal.SIGINT)
        time.sleep(0.002)
    assert process.wait() == 128 + signal.SIGINT
    assert "Traceback" not in process.said


@pytest.mark.processes
def test_a_hangup_stops_all_processes_of_a_run(launcher, here, tiny):
    process = launcher.start(here, "run", *tiny, *SLOW, "batch_cells=3", "workers=2")
    root = here / "results"
    process.until(lambda: sum(bool(one.keys) for one in active_processes(root)) == 2)
    process.send(signal.SIGHUP)
    assert process.wait() == 128 + signal.SIGHUP
    assert not active_processes(root)
    assert len(list((root / "checkpoints").glob("*.npz"))) == 2
