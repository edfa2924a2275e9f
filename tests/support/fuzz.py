"""The fuzz suite: spoiled files of every kind, and settings of every kind, against the commands that read them.

A case is a target and a seed. It passes if the command ends with exit code 0, 1, 2, 3 or 130 and without an exception,
memory stays under a bound, nothing outside the results folder has changed, and sound records are as they were.
    python -m tests.support.fuzz MINUTES [TARGET...]
"""

import logging
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.support.fuzz_targets import DIRECT, OWN, TARGETS, sound_record, sweep

MEMORY = 3 << 30  # bytes of address space on top of what the process has when it starts
AT_ONCE = 25  # cases in one process


def case(target: str, seed: int) -> str | None:
    """Run one case in a folder of its own; a text that says what went wrong, or None."""
    with tempfile.TemporaryDirectory() as top, warnings.catch_warnings(action="ignore"):  # a warning is no traceback
        os.chdir(top)
        folder, results = Path(top), Path(top) / "results"
        (folder / "outside").write_text("mine")
        results.mkdir() if target in DIRECT else shutil.copytree(sweep().folder, results)
        before = _snapshot(folder)
        try:
            TARGETS[target](random.Random(f"{target} {seed}"), results)
            assert _snapshot(folder) == before, f"what should be as it was: {_snapshot(folder) ^ before}"
        except Exception:
            return f"{target} {seed}:\n{traceback.format_exc()}"
        finally:
            os.chdir("/")
    return None


def _snapshot(folder: Path) -> set[tuple[str, bytes]]:
    """All files but those that the case writes; of the results only the sound record."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    counted = [path for path in files if path.relative_to(folder).parts[0] not in OWN or sound_record(path)]
    return {(str(path), path.read_bytes()) for path in counted}


def cases(target: str, seeds: range) -> bool:
    """Run cases in a process of their own, with a bound on memory, which prints what went wrong; whether all passed. If
    it dies, that is a failure."""
    process = get_context("fork").Process(target=_run_cases, args=(target, seeds))
    process.start()
    process.join()
    return process.exitcode == 0


def _run_cases(target: str, seeds: range) -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    logging.disable(logging.WARNING)
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of OpenMP wait for ever in a forked process
    torch.set_num_threads(1)
    wrong = [problem for seed in seeds if (problem := case(target, seed))]
    print(*wrong, sep="\n", flush=True)
    sys.exit(bool(wrong))


def warm_up() -> None:
    """Import what the commands import, once, before processes are forked."""
    import dlmexp.claims.judge
    import dlmexp.figures.plot
    import dlmexp.report.page
    import dlmexp.running.engine  # noqa: F401

    sweep()


if __name__ == "__main__":
    warm_up()
    first = int(os.environ.get("SEED", time.time() % 1e6))
    end, counts, failed = time.monotonic() + 60 * float(sys.argv[1]), Counter[str](), Counter[str]()
    for seed, target in ((seed, target) for seed in count(first, AT_ONCE) for target in sys.argv[2:] or TARGETS):
        counts[target] += AT_ONCE
        failed[target] += not cases(target, range(seed, seed + AT_ONCE))
        if time.monotonic() >= end:
            break
    print(f"{counts.total()} cases from seed {first}: {dict(counts)}; not passed in {failed.total()} processes")
    sys.exit(bool(failed.total()))
