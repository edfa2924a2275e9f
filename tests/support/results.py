"""Fixtures of tests that read records: results of made-up records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., Any]:
    """Call it with cells (plausible numbers), records, or (record, arrays) to get them as loaded results."""
    from dlmexp.records.results import load
    from tests.support import made_up

    folders = iter(range(100))

    def build(*things: Any, label: str = "") -> Any:
        folder = tmp_path / f"results-{next(folders)}"
        made_up.fill(folder, things)
        return load(folder, label)

    return build
