"""Who trains what: leases that exclude each other, that are kept fresh, and that are taken over
when they are stale."""

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.experiment.running import leases as module
from dlmexp.experiment.running.leases import Leases, active_processes, disk_time, remove_leftovers


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


def test_a_batch_is_free_once_it_is_released_and_waits_for_what_it_needs(leases, tmp_path):
    first, second = leases(), leases()
    assert first.take(["a", "b"]) is None
    assert second.take(["b", "c"]).keys == frozenset("ab")
    assert second.take(["c"], needed=["a"]).description == first.about.description
    first.release(["a", "b"])
    assert second.take(["b", "c"]) is None
    assert second.take(["d"]) is None
    assert {process.keys for process in active_processes(tmp_path)} == {
        frozenset(),
        frozenset("bcd"),
    }


def test_many_at_once_take_every_batch_once(leases):
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
def test_a_silent_process_elsewhere_loses_its_lease_and_notices(leases, tmp_path, age):
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
def test_what_a_killed_process_of_this_machine_held_is_free_at_once(leases, tmp_path):
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
