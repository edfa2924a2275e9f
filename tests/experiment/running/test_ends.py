"""Real processes, and how they end: killed, asked to stop, or with something wrong around them.
Nothing is lost, and nothing is left running."""

import os
import signal
import time

import pytest

import dlmexp
from dlmexp.cli import main
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.leases import active_processes
from tests.support.processes import comparable

pytestmark = pytest.mark.processes
ENDLESS = ["training.binary.max_iterations=100000", "training.binary.tolerance=0.0"]


def test_process_takes_over_what_a_killed_one_trained(launcher, here, tiny, undisturbed):
    words = [*tiny, "training.binary.tolerance=0.0", "checkpoint_seconds=0.05"]
    first = launcher.start(here, "run", *words, log="first")
    first.until(lambda: list((here / "results" / "checkpoints").glob("*.npz")))
    first.send(signal.SIGSTOP)
    second = launcher.start(here, "run", *words, log="second")
    second.until(lambda: len(active_processes(here / "results")) == 2)
    first.kill()
    assert second.wait() == 0, second.said
    assert comparable(here / "results") == comparable(undisturbed(words))
    for left in ("checkpoints/*.npz", "running/*.lease", "quarantine/*"):
        assert not list((here / "results").glob(left))


def test_workers_share_the_batches_and_leave_the_records_of_one_process(
    launcher, here, tiny, undisturbed
):
    """The first process is held until the second one trains, so that neither can do everything.
    Nothing is imported from the current folder."""
    for name in ("random", "torch", "dlmexp"):
        (here / f"{name}.py").write_text("import sys; open('executed', 'w'); sys.exit(7)")
    words = [*tiny, "batch_cells=3"]
    log = here / "results" / "running" / "process-2.log"
    process = launcher.start(here, "run", *words, "workers=2")
    process.until(lambda: log.exists() and "batch 1/" in process.said)
    process.send(signal.SIGSTOP)
    try:
        process.until(lambda: "batch 1/" in log.read_text())
    finally:
        process.send(signal.SIGCONT)
    assert process.wait() == 0, process.said
    for said in (process.said, log.read_text()):
        assert "18 of 18 cells done, 0 failed" in said
    assert not (here / "executed").exists()
    assert comparable(here / "results") == comparable(undisturbed(words))
    for root, alone in ((here / "results", False), (undisturbed(words), True)):
        assert {record.result.alone for record in Store(root).own_records()} == {alone}


def test_hangup_stops_all_processes_of_a_run(launcher, here, tiny):
    root = here / "results"
    process = launcher.start(here, "run", *tiny, *ENDLESS, "batch_cells=3", "workers=2")
    process.until(lambda: sum(bool(other.keys) for other in active_processes(root)) == 2)
    process.send(signal.SIGHUP)
    assert process.wait() == 128 + signal.SIGHUP
    assert process.said.splitlines()[-1].startswith(
        "everything is saved, continue with: dlmexp run "
    )
    assert not active_processes(root)
    assert len(list((root / "checkpoints").glob("*.npz"))) == 2


def test_nine_quick_interrupts_leave_no_traceback(launcher, here, tiny):
    process = launcher.start(here, "run", *tiny, *ENDLESS)
    process.until(lambda: "batch 1/" in process.said)
    for _ in range(9):
        process.send(signal.SIGINT)
        time.sleep(0.002)
    assert process.wait() == 128 + signal.SIGINT
    assert "Traceback" not in process.said


def test_run_whose_reader_has_gone_stops_as_by_sigpipe(launcher, here, tiny):
    """As `dlmexp run | head -1`."""
    os.mkfifo(here / "pipe")
    reader = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    long = ["training.binary.max_iterations=1000", "training.binary.tolerance=0.0", "batch_cells=1"]
    process = launcher.start(here, "run", *tiny, *long, log="pipe", errors="errors")
    process.until(lambda: list((here / "results" / "running").glob("*.json")))
    os.close(reader)
    assert process.wait() == 128 + signal.SIGPIPE
    assert "Traceback" not in (here / "errors").read_text()


def test_full_device_of_the_output_is_not_blamed_on_the_results_folder(launcher, here, tiny):
    process = launcher.start(here, "run", *tiny, log="/dev/full", errors="errors")
    assert process.wait() == 1
    said = (here / "errors").read_text()
    assert "standard output" in said
    assert "results" not in said
    assert "Traceback" not in said


def test_worker_that_died_is_reported(here, tiny, capsys, monkeypatch):
    monkeypatch.setattr("dlmexp.experiment.running.process.COMMAND", "import sys; sys.exit(7)")
    assert main(["run", *tiny, "method=[elbo]", "workers=2"]) == 1
    said = capsys.readouterr()
    assert "2 of 2 cells done" in said.out
    assert "exit code 7" in said.err
    assert "process-2.log" in said.err


def test_run_from_python_restores_environment_and_signal_handlers(here):
    before = (dict(os.environ), signal.getsignal(signal.SIGINT))
    dlmexp.run(
        "ringnorm_drawn",
        "elbo",
        sizes=[20],
        seeds=[0],
        M=5,
        training={"max_iterations": 5},
        verbose=False,
    )
    assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before
