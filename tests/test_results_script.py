"""`scripts/results`: what it would run is what the results need."""

import os
import subprocess
import sys
from collections import defaultdict

import pytest

from dlmexp.plan.checks import check
from dlmexp.plan.compose import compose, parts
from tests.conftest import REPOSITORY

PROTOCOLS = ("paper", "released", "annealed")


@pytest.fixture(scope="module")
def runs() -> list[str]:
    environment = {**os.environ, "PYTHON_WITH_DLMEXP": sys.executable}
    command = [REPOSITORY / "scripts" / "results", "list", "nowhere"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_protocols_have_the_same_runs(runs: list[str]) -> None:
    under = {name: [line for line in runs if line.endswith(name) or f"protocol={name} " in line] for name in PROTOCOLS}
    for name, lines in under.items():
        assert [line.replace(f"protocol={name}", "") for line in lines] == [
            line.replace("protocol=paper", "") for line in under["paper"]
        ]
    assert len(under["paper"]) == 4


@pytest.mark.slow
def test_every_run_is_sound_and_nothing_is_missing(runs: list[str]) -> None:
    """All parts of the paper, anatomy, and 20 repetitions of the binary and count data; under the protocol that leaves
    least room for what experiments change."""
    most: dict[str, int] = defaultdict(int)
    for line in runs:
        for part in parts(compose(line.split())) if "protocol=annealed" in line else ():
            check(part)
            assert part.protocol == "annealed"
            most[part.name] = max(most[part.name], len(part.seeds))
    named = [compose([f"experiment={name}"]).parts for name in ("paper", "anatomy")]
    whole = {word.removeprefix("experiment=") for several in named for part in several for word in part[:1]}
    assert most.keys() == whole | {"anatomy-floor"}
    assert [most[name] for name in ("class-log", "count-log", "reg-sq", "anatomy-count")] == [20, 20, 5, 20]
