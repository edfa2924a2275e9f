"""Fixtures of tests that read records: results of made-up records, and claims judged on them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dlmexp.claims import evidence
from dlmexp.claims.judge import Judgement, claims, judge_one
from dlmexp.records.results import Results, load
from dlmexp.records.schema import Record
from dlmexp.records.settings import Setting
from dlmexp.records.store import Store
from tests.support import made_up

Build = Callable[..., Results]


@pytest.fixture
def results(tmp_path: Path) -> Build:
    """Call it with cells (plausible numbers), records, or (record, arrays) to get them as loaded results."""
    folders = iter(range(100))

    def build(*things: Any, label: str = "") -> Results:
        folder = tmp_path / f"results-{next(folders)}"
        made_up.fill(folder, things)
        return load(folder, label)

    return build


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judgement]:
    """`judged(number, records)`: the judgement of one claim on these records; `trivial=` is the trivial predictor's
    value of every metric (None: the records have none); `asked=` what the run was to make, where it made less;
    `protocol=` under which."""
    folders = iter(range(100))

    def build(
        number: int, things: Iterable[Any], trivial: float | None = None, asked: Iterable[Record] = (),
        protocol: str = "paper",
    ) -> Judgement:  # fmt: skip
        monkeypatch.setattr(evidence, "trivial", lambda record, metric: trivial)
        folder, things = tmp_path / f"judged-{next(folders)}", list(things)
        if any(isinstance(thing, tuple) for thing in things):  # arrays have to lie on disk, records need not
            made_up.fill(folder, things)
            results = load(folder)
        else:
            results = Results(Store(folder), things, made_up.asked(list(asked) or things))
        return judge_one(next(claim for claim in claims() if claim.number == number), results, Setting(protocol))

    return build
