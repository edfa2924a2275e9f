"""Learning curves of cells in training, from real checkpoints of an interrupted run."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dlmexp.cli import main
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.curves import running_curves
from dlmexp.running.signals import Stop
from tests.running.test_engine import Sweep
from tests.support.stopping import Late

pytestmark = pytest.mark.slow
HANDBOOK = Path(__file__).resolve().parents[2] / "docs" / "CLUSTER.md"
WORDS = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=300", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "seeds=[0]", "method=joint_log_dlm", "beta=list", "beta.values=[1,0.1]", "training.binary.tolerance=0",
    "evaluate=2",
    "training.binary.max_iterations=60", "device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    root = tmp_path_factory.mktemp("stopped")
    sweep = Sweep(root, WORDS)
    sweep.engine.stop = Late()
    with pytest.raises(Stop):
        sweep.run()
    return sweep


def test_the_curve_so_far_is_the_beginning_of_the_whole_one(stopped, tmp_path):
    (saved,) = checkpoint.find(stopped.store)
    found = running_curves(stopped.store.root)
    assert set(found["key"]) == {cell.key for cell in stopped.cells}
    assert saved.notes.iteration is not None
    assert 0 < saved.notes.iteration < 60
    whole = Sweep(tmp_path, WORDS)
    whole.run()
    for record in Store(tmp_path).all():
        mine = found[found["key"] == record.key]
        arrays = whole.store.arrays(record)
        assert list(mine["iteration"]) == list(range(saved.notes.iteration + 1))
        np.testing.assert_allclose(mine["objective_value"][1:], arrays["objective"][: len(mine) - 1], rtol=1e-6)
        measured = mine.dropna(subset=["test_nll"])
        assert list(measured["iteration"]) == [i for i in arrays["evaluated_at"] if i <= saved.notes.iteration]
        np.testing.assert_allclose(measured["test_nll"], arrays["test_nll"][: len(measured)], rtol=1e-9)


@pytest.mark.parametrize("name", ["now.csv", "now.parquet"])
def test_as_a_file(stopped, tmp_path, capsys, name):
    path = tmp_path / name
    assert main(["collect", "--running", str(path), "--results", str(stopped.store.root)]) == 0
    found = pd.read_csv(path) if name.endswith("csv") else pd.read_parquet(path)
    assert len(found) == len(running_curves(stopped.store.root)) > 0
    assert f"{path}: {len(found)} rows" in capsys.readouterr().out


def test_the_drawing_in_the_handbook(stopped, tmp_path, monkeypatch):
    """docs/CLUSTER.md, followed while a run is under way."""
    (code,) = re.findall(r"```python\n(.*?)```", HANDBOOK.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "--running", "curves.parquet", "--results", str(stopped.store.root)]) == 0
    drawn: dict[str, Any] = {}
    exec(code, drawn)
    assert list(drawn["means"]) == [0.1, 1.0]
    assert (tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--running", "now.txt"], "--running now.txt: end the name in .csv or .parquet"),
        (["--running", "now.csv", "--pack", "records.tar.xz"], "not allowed with"),
        (["--running", "now.csv", "mine"], "leave out mine"),
        (["--running", "now.csv", "--results", "nowhere"], "nowhere"),
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert main(["collect", *words]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
