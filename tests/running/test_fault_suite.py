"""Every operation on the results folder goes wrong once: the same command then finishes, with the same records and
files.

`python -m tests.support.fault_suite` counts what is injected here, for docs/RELIABILITY.md.
"""

import json
import os
import re
import time
from collections.abc import Iterator

import pytest

from dlmexp.atomic import write_atomically
from dlmexp.running.leases import remove_leftovers
from tests.support.fault_suite import KINDS, SWEEP, Suite, files, quick_folder
from tests.support.launcher import Launcher
from tests.support.processes import comparable

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def suite(launcher: Launcher) -> Iterator[Suite]:
    with quick_folder() as folder:
        yield Suite(launcher, folder)


@pytest.mark.parametrize("what", KINDS[:2])
def test_a_fault_at_every_kind_of_operation(suite, what):
    """`python -m tests.support.fault_suite` goes through all of them: some minutes."""
    counts, wrong = suite.everywhere(what, most=1)
    assert not wrong, "\n".join(wrong)
    assert len(suite.operations) > 100
    assert {"open wb", "write", "fsync", "replace", "unlink", "mkdir", "open rb"} <= counts.keys()


def test_a_clock_that_jumps(suite):
    root = suite.folder / "clock"
    first = suite.run(root, jumps=True, what="kill", at=len(suite.operations) // 2)
    assert first.code == -9
    second = suite.run(root, jumps=True)
    assert second.code == 0, second.said
    assert suite.recovers(root, "a clock that jumps") is None


def test_two_processes_train_no_batch_twice_and_lose_none(suite):
    """The clocks of their hosts, which have one name, are hours apart."""
    root = suite.folder / "two"
    hosts = (("first", 9 * 3600), ("second", -9 * 3600))
    ends = [suite.start(root, machine=machine, skew=by) for machine, by in hosts]
    outcomes = [end() for end in ends]
    assert [one.code for one in outcomes] == [0, 0], outcomes
    batches = [line.partition("  ")[2] for one in outcomes for line in one.said.splitlines() if line[:6] == "batch "]
    assert len(batches) == len(set(batches)) == 2
    assert suite.recovers(root, "two processes") is None


@pytest.mark.parametrize("seconds", [3600.0, -86400.0])
def test_what_a_host_held_that_is_gone_is_no_obstacle(suite, seconds):
    """Also not if the clock of that host was a day ahead."""
    root = suite.folder / f"gone{seconds}"
    about = {"host": "gone", "pid": 1, "machine": "m", "name": "gone-1"}
    process, lease = root / "running" / "gone-1.json", root / "running" / f"{'0' * 20}.lease"
    write_atomically(process, json.dumps(about).encode())
    write_atomically(lease, json.dumps({**about, "keys": list(suite.records)}).encode())
    for path in (process, lease):
        os.utime(path, (time.time() - seconds,) * 2)
    outcome = suite.run(root)
    assert outcome.code == 0, outcome.said
    assert not process.exists()
    assert not lease.exists()
    assert suite.recovers(root, "a host that is gone") is None


def test_what_a_dead_host_left_is_removed_when_it_is_old(suite):
    root = suite.folder / "left"
    assert suite.run(root).code == 0
    temporary = root / "records" / "ringnorm_drawn" / ".abc.json.0123456789ab-77.0123456789ab.tmp"
    temporary.write_bytes(b"half")
    assert remove_leftovers(root) == [], "it might be in writing just now"
    hour_ago = time.time() - 3600
    os.utime(temporary, (hour_ago, hour_ago))
    assert remove_leftovers(root) == [temporary]
    assert files(root) == suite.files


def test_memory_that_runs_out_on_a_cpu_halves_the_batch(suite):
    """torch's allocator fails, as it does where memory is short, in every batch of more than so many cells."""
    words = [*SWEEP, "method=[beta_elbo]", "seeds=[0,1,2]", "beta.values=[8,4,2,1]", "batch_cells=12"]
    scarce, none = (suite.run(suite.folder / f"at most {m}", most_cells=m, words=words) for m in (3, 0))
    assert scarce.code == 0, scarce.said
    assert re.findall(r"out of memory with (\d+) cells", scarce.said) == ["12", "6", "6"]
    assert len(comparable(suite.folder / "at most 3")) == 12
    assert none.code == 2, none.said
    assert "does not fit into memory" in none.said
    assert "Traceback" not in none.said
