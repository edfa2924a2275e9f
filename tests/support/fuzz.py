"""The fuzz suite: spoiled files of every kind, and settings of every kind, against the commands that read them.

A case is a target and a seed. It passes if the command ends with exit code 0, 1, 2, 3 or 130 and without an exception,
memory stays under a bound, nothing outside the results folder has changed, and sound records are as they were.
    python -m tests.support.fuzz MINUTES [TARGET...]
"""

import json
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
from pathlib import Path

import torch

from tests.support import made_up
from tests.support.fuzz_targets import DIRECT, OWN, SOUND, TARGETS, first_checkpoint, quiet

MEMORY = 3 << 30  # bytes of address space on top of what the process has when it starts


def case(target: str, seed: int, folder: Path) -> str | None:
    """Run one case in an empty folder; a text that says what went wrong, or None."""
    chance = random.Random(f"{target} {seed}")
    results, outside = folder / "results", folder / "outside"
    results.mkdir()
    if target not in DIRECT:
        made_up.fill(results, [made_up.fit(SOUND, nll=0.5, error=0.1)])
    outside.mkdir()
    (outside / "file").write_text("mine")
    sound = results / "records" / "banana" / f"{SOUND.key}.json"
    before, text = _snapshot(folder), sound.read_bytes() if sound.exists() else b""
    os.chdir(folder)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning is no traceback
            TARGETS[target](chance, results)
        assert not text or sound.read_bytes() == text, "a sound record has changed"
        assert _snapshot(folder) == before, f"files outside the results folder: {_snapshot(folder) ^ before}"
    except Exception:
        return f"{target} {seed}:\n{traceback.format_exc()}"
    finally:
        os.chdir("/")
    return None


def _snapshot(folder: Path) -> set[tuple[str, bytes]]:
    """Everything in the folder that is neither of the results nor written by the case itself."""
    found = set()
    for path in folder.rglob("*"):
        top = path.relative_to(folder).parts[0]
        if path.is_file() and top != "results" and top not in OWN:
            found.add((str(path), path.read_bytes()))
    return found


def cases(target: str, seeds: range) -> list[str]:
    """Run cases in a process of their own, with a bound on memory; what went wrong. If it dies, that is a failure."""
    receive, send = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(receive)
        code = 1
        try:
            _limit_memory()
            os.environ["OMP_NUM_THREADS"] = "1"  # threads of OpenMP wait for ever in a forked process
            torch.set_num_threads(1)
            with tempfile.TemporaryDirectory() as top:
                for seed in seeds:
                    folder = Path(top) / "case"
                    folder.mkdir()
                    os.write(send, (json.dumps({"seed": seed, "wrong": case(target, seed, folder)}) + "\n").encode())
                    shutil.rmtree(folder)
            code = 0
        finally:
            os._exit(code)
    os.close(send)
    with os.fdopen(receive) as lines:
        told = [json.loads(line) for line in lines]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    wrong = [one["wrong"] for one in told if one["wrong"]]
    if status or len(told) != len(seeds):
        wrong.append(f"{target} {seeds.start + len(told)}: the process ended with {status}")
    return wrong


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def warm_up() -> None:
    """Import what the commands import, once, before processes are forked."""
    import dlmexp.claims.judge
    import dlmexp.figures.plot
    import dlmexp.report.page
    import dlmexp.running.engine  # noqa: F401

    first_checkpoint()


def until(minutes: float, targets: list[str], first: int) -> tuple[Counter[str], list[str]]:
    """Cases with seeds from `first` on, target after target, until the time is over: how many of each, what failed."""
    counts, wrong, end, seed = Counter[str](), [], time.monotonic() + 60 * minutes, first
    while time.monotonic() < end:
        for target in targets:
            seeds = range(seed, seed + 25)
            wrong += cases(target, seeds)
            counts[target] += len(seeds)
            if time.monotonic() >= end:
                break
        seed += 25
    return counts, wrong


if __name__ == "__main__":
    warm_up()
    began = int(os.environ.get("SEED", time.time() % 1e6))
    counts, wrong = until(float(sys.argv[1]), sys.argv[2:] or list(TARGETS), began)
    print("\n".join(wrong))
    print(f"{sum(counts.values())} cases from seed {began}, {len(wrong)} failed: {dict(counts)}")
    sys.exit(1 if wrong else 0)
