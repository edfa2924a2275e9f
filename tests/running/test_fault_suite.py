"""Operations on the results folder go wrong: the same command then finishes, with the same records and files.

`python -m tests.support.fault_suite` goes through all of them, in some minutes, for docs/RELIABILITY.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_suite import KINDS, SWEEP, Suite, quick_folder
from tests.support.launcher import Launcher
from tests.support.processes import comparable

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def suite(launcher: Launcher) -> Iterator[Suite]:
    with quick_folder() as folder:
        yield Suite(launcher, Path(folder))


@pytest.mark.parametrize("what", KINDS[:2])
def test_a_fault_at_every_kind_of_operation(suite, what):
    counts, wrong = suite.everywhere(what, most=1)
    assert not wrong, "\n".join(wrong)
    assert len(suite.operations) > 100
    assert {"open w", "write", "fsync", "replace", "unlink", "mkdir", "open r", "os.open"} <= counts.keys()


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
