"""Symbolic links inside a results folder: nothing is written or deleted through them, whatever the
command."""

import os
import shutil
import time

import pytest

from dlmexp.cli import main
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import Checkpoint, save_checkpoint
from dlmexp.experiment.running.sweep import prepare_sweep
from tests.support.processes import TINY

pytestmark = pytest.mark.slow
DATASET = "records/ringnorm_drawn"
FOLDERS = ("records", DATASET, "one", "one/cells", "running", "checkpoints", "data", "quarantine")
WORDS = [*(word for word in TINY if "options" not in word), "method=[elbo]", "name=one"]


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A results folder with something of every kind in it, written long ago."""
    root = tmp_path_factory.mktemp("example") / "results"
    assert main(["run", *WORDS, "seeds=[0]", f"results={root}"]) == 0
    cells = tuple(prepare_sweep(compose([*WORDS, "seeds=[1]"])).cells)
    save_checkpoint(Store(root), Checkpoint(cells, [0]), {})
    (root / "checkpoints" / "damaged.npz").write_bytes(b"")
    for name in ("figures", "running", "quarantine"):
        (root / name).mkdir(exist_ok=True)
    (root / "running" / "gone.json").write_text("{}")
    (root / DATASET / f"{'0' * 20}-01234567.npz").write_bytes(b"alone")
    before = time.time() - 1e6
    for path in root.rglob("*"):
        os.utime(path, (before, before))
    return root


@pytest.fixture
def root(example, tmp_path):
    return shutil.copytree(example, tmp_path / "results")


def _content(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _move(path, elsewhere):
    """Put a link in the place of a folder, or of a file that need not be there."""
    shutil.move(path, elsewhere) if path.exists() else elsewhere.write_text("mine")
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_elsewhere_stays_as_it_is(root, tmp_path, name):
    _move(root / name, tmp_path / "elsewhere")
    before = _content(tmp_path / "elsewhere")
    for command in ("collect", "status"):
        assert main([command, "--results", str(root)]) in (0, 2)
    assert main(["run", *WORDS, f"results={root}"]) in (0, 1, 2)
    assert _content(tmp_path / "elsewhere") == before


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("collect", ["table.parquet"]),
        ("run", ["running/process-2.log", "data/ringnorm_drawn.json"]),
        ("report", ["report.html"]),
        (
            "plot predictions --format png",
            [f"figures/predictions-ringnorm_drawn.{kind}" for kind in ("csv", "png")],
        ),
    ],
)
def test_files_elsewhere_stay_as_they_are(root, tmp_path, command, names):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in names:
        _move(root / name, elsewhere / name.replace("/", "-"))
    before = _content(elsewhere)
    words = (
        [*WORDS, "workers=2", f"results={root}"] if command == "run" else ["--results", str(root)]
    )
    assert main([*command.split(), *words]) in (0, 1, 2)
    assert _content(elsewhere) == before


def test_a_folder_of_figures_elsewhere_is_named(root, tmp_path, capsys):
    _move(root / "figures", tmp_path / "figures")
    assert main(["plot", "predictions", "--format", "png", "--results", str(root)]) == 2
    assert str(root / "figures") in capsys.readouterr().err


def test_the_results_folder_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    assert main(["collect", "--results", str(tmp_path / "link")]) == 0
    assert (root / "table.parquet").is_file()
