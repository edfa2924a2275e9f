"""Operations on the results folder go wrong: the same command then finishes, with the same records
and files.

    FAULTS=all python -m pytest -sk every_kind tests/experiment/running/test_fault_suite.py

goes through all of them, in some minutes, and prints the numbers of docs/RELIABILITY.md.
"""

import itertools
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dlmexp.experiment.cluster.status import read_status
from dlmexp.experiment.records.store import Store
from tests.support.processes import SWEEP, Launcher, comparable

pytestmark = pytest.mark.processes
ALL = os.environ.get("FAULTS") == "all"


class Outcome(NamedTuple):
    """How one run of the sweep ended: exit code, what was said, and its operations on files."""

    code: int
    said: str
    operations: list[str]


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


class Suite:
    """The undisturbed run, and what every disturbed one is compared with."""

    def __init__(self, launcher: Launcher, folder: Path):
        self.launcher = launcher
        self.folder = folder
        self._runs = itertools.count()
        root = folder / "undisturbed"
        outcome = self.run(root)
        assert outcome.code == 0, outcome.said
        self.operations = outcome.operations
        self.records = comparable(root)
        self.files = files(root)
        assert len(self.records) == 2
        assert len(self.operations) > 50  # enough to fail at, of every kind

    def start(
        self, root: Path, words: Sequence[str] = SWEEP, **fault: Any
    ) -> Callable[[], Outcome]:
        """Begin a run with these arguments of `faulty_run`; the function that is returned waits for
        its end."""
        log = self.folder / f"{next(self._runs)}.log"
        operations = log.with_suffix(".operations")
        about = {"root": str(root), "log": str(operations), **fault}
        process = self.launcher.start(
            self.folder, "run", *words, log=log, fault=about, DLMEXP_COMMIT="none"
        )
        return lambda: Outcome(process.wait(), process.said, operations.read_text().splitlines())

    def run(self, root: Path, words: Sequence[str] = SWEEP, **fault: Any) -> Outcome:
        outcome = self.start(root, words, **fault)()
        assert "Traceback" not in outcome.said, outcome.said
        return outcome

    def check_recovery(self, root: Path) -> None:
        """The same command again finishes with the same records, and leaves the same files."""
        second = self.run(root)
        assert second.code == 0, second.said
        assert comparable(root) == self.records
        assert files(root) == self.files


@pytest.fixture(scope="module")
def suite(launcher: Launcher) -> Iterator[Suite]:
    """In memory where there is room for files: every run asks the disk thirty times to write at
    once."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        yield Suite(launcher, Path(folder))


@pytest.mark.parametrize("what", ["kill", "ENOSPC", *(["EIO"] if ALL else [])])
def test_fault_at_every_kind_of_operation_is_recovered(suite, what):
    counts = Counter[str]()
    for at in random.Random(what).sample(
        range(1, len(suite.operations) + 1), len(suite.operations)
    ):
        operation = suite.operations[at - 1]
        if counts[operation] and not ALL:
            continue
        counts[operation] += 1
        root = suite.folder / f"{what} at {at}, {operation}"
        first = suite.run(root, what=what, at=at)
        assert first.code in ((-9,) if what == "kill" else (0, 1, 2)), first.said
        if root.is_dir():
            read_status(root, failure_reasons=True)
            list(Store(root, read_only=True).own_records())
        suite.check_recovery(root)
    assert {
        "open w",
        "write",
        "fsync",
        "replace",
        "unlink",
        "mkdir",
        "open r",
        "os.open",
    } <= counts.keys()
    print(what, counts)


def test_clock_that_jumps_loses_nothing(suite):
    root = suite.folder / "clock"
    first = suite.run(root, jumps=True, what="kill", at=len(suite.operations) // 2)
    assert first.code == -9
    second = suite.run(root, jumps=True)
    assert second.code == 0, second.said
    suite.check_recovery(root)


def test_two_processes_train_no_batch_twice_and_lose_none(suite):
    """The clocks of their hosts, which have one name, are hours apart."""
    root = suite.folder / "two"
    hosts = (("first", 9 * 3600), ("second", -9 * 3600))
    ends = [suite.start(root, machine=machine, skew=by) for machine, by in hosts]
    outcomes = [end() for end in ends]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    lines = [line for outcome in outcomes for line in outcome.said.splitlines()]
    batches = [line.partition("  ")[2] for line in lines if line.startswith("batch ")]
    assert len(batches) == len(set(batches)) == 2
    suite.check_recovery(root)


def test_memory_that_runs_out_on_a_cpu_halves_the_batch(suite):
    """torch's allocator fails, as it does where memory is short, in every batch of more than so
    many cells."""
    words = [
        *SWEEP,
        "method=[beta_elbo]",
        "seeds=[0,1,2]",
        "beta.values=[8,4,2,1]",
        "batch_cells=12",
    ]
    scarce = suite.run(suite.folder / "at most 3", most_cells=3, words=words)
    none = suite.run(suite.folder / "at most 0", most_cells=0, words=words)
    assert scarce.code == 0, scarce.said
    assert re.findall(r"out of memory with (\d+) cells", scarce.said) == ["12", "6", "6"]
    assert len(comparable(suite.folder / "at most 3")) == 12
    assert none.code == 2, none.said
    assert "does not fit into memory" in none.said
