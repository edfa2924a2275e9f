"""Fixtures of tests that run a sweep: real processes, a tiny sweep on drawn data, and what its records must be."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.records.record import Record
from dlmexp.records.store import Store
from tests.support.launcher import Launcher

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=6", "sizes=[20]",
    "seeds=[0,1]", "beta=list", "beta.values=[10,1,0.1]", "device=cpu", "training.binary.max_iterations=40",
]  # fmt: skip
# An ELBO fit, and a DLM fit that starts from it: two batches, with a checkpoint after every iteration.
SWEEP = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3", "sizes=[10]",
    "seeds=[0]", "method=[elbo,fixed_log_dlm]", "beta=list", "beta.values=[1]", "device=cpu",
    "training.binary.max_iterations=2", "checkpoint_seconds=1e-9",
]  # fmt: skip


@pytest.fixture
def tiny() -> list[str]:
    """Arguments of a sweep of 18 cells in 3 batches (or 6 with `batch_cells=3`), done in a moment."""
    return list(TINY)


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    started = Launcher()
    yield started
    started.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arrays_of(store: Store, record: Record) -> dict[str, np.ndarray]:
    """The arrays beside a record."""
    return store.arrays(record.cell.dataset, record.key, record.arrays) if record.arrays else {}


def comparable(results: Path) -> dict[str, tuple]:
    """By key, what a record must share with that of an undisturbed run: everything but times and machines."""
    store, found = Store(results), {}
    for record in store.own():
        assert record.key not in found
        result = replace(record.result, seconds=None, alone=None)
        arrays = {name: array.tobytes() for name, array in arrays_of(store, record).items()}
        found[record.key] = (record.status, record.cell, result, arrays)
    return found


@pytest.fixture(scope="module")
def undisturbed(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], Path]:
    """`undisturbed(arguments)`: the results folder of one process that was left alone."""

    @cache
    def run(*arguments: str) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed")
        code, said = launcher.run(folder, "run", *arguments)
        assert code == 0, said
        return folder / "results"

    return lambda arguments: run(*arguments)
