"""What goes wrong on real machines, with real processes: nothing is lost, nothing torn is trusted."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dlmexp.running.leases import active_processes
from tests.support.processes import comparable

pytestmark = pytest.mark.processes

SLOW = ["training.binary.max_iterations=200", "training.binary.tolerance=0.0"]  # long enough to be interrupted


def _records(results: Path) -> list[Path]:
    return sorted((results / "records").glob("*/*.json"))


def _quarantined(results: Path) -> list[Path]:
    return [path for path in (results / "quarantine").glob("*") if path.suffix != ".why"]


def test_killed_six_times_at_random_moments(launcher, here, tiny, undisturbed):
    words = [*tiny, *SLOW, "batch_cells=4", "checkpoint_seconds=0.05"]
    expected = comparable(undisturbed(words))
    chance, kills, interrupted = random.Random(0), 0, 0
    while kills < 6:
        process = launcher.start(here, "run", *words)
        time.sleep(chance.uniform(0.02, 0.45))
        process.send(signal.SIGKILL)
        kills += 1
        if process.wait() == 0:
            # It was faster than the kill. Begin again with what it had done taken away, so that there is more to kill.
            for path in chance.sample(_records(here / "results"), 9):
                path.unlink()
        else:
            interrupted += 1
    assert interrupted >= 3
    code, said = launcher.run(here, "run", *words, log="last")
    assert code == 0, said
    assert comparable(here / "results") == expected
    assert not list((here / "results" / "checkpoints").glob("*.npz"))
    assert not list((here / "results" / "running").glob("*.json"))
    assert not _quarantined(here / "results")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])  # SIGUSR2: tests/cluster/test_slurm.py
def test_asked_to_stop_in_the_middle_of_a_batch(launcher, here, tiny, undisturbed, number):
    words = [*tiny, *SLOW]
    process = launcher.start(here, "run", *words)
    process.until(lambda: "batch 2/3" in process.said)
    time.sleep(0.05)
    process.send(number)
    assert process.wait() == 128 + number
    assert "everything is saved" in process.said
    assert process.said.splitlines()[-1].startswith("everything is saved, continue with: dlmexp run ")
    assert "Traceback" not in process.said
    assert len(list((here / "results" / "checkpoints").glob("*.npz"))) == 1
    assert not list((here / "results" / "running").glob("*.json"))
    assert len(_records(here / "results")) < 18
    code, said = launcher.run(here, "run", *words, log="again")
    assert code == 0, said
    assert "resumes at iteration" in said
    assert comparable(here / "results") == comparable(undisturbed(words))


@pytest.mark.parametrize("damage", ["truncated", "foreign", "edited"])
def test_a_damaged_record_is_quarantined_and_redone(launcher, here, tiny, undisturbed, damage):
    expected = comparable(undisturbed(tiny))
    assert launcher.run(here, "run", *tiny)[0] == 0
    victim, other = _records(here / "results")[:2]
    content = victim.read_bytes()
    if damage == "truncated":
        victim.write_bytes(content[: len(content) // 2])
    elif damage == "foreign":
        victim.write_bytes(other.read_bytes())
    else:
        record = json.loads(content)
        record["result"]["test"]["nll"] = 0.0
        victim.write_text(json.dumps(record))
    damaged = victim.read_bytes()
    code, said = launcher.run(here, "run", *tiny, log="again")
    assert code == 0, said
    assert [path.read_bytes() for path in _quarantined(here / "results")] == [damaged]
    found = comparable(here / "results")
    assert found.keys() == expected.keys()
    key = victim.stem
    assert found[key][2].test == pytest.approx(expected[key][2].test, rel=1e-9)


def test_a_torn_checkpoint_is_quarantined_and_the_batch_begins_again(launcher, here, tiny, undisturbed):
    words = [*tiny, *SLOW, "method=[elbo,beta_elbo]"]
    process = launcher.start(here, "run", *words)
    process.until(lambda: list((here / "results" / "checkpoints").glob("*.npz")))
    time.sleep(0.2)
    process.send(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    (path,) = (here / "results" / "checkpoints").glob("*.npz")
    content = path.read_bytes()
    place = content.index(b"values/m.npy") + 300
    path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
    code, said = launcher.run(here, "run", *words, log="again")
    assert code == 0, said
    assert len(_quarantined(here / "results")) == 1
    assert comparable(here / "results") == comparable(undisturbed(words))


def test_records_finished_after_the_checkpoint_are_kept_and_the_rest_gets_the_same_bits(
    launcher, here, tiny, undisturbed
):
    """A checkpoint, then some records, then a kill: the batch goes on in its old company."""
    words = [*tiny, "method=[elbo,beta_elbo]", "training.binary.max_iterations=250", "checkpoint_seconds=0.02"]
    expected = comparable(undisturbed(words))
    process = launcher.start(here, "run", *words)
    process.until(lambda: 0 < len(_records(here / "results")) < 6 or "cells done" in process.said)
    process.kill()
    before = {path: path.stat().st_mtime_ns for path in _records(here / "results")}
    code, said = launcher.run(here, "run", *words, log="again")
    assert code == 0, said
    assert comparable(here / "results") == expected
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_full_disk_ends_the_run_with_a_sentence(launcher, tmp_path, tiny, undisturbed):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk can't be mounted here")
    try:
        words = [*tiny, f"results={disk}/results"]
        code, said = launcher.run(tmp_path, "run", *words)
        assert code == 1
        assert "No space left on device" in said
        assert "what is finished is safe" in said
        assert "Traceback" not in said
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        code, said = launcher.run(tmp_path, "run", *words, log="again")
        assert code == 0, said
        assert comparable(disk / "results") == comparable(undisturbed(tiny))
        (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
        code, said = launcher.run(tmp_path, "run", *words, "name=another", log="full")
        assert code == 1
        assert "No space left on device" in said
        assert "Traceback" not in said
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_results_folder_that_can_not_be_written_is_refused(launcher, tmp_path, tiny):
    (tmp_path / "file").write_text("")
    code, said = launcher.run(tmp_path, "run", *tiny, "results=file/results")
    assert code == 2
    assert "can't write there" in said
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", disk], capture_output=True).returncode:
        return
    try:
        code, said = launcher.run(tmp_path, "run", *tiny, f"results={disk}/results", log="read-only")
        assert code == 2
        assert "Read-only file system" in said
        assert "Traceback" not in said
    finally:
        subprocess.run(["umount", disk], check=True)


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


def test_one_waits_for_what_the_other_trains_and_takes_over_when_it_dies(launcher, here, tiny, undisturbed):
    words = [*tiny, *SLOW, "checkpoint_seconds=0.05"]
    first = launcher.start(here, "run", *words, log="first")
    first.until(lambda: list((here / "results" / "checkpoints").glob("*.npz")))
    first.send(signal.SIGSTOP)
    second = launcher.start(here, "run", *words, log="second")
    second.until(lambda: len(active_processes(here / "results")) == 2, 20)
    first.kill()
    assert second.wait() == 0, second.said
    assert comparable(here / "results") == comparable(undisturbed(words))
