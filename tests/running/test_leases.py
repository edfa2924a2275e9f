"""Who trains what: leases that exclude each other, that are kept fresh, and that are taken over when they are stale."""

import os
import subprocess
import sys
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.running import leases as module
from dlmexp.running.leases import LeaseLost, Leases, active_processes, disk_time, read_leases, remove_leftovers

HOUR = 3600.0


@pytest.fixture
def leases(tmp_path):
    """Processes that share a folder: each is one, with the name of another machine, and notes what has failed."""
    made: list[Leases] = []

    def process(machine: str = "", **about):
        failures: list[BaseException] = []
        one = Leases(tmp_path, failures.append)
        one.failures = failures  # type: ignore[attr-defined]
        one.about = msgspec.structs.replace(one.about, machine=machine or one.about.machine, **about)
        made.append(one)
        return one.__enter__()

    yield process
    for one in made:
        one.__exit__()


@settings(max_examples=30)
@given(batches=st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8))
def test_no_cell_has_two_leases(tmp_path_factory, batches):
    """Whatever the batches of two runs, equal, overlapping or apart."""
    root = tmp_path_factory.mktemp("leases")
    with Leases(root, print) as one, Leases(root, print) as other:
        held: list[frozenset[str]] = []
        for i, keys in enumerate(batches):
            taken = (one, other)[i % 2].take(keys) is None
            assert taken == (not any(keys & h for h in held))
            held += [keys] if taken else []
        assert len(read_leases(one.folder)) == len(held)
    assert not list((root / "running").iterdir())


def test_a_batch_is_free_once_it_is_released_and_waits_for_what_it_needs(leases):
    first, second = leases(), leases()
    assert first.take(["a", "b"]) is None
    assert second.take(["b", "c"]).name == first.about.name
    assert second.take(["c"], needed=["a"]).description == first.about.description
    first.release(["a", "b"])
    assert second.take(["b", "c"]) is None
    assert {one.name: one.keys for one in active_processes(first.folder.parent)} == {
        first.about.name: frozenset(), second.about.name: frozenset("bc")
    }  # fmt: skip


def test_many_at_once_take_every_batch_once(leases):
    """In threads that start together and want the same in the same order."""
    processes, barrier, taken = [leases() for _ in range(4)], threading.Barrier(4), list[str]()

    def work(one):
        barrier.wait()
        taken.extend(key for key in "abcdefgh" if one.take([key]) is None)

    threads = [threading.Thread(target=work, args=(one,)) for one in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list("abcdefgh")


@pytest.mark.parametrize("age", [module.STALE_SECONDS + 5, -24 * HOUR])
def test_a_silent_process_elsewhere_loses_its_lease_and_notices(leases, age):
    """Also one whose file is from the future, of a clock that was wrong."""
    first, second = leases(machine="elsewhere"), leases()
    assert first.take(["a"]) is None
    (path,) = read_leases(first.folder)
    date = disk_time(first.folder) - age
    os.utime(path, (date, date))
    assert second.take(["a"]) is None
    with pytest.raises(LeaseLost):
        first._beat()
    first.release(["a"])
    assert [one.name for one in read_leases(first.folder).values()] == [second.about.name], "it releases only its own"


def test_a_heartbeat_keeps_leases_fresh_and_says_when_it_fails(leases, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)
    one = leases()
    one.take(["a"])
    (path,) = read_leases(one.folder)
    os.utime(path, (0, 0))
    until = time.monotonic() + 10
    while path.stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert path.stat().st_mtime > 0
    one.progress = lambda: 1 / 0
    one._thread.join(10)
    assert isinstance(one.failures[0], ZeroDivisionError)


@pytest.mark.processes
def test_what_a_killed_process_of_this_machine_held_is_free_at_once(leases, tmp_path):
    code = f"""
import os, pathlib
from dlmexp.running.leases import Leases
one = Leases(pathlib.Path({str(tmp_path)!r}), print).__enter__()
one.take(["a"])
one.take(["b"])
one._held[frozenset("b")].write_text("torn")
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    one = leases()
    began = time.monotonic()
    assert one.take(["a"]) is None
    assert time.monotonic() - began < module.STALE_SECONDS / 2
    assert len(remove_leftovers(tmp_path)) == 2, "the file of the process, and a lease that it had not finished"
    assert len(active_processes(tmp_path)) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"host": "h", "pid": -4}'])
def test_unreadable_files_are_nobody(leases, content):
    one = leases()
    (one.folder / "foreign.json").write_text(content)
    (one.folder / "foreign.lease").write_text(content)
    assert one.take(["a"]) is None
    assert [process.name for process in active_processes(one.folder.parent)] == [one.about.name]
