"""One claim judged on made-up records."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dlmexp.benchmark import made_up
from dlmexp.claims.judge import Judgement, claims, judge_one
from dlmexp.figures.results import load

Build = Callable[..., Judgement]


@pytest.fixture
def judged(tmp_path: Path) -> Build:
    """`judged(number, records)`: the judgement of one claim on these records."""
    folders = iter(range(100))

    def build(number: int, things: Iterable[Any]) -> Judgement:
        folder = tmp_path / str(next(folders))
        made_up.fill(folder, things)
        return judge_one(next(claim for claim in claims() if claim.number == number), load(folder))

    return build
