"""`scripts/results`: what it would run is what the results need."""

import os
import subprocess
import sys
from collections import defaultdict

import pytest

from dlmexp.plan.compose import compose, parts
from dlmexp.plan.grid import check
from tests.conftest import REPOSITORY


@pytest.mark.slow
def test_every_run_is_sound_and_nothing_is_missing() -> None:
    """All parts of the paper, anatomy, and 20 repetitions of the binary and count data; under the protocol that leaves
    least room for what experiments change. Every protocol has the same runs."""
    environment = {**os.environ, "PYTHON_WITH_DLMEXP": sys.executable}
    command = [REPOSITORY / "scripts" / "results", "list", "nowhere"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    paper, released, annealed = (
        [line.split() for line in listed.splitlines() if f"protocol={name}" in line]
        for name in ("paper", "released", "annealed")
    )
    assert len(paper) == len(released) == len(annealed) == 4
    most: dict[str, int] = defaultdict(int)
    for part in (part for words in annealed for part in parts(compose(words))):
        check(part)
        most[part.name] = max(most[part.name], len(part.seeds))
    named = [compose([f"experiment={name}"]).parts for name in ("paper", "anatomy")]
    whole = {word.removeprefix("experiment=") for several in named for part in several for word in part[:1]}
    assert most.keys() == whole | {"anatomy-floor"}
    assert [most[name] for name in ("class-log", "count-log", "reg-sq", "anatomy-count")] == [20, 20, 5, 20]
