"""Symbolic links inside a results folder: nothing is written or deleted through them, whatever the command."""

import os
import shutil
import time

import pytest

from dlmexp.atomic import within
from dlmexp.cli import main
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.run import execute
from dlmexp.running.sweep import prepare_sweep

DATASET = "records/ringnorm_drawn"
FOLDERS = ("records", DATASET, "one", "one/cells", "running", "checkpoints", "data", "quarantine")
COMMANDS = ("collect", "status")
PICTURES = ("figures/predictions-ringnorm_drawn.csv", "figures/predictions-ringnorm_drawn.png")


@pytest.fixture
def words(tiny):
    return [*(word for word in tiny if "options" not in word), "method=[elbo]", "name=one", "device=cpu"]


@pytest.fixture
def root(tmp_path, words):
    """A results folder with something of every kind in it."""
    root = tmp_path / "results"
    assert main(["run", *words, "seeds=[0]", f"results={root}"]) == 0
    cells = tuple(prepare_sweep(compose([*words, "seeds=[1]"])).cells)
    checkpoint.save(checkpoint.path_of(Store(root), cells), checkpoint.Checkpoint(cells, [0]), {})
    (root / "checkpoints" / "damaged.npz").write_bytes(b"")
    for name in ("figures", "running", "quarantine"):
        (root / name).mkdir(exist_ok=True)
    (root / "running" / "gone.json").write_text("{}")
    (root / DATASET / f"{'0' * 20}-01234567.npz").write_bytes(b"alone")
    before = time.time() - 1e6
    for path in root.rglob("*"):
        os.utime(path, (before, before))
    return root


def _content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _every_command(root, words):
    for command in COMMANDS:
        assert main([*command.split(), "--results", str(root)]) in (0, 2)
    assert main(["run", *words, "seeds=[0,1]", f"results={root}"]) in (0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_elsewhere_stays_as_it_is(root, tmp_path, words, name):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / name, elsewhere)
    (root / name).symlink_to(elsewhere)
    before = _content(elsewhere)
    _every_command(root, words)
    assert _content(elsewhere) == before


def _linked(root, elsewhere, *names):
    """Files of the folder that are links to files elsewhere."""
    elsewhere.mkdir()
    for name in names:
        (elsewhere / name.replace("/", "-")).write_text("mine")
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(elsewhere / name.replace("/", "-"))
    return _content(elsewhere)


@pytest.mark.slow
def test_a_file_elsewhere_stays_as_it_is(root, tmp_path, words):
    before = _linked(root, tmp_path / "elsewhere", "table.parquet", "running/process-2.log", "data/ringnorm_drawn.json")
    _every_command(root, [*words, "workers=2"])
    assert _content(tmp_path / "elsewhere") == before


@pytest.mark.slow
def test_a_report_elsewhere_stays_as_it_is(root, tmp_path):
    before = _linked(root, tmp_path / "elsewhere", "report.html")
    assert main(["report", "--results", str(root)]) == 0
    assert _content(tmp_path / "elsewhere") == before
    assert not (root / "report.html").is_symlink()


@pytest.mark.slow
def test_a_figure_elsewhere_stays_as_it_is(root, tmp_path, capsys):
    draw = ["plot", "predictions", "--format", "png", "--results", str(root)]
    before = _linked(root, tmp_path / "elsewhere", *PICTURES)
    assert main(draw) == 0
    assert _content(tmp_path / "elsewhere") == before
    shutil.move(root / "figures", tmp_path / "figures")
    (root / "figures").symlink_to(tmp_path / "figures")
    before = _content(tmp_path / "figures")
    assert main(draw) == 2
    assert str(root / "figures") in capsys.readouterr().err
    assert _content(tmp_path / "figures") == before


@pytest.mark.slow
def test_the_results_folder_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    assert main(["collect", "--results", str(tmp_path / "link")]) == 0
    assert (root / "table.parquet").is_file()
    assert within(tmp_path / "link", tmp_path / "link" / "one" / "x") == tmp_path / "link" / "one" / "x"


@pytest.mark.slow
def test_a_run_is_refused_before_it_trains(root, tmp_path, words):
    shutil.move(root / "records", tmp_path / "records")
    (root / "records").symlink_to(tmp_path / "records")
    with pytest.raises(OSError, match="records"):
        execute(compose([*words, f"results={root}"]))
