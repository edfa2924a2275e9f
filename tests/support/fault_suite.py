"""The fault suite of the engine: a small sweep, and every operation on its results folder going wrong once.

python -m tests.support.fault_suite      every fault at every operation: the table in docs/RELIABILITY.md
"""

import itertools
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dlmexp.cluster.status import read_status
from dlmexp.records.store import Store
from tests.support.launcher import Launcher
from tests.support.processes import comparable

# An ELBO fit, and a DLM fit that starts from it: two batches, with a checkpoint after every iteration.
SWEEP = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3", "sizes=[10]",
    "seeds=[0]", "method=[elbo,fixed_log_dlm]", "beta=list", "beta.values=[1]", "device=cpu",
    "training.binary.max_iterations=2", "checkpoint_seconds=1e-9",
]  # fmt: skip
KINDS = ("kill", "ENOSPC", "EIO")


class Outcome(NamedTuple):
    """How one run of the sweep ended: exit code, what was said, and its operations on files."""

    code: int
    said: str
    operations: list[str]


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: every run asks the disk thirty times to write at once."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


class Suite:
    """The undisturbed run, and what every disturbed one is compared with."""

    def __init__(self, launcher: Launcher, folder: Path):
        self.launcher, self.folder, self._runs = launcher, folder, itertools.count()
        outcome = self.run(folder / "undisturbed")
        assert outcome.code == 0, outcome.said
        self.operations = outcome.operations
        self.records, self.files = comparable(folder / "undisturbed"), files(folder / "undisturbed")
        assert len(self.records) == 2

    def start(self, root: Path, words: Sequence[str] = SWEEP, **fault: Any) -> Callable[[], Outcome]:
        """Begin a run with these arguments of `faulty_run`; the function that is returned waits for its end."""
        log = self.folder / f"{next(self._runs)}.log"
        about = {"root": str(root), "log": f"{log}.operations", **fault}
        process = self.launcher.start(self.folder, "run", *words, log=log, fault=about, DLMEXP_COMMIT="none")
        return lambda: Outcome(process.wait(), process.said, Path(about["log"]).read_text().splitlines())

    def run(self, root: Path, words: Sequence[str] = SWEEP, **fault: Any) -> Outcome:
        return self.start(root, words, **fault)()

    def inject(self, what: str, at: int) -> str | None:
        """One fault at one operation, then the same command again; a sentence about what is wrong, or None."""
        root = self.folder / f"{what}-{at}"
        where = f"{what} at operation {at} ({self.operations[at - 1]})"
        first = self.run(root, what=what, at=at)
        if what == "kill" and first.code != -9:
            return f"{where}: it was not killed: {first.code} {first.said}"
        if first.code not in (-9, 0, 1, 2) or "Traceback" in first.said:
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
        if (found := files(root)) != self.files:
            return f"{where}: left over {sorted(found - self.files)}, lacking {sorted(self.files - found)}"
        return None

    def everywhere(self, what: str, most: int | None = None) -> tuple[Counter[str], list[str]]:
        """A fault of one kind at every operation, or at so many of each kind at most, drawn at random: how often at
        each kind of operation, and what went wrong."""
        counts, wrong = Counter[str](), []
        order = list(enumerate(self.operations, 1))
        random.Random(what).shuffle(order)
        for at, operation in order:
            if most is None or counts[operation] < most:
                counts[operation] += 1
                wrong += filter(None, [self.inject(what, at)])
        return counts, wrong


def main() -> int:
    """Inject every kind of fault at every operation; print how many there were, and those that did harm."""
    with closing(Launcher()) as launcher, quick_folder() as folder:
        suite = Suite(launcher, folder)
        counts, wrong = zip(*(suite.everywhere(what) for what in KINDS), strict=True)
    print(pd.DataFrame(counts, index=KINDS).T.to_string())
    print(
        *itertools.chain(*wrong),
        f"{sum(c.total() for c in counts)} faults, {sum(map(len, wrong))} not passed",
        sep="\n",
    )
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
