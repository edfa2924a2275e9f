"""Who trains what: leases that exclude each other, that are kept fresh, and that are taken over
when they are stale."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.common.atomic import machine, replacing, this_process
from dlmexp.experiment.running import leases as module
from dlmexp.experiment.running.leases import (
    ActiveProcess,
    BatchProgress,
    FolderRemovedError,
    Leases,
    active_processes,
    disk_time,
    is_stale,
    remove_leftovers,
)


@pytest.fixture
def leases(tmp_path):
    """Processes that share a folder, each with a file of that name."""
    made: list[Leases] = []

    def process(name: str = ""):
        made.append(Leases(tmp_path, print))
        made[-1].path = made[-1].folder / (name or made[-1].path.name)
        return made[-1].__enter__()

    yield process
    for each in made:
        each.__exit__()


@settings(max_examples=30)
@given(
    batches=st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8)
)
def test_no_cell_has_two_leases(tmp_path_factory, batches):
    """Whatever the batches of two runs, equal, overlapping or apart."""
    root = tmp_path_factory.mktemp("leases")
    with Leases(root, print) as first, Leases(root, print) as second:
        held: list[frozenset[str]] = []
        for i, keys in enumerate(batches):
            taken = (first, second)[i % 2].take(keys) is None
            assert taken == (not any(keys & h for h in held))
            held += [keys] if taken else []
        assert len(list(first.folder.glob("*.lease"))) == len(held)
    assert not list((root / "running").iterdir())


def test_batch_is_free_once_it_is_released_and_waits_for_its_base_fits(leases, tmp_path):
    first, second = leases(), leases()
    assert first.take(["a", "b"]) is None
    assert second.take(["b", "c"]).keys == frozenset("ab")
    assert second.take(["c"], needed=["a"]).description == first.process.description
    first.release(["a", "b"])
    assert second.take(["b", "c"]) is None
    assert second.take(["d"]) is None
    assert {process.keys for process in active_processes(tmp_path)} == {
        frozenset(),
        frozenset("bcd"),
    }


def test_threads_that_start_together_take_every_batch_once(leases):
    """In threads that start together and want the same in the same order."""
    barrier, taken = threading.Barrier(4), list[str]()

    def work(process):
        barrier.wait()
        taken.extend(key for key in "abcdefgh" if process.take([key]) is None)

    threads = [threading.Thread(target=work, args=(leases(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list("abcdefgh")


@pytest.mark.parametrize("age", [module.STALE_SECONDS + 5, -24 * 3600.0])
def test_silent_process_elsewhere_loses_its_lease_and_notices(leases, tmp_path, age):
    """Also one whose files are from the future, of a clock that was wrong. A record that it was
    writing goes later."""
    first, second = leases("elsewhere-77.json"), leases()
    assert first.take(["a"]) is None
    (lease,) = first.folder.glob("*.lease")
    unfinished = tmp_path / ".abc.json.0123456789ab-77.0123456789ab.tmp"
    unfinished.write_bytes(b"half")
    for path in (lease, first.path):
        date = disk_time(first.folder) - age
        os.utime(path, (date, date))
    if age > 0:
        first._beat()
        assert second.take(["a"]) is not None, "a heartbeat keeps it fresh"
        os.utime(lease, (date, date))
        os.utime(first.path, (date, date))
    assert second.take(["a"]) is None
    with pytest.raises(RuntimeError, match="taken over"):
        first._beat()
    first.release(["a"])
    assert [process.keys for process in active_processes(tmp_path)] == [{"a"}]
    assert remove_leftovers(tmp_path) == [first.path], "the record might be in writing just now"
    hour_ago = time.time() - 3600
    os.utime(unfinished, (hour_ago, hour_ago))
    assert remove_leftovers(tmp_path) == [unfinished]


@pytest.mark.processes
def test_lease_of_a_killed_process_of_this_machine_is_free_at_once(leases, tmp_path):
    code = f"""
import os, pathlib
from dlmexp.experiment.running.leases import Leases
killed = Leases(pathlib.Path({str(tmp_path)!r}), print).__enter__()
killed.take(["a"])
killed.take(["b"])
killed._held[frozenset("b")].write_text("torn")
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert leases().take(["a"]) is None
    assert len(remove_leftovers(tmp_path)) == 2, (
        "the file of the process, and a lease that it had not finished"
    )
    assert len(active_processes(tmp_path)) == 1


@pytest.mark.parametrize(
    ("process", "alone", "expected"),
    [
        ("elsewhere-77", 59.0, False),
        ("elsewhere-77", 60.0, True),
        (f"{machine()}-999999999", 0.0, True),
    ],
)
def test_file_is_stale_after_a_minute_or_when_its_process_has_ended(
    tmp_path, process, alone, expected
):
    path = tmp_path / f"{process}.json"
    path.touch()
    os.utime(path, (1000.0, 1000.0))
    assert is_stale(path, 1000.0 + alone) == expected


def test_file_that_is_gone_is_stale(tmp_path):
    assert is_stale(tmp_path / f"{this_process()}.json", 0.0)


def test_unfinished_file_of_a_live_process_here_stays_however_old(tmp_path):
    with replacing(tmp_path / "record.json") as temporary:
        temporary.touch()
        os.utime(temporary, (1.0, 1.0))
        assert remove_leftovers(tmp_path) == []
        assert temporary.exists()


def test_lease_file_has_the_process_and_its_progress(leases, tmp_path):
    process = leases()
    process.progress = lambda: {"settled": 3, "total": 9, "seconds_left": 12.0}
    process.take(["a"])
    process._beat()
    (active,) = active_processes(tmp_path)
    assert (active.settled, active.total, active.seconds_left) == (3, 9, 12.0)
    assert (active.pid, active.machine, active.keys) == (os.getpid(), machine(), {"a"})


@pytest.mark.parametrize(("job", "description"), [(None, "h pid 7"), ("12_1", "h pid 7 job 12_1")])
def test_process_is_described_by_host_id_and_job(job, description):
    assert ActiveProcess(host="h", pid=7, job=job).description == description


@pytest.mark.parametrize(
    ("rate", "objective", "expected"),
    [
        (1204.3, 0.25, "iteration 4 of 9, 1 live, 1204 it/s, objective 0.2500"),
        (9.96, None, "iteration 4 of 9, 1 live, 10 it/s"),
        (0.123, None, "iteration 4 of 9, 1 live, 0.12 it/s"),
    ],
)
def test_numbers_of_a_batch_are_rounded(rate, objective, expected):
    progress = BatchProgress(
        what="", cells=2, live=1, iteration=4, limit=9, rate=rate, objective=objective
    )
    assert progress.description == expected


@pytest.mark.parametrize("again", [False, True])
def test_removed_folder_is_not_told_as_another_process(leases, tmp_path, again):
    process = leases()
    assert process.take(["a"]) is None
    shutil.rmtree(process.folder)
    if again:
        process.folder.mkdir()
    with pytest.raises(FolderRemovedError, match="removal of"):
        process._beat()
