"""Checkpoints: there and back, what becomes of damaged ones, and the learning curves in them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.checkpoint import running_curves
from dlmexp.running.signals import Stop
from tests.support.cells import PLAIN
from tests.support.engines import Sweep
from tests.support.processes import arrays_of

CELLS = tuple(replace(PLAIN, seed=seed) for seed in range(3))
ARRAYS = {"values/m": np.linspace(0, 1, 40), "iteration": np.array(7)}
NOTES = checkpoint.Notes(open=[0, 2], cells=[0, 2], seconds=[1.0, 2.0], curves=[{}, {}], iteration=7)
HANDBOOK = Path(__file__).resolve().parents[2] / "docs" / "CLUSTER.md"


def _saved(store):
    path = checkpoint.path_of(store, CELLS)
    checkpoint.save(path, CELLS, NOTES, ARRAYS)
    return path


def test_there_and_back(tmp_path):
    store = Store(tmp_path)
    path = _saved(store)
    assert path == checkpoint.path_of(store, CELLS[::-1]) != checkpoint.path_of(store, CELLS[:2])
    ((at, found),) = checkpoint.find(store).items()
    assert (at, found.cells, found.open, found.notes) == (path, CELLS, (CELLS[0], CELLS[2]), NOTES)
    assert {name: array.tolist() for name, array in checkpoint.read_tensors(path).items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_damaged_file_is_quarantined_or_what_was_written(tmp_path_factory, data):
    """A flipped bit, or less than all of it: never an error, and never another number than was written."""
    store = Store(tmp_path_factory.mktemp("flip"))
    path = _saved(store)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    path.write_bytes(content)
    found = checkpoint.find(store)
    assert (path in found) == path.exists()
    if not found:
        assert [p.read_bytes() for p in (store.root / "quarantine").glob("*.npz")] == [content]
        return
    assert found[path].cells == CELLS
    try:
        arrays = checkpoint.read_tensors(path)
    except Exception:
        return  # what the engine sets aside
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in arrays.items() if name in ARRAYS)


WORDS = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=300", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "seeds=[0]", "method=joint_log_dlm", "beta=list", "beta.values=[1,0.1]", "training.binary.tolerance=0",
    "evaluate=2", "training.binary.max_iterations=60", "device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was asked to stop at its fifth iteration."""
    sweep = Sweep(tmp_path_factory.mktemp("stopped"), WORDS)
    sweep.progress.tick = lambda cells, training: training.iteration >= 4 and sweep.stop.request(15)
    with pytest.raises(Stop):
        sweep.run()
    return sweep


@pytest.mark.slow
def test_the_curve_so_far_is_the_beginning_of_the_whole_one(stopped, tmp_path):
    (saved,) = checkpoint.find(stopped.store).values()
    found = running_curves(stopped.store.root)
    assert set(found["key"]) == {cell.key for cell in stopped.cells}
    assert 0 < (saved.notes.iteration or 0) < 60
    whole = Sweep(tmp_path, WORDS)
    for record in whole.run().values():
        mine = found[found["key"] == record.key]
        arrays = arrays_of(whole.store, record)
        assert list(mine["iteration"]) == list(range((saved.notes.iteration or 0) + 1))
        np.testing.assert_allclose(mine["objective_value"][1:], arrays["objective"][: len(mine) - 1], rtol=1e-6)
        measured = mine.dropna(subset=["test_nll"])
        np.testing.assert_allclose(measured["test_nll"], arrays["test_nll"][: len(measured)], rtol=1e-9)


@pytest.mark.slow
def test_curves_as_a_file_and_the_drawing_in_the_handbook(stopped, tmp_path, monkeypatch):
    """docs/CLUSTER.md, followed while a run is under way."""
    monkeypatch.chdir(tmp_path)
    for name in ("curves.csv", "curves.parquet"):
        assert main(["collect", "--running", name, "--results", str(stopped.store.root)]) == 0
    assert len(pd.read_csv("curves.csv")) == len(pd.read_parquet("curves.parquet")) > 0
    (code,) = re.findall(r"```python\n(.*?)```", HANDBOOK.read_text(), re.DOTALL)
    drawn: dict[str, Any] = {}
    exec(code, drawn)
    assert list(drawn["means"]) == [0.1, 1.0]
    assert (tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize("words", [["now.txt"], ["now.csv", "mine"], ["now.csv", "--results", "nowhere"]])
def test_what_is_refused(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert main(["collect", "--running", *words]) == 2
    assert words[-1] in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
