"""Results folders of made-up records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlmexp.benchmark import made_up
from dlmexp.figures.results import Results, load

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
