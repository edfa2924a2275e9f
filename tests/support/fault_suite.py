"""The fault suite of the engine: a small sweep, and every operation on its results folder going wrong once.

python -m tests.support.fault_suite      every fault at every operation: the table in docs/RELIABILITY.md
"""

import itertools
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dlmexp.cluster.status import read_status
from dlmexp.records.store import Store
from tests.support.launcher import Launcher
from tests.support.processes import SWEEP, comparable

KINDS = ("kill", "ENOSPC", "EIO")


class Outcome(NamedTuple):
    """How one run of the sweep ended: exit code, what was said, and its operations on files."""

    code: int
    said: str
    operations: list[str]


def quick_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder in memory where there is one: every run asks the disk thirty times to write at once."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


class Suite:
    """The undisturbed run, and what every disturbed one is compared with."""

    def __init__(self, launcher: Launcher, folder: Path):
        self.launcher, self.folder, self._runs = launcher, folder, itertools.count()
        root = folder / "undisturbed"
        outcome = self.run(root)
        assert outcome.code == 0, outcome.said
        self.operations, self.records, self.files = outcome.operations, comparable(root), files(root)
        assert len(self.records) == 2

    def start(self, root: Path, words: Sequence[str] = SWEEP, **fault: Any) -> Callable[[], Outcome]:
        """Begin a run with these arguments of `faulty_run`; the function that is returned waits for its end."""
        log = self.folder / f"{next(self._runs)}.log"
        operations = log.with_suffix(".operations")
        about = {"root": str(root), "log": str(operations), **fault}
        process = self.launcher.start(self.folder, "run", *words, log=log, fault=about, DLMEXP_COMMIT="none")
        return lambda: Outcome(process.wait(), process.said, operations.read_text().splitlines())

    def run(self, root: Path, words: Sequence[str] = SWEEP, **fault: Any) -> Outcome:
        return self.start(root, words, **fault)()

    def inject(self, what: str, at: int) -> str | None:
        """One fault at one operation, then the same command again; a sentence about what is wrong, or None."""
        root, where = self.folder / f"{what}-{at}", f"{what} at operation {at} ({self.operations[at - 1]})"
        first = self.run(root, what=what, at=at)
        if first.code not in ((-9,) if what == "kill" else (0, 1, 2)) or "Traceback" in first.said:
            return f"{where}: exit code {first.code}: {first.said[-2000:]}"
        if root.is_dir():
            read_status(root, failure_reasons=True)
            list(Store(root, read_only=True).own())
        return self.recovers(root, where)

    def recovers(self, root: Path, where: str) -> str | None:
        """The same command again finishes with the same records, and leaves the same files."""
        second = self.run(root)
        if second.code != 0 or "Traceback" in second.said:
            return f"{where}, then the same command: exit code {second.code}: {second.said[-2000:]}"
        if comparable(root) != self.records:
            return f"{where}: the records differ from an undisturbed run's"
        if (left := files(root)) != self.files:
            return f"{where}: left over {sorted(left - self.files)}, lacking {sorted(self.files - left)}"
        return None

    def everywhere(self, what: str, most: int = sys.maxsize) -> tuple[Counter[str], list[str]]:
        """A fault of one kind at every operation, or at so many of each kind at most, drawn at random: how often at
        each kind of operation, and what went wrong."""
        counts, wrong = Counter[str](), []
        for at in random.Random(what).sample(range(1, len(self.operations) + 1), len(self.operations)):
            operation = self.operations[at - 1]
            if counts[operation] < most:
                counts[operation] += 1
                wrong += filter(None, [self.inject(what, at)])
        return counts, wrong


if __name__ == "__main__":
    with closing(Launcher()) as launcher, quick_folder() as folder:
        suite = Suite(launcher, Path(folder))
        counts, wrong = zip(*(suite.everywhere(what) for what in KINDS), strict=True)
    problems = list(itertools.chain(*wrong))
    print(pd.DataFrame(counts, index=KINDS).T.to_string(), *problems, sep="\n")
    print(f"{sum(count.total() for count in counts)} faults, {len(problems)} not passed")
    sys.exit(1 if problems else 0)
