"""Fixtures of tests that run jobs: real processes, and a tiny job on drawn data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launcher import Launcher

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=6", "sizes=[20]",
    "seeds=[0,1]", "beta=list", "beta.values=[10,1,0.1]", "device=cpu", "training.binary.max_iterations=70",
]  # fmt: skip


@pytest.fixture
def tiny() -> list[str]:
    """Words of a job of 18 cells in 3 batches (or 6 with `batch_cells=3`), done in a moment."""
    return list(TINY)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    started = Launcher(tmp_path_factory.mktemp("launched-cache"))
    yield started
    started.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
