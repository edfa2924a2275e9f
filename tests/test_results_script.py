"""`scripts/results`: what it would run is what the results need."""

import os
import subprocess
import sys
from collections import defaultdict

import pytest

from dlmexp.config import RunConfig
from dlmexp.plan.checks import check
from dlmexp.plan.compose import compose, parts
from tests.conftest import REPOSITORY

PROTOCOLS = ("paper", "released", "converged")


@pytest.fixture(scope="module")
def runs() -> list[str]:
    environment = {**os.environ, "PYTHON_WITH_DLMEXP": sys.executable}
    command = [REPOSITORY / "scripts" / "results", "list", "nowhere"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_every_run_is_sound_and_nothing_is_missing(runs: list[str]) -> None:
    """Under each protocol: all parts of the paper, anatomy, and 20 repetitions of the binary and count data."""
    asked: dict[str, set[str]] = defaultdict(set)
    most: dict[tuple[str, str], int] = defaultdict(int)
    for line in runs:
        for part in parts(compose(line.split())):
            check(part)
            asked[part.protocol].add(part.name)
            most[part.protocol, part.name] = max(most[part.protocol, part.name], len(part.seeds))
    whole = {part.name for experiment in ("paper", "anatomy") for part in _parts(experiment)}
    assert len(whole) > 13
    assert set(asked) == set(PROTOCOLS)
    for protocol in PROTOCOLS:
        assert asked[protocol] == whole
        assert [most[protocol, name] for name in ("class-log", "count-log", "reg-sq")] == [20, 20, 5]


def test_timings_come_first_one_batch_at_a_time(runs: list[str]) -> None:
    """Cells that are timed must not share the device: each run before the first large one is one group of cells."""
    timed = runs[: next(i for i, line in enumerate(runs) if "experiment=class-log" in line)]
    assert len(timed) == 17
    for line in timed:
        (part,) = parts(compose(line.split()))
        (options,) = part.estimator.values()
        assert (len(part.dataset), len(part.method), len(options["samples"])) == (1, 1, 1)
        assert part.beta.values == [0.1]


def _parts(experiment: str) -> list[RunConfig]:
    return parts(compose([f"experiment={experiment}"]))
