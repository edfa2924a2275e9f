"""Several processes that share the batches of one results folder."""

import signal
from pathlib import Path

import pytest

from tests.support.processes import comparable

pytestmark = pytest.mark.processes

SLOW = ["training.binary.max_iterations=200", "training.binary.tolerance=0.0"]


def test_workers_share_the_batches_and_leave_the_records_of_one_process(launcher, here, tiny, undisturbed):
    """The first process is held until the second one has trained a batch, so that neither can do everything."""
    arguments = [*tiny, *SLOW, "batch_cells=3"]
    log = here / "results" / "running" / "process-2.log"
    process = launcher.start(here, "run", *arguments, "workers=2")
    process.until(lambda: log.exists() and "batch 1/" in process.said)
    process.send(signal.SIGSTOP)
    try:
        process.until(lambda: "batch 1/" in log.read_text())
    finally:
        process.send(signal.SIGCONT)
    assert process.wait() == 0, process.said
    assert "batch 1/6" in process.said
    for said in (process.said, log.read_text()):
        assert "18 of 18 cells done, 0 failed" in said
        assert "Traceback" not in said
    assert comparable(here / "results") == comparable(undisturbed(arguments))
    assert not list((here / "results" / "running").glob("*.json"))


def test_two_at_once_share_the_work(launcher, here, tiny, undisturbed):
    words = [*tiny, *SLOW, "batch_cells=3"]
    processes = [launcher.start(here, "run", *words, log=f"log{i}") for i in range(2)]
    assert [process.wait() for process in processes] == [0, 0], [process.said for process in processes]
    found, expected = comparable(here / "results"), comparable(undisturbed(words))
    assert found.keys() == expected.keys()
    for key, (status, _, result, _) in found.items():
        assert status == "done"
        assert result.test == pytest.approx(expected[key][2].test, rel=1e-9)
    for process in processes:
        assert "18 of 18 cells done, 0 failed" in process.said
    assert not (here / "results" / "quarantine").exists()
    assert not list((here / "results" / "checkpoints").glob("*"))


def test_one_waits_for_what_the_other_trains_and_takes_over_when_it_dies(launcher, here, tiny, undisturbed):
    words = [*tiny, *SLOW, "checkpoint_seconds=0.05"]
    first = launcher.start(here, "run", *words, log="first")
    first.until(lambda: list((here / "results" / "checkpoints").glob("*.npz")))
    first.send(signal.SIGSTOP)
    second = launcher.start(here, "run", *words, log="second")
    second.until(lambda: "batch 1/3" in second.said or _waits(here), 20)
    first.kill()
    assert second.wait() == 0, second.said
    assert comparable(here / "results") == comparable(undisturbed(words))


def _waits(folder: Path) -> bool:
    return len(list((folder / "results" / "running").glob("*.json"))) == 2
