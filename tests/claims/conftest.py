"""One claim judged on made-up records."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dlmexp.benchmark import made_up
from dlmexp.claims.judge import Judgement, claims, judge_one
from dlmexp.figures.results import Results, load
from dlmexp.sweep.store import Store

Build = Callable[..., Judgement]


@pytest.fixture
def judged(tmp_path: Path) -> Build:
    """`judged(number, records)`: the judgement of one claim on these records."""
    folders = iter(range(100))

    def build(number: int, things: Iterable[Any]) -> Judgement:
        folder, things = tmp_path / str(next(folders)), list(things)
        if any(isinstance(thing, tuple) for thing in things):  # arrays have to lie on disk, records need not
            made_up.fill(folder, things)
            results = load(folder)
        else:
            results = Results(Store(folder), things)
        return judge_one(next(claim for claim in claims() if claim.number == number), results)

    return build
