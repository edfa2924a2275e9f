"""Symbolic links inside a results folder: nothing is written or deleted through them, whatever the command."""

import os
import shutil
import time

import pytest

from dlmexp.atomic import within
from dlmexp.cli import main
from dlmexp.plan.compose import compose
from dlmexp.records.manifest import Manifest, check_same_data, write_manifest
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.run import execute
from tests.support import made_up

CELLS = tuple(made_up.cell("banana", seed=seed) for seed in range(2))
FOLDERS = ("records", "records/banana", "one", "one/cells", "figures", "running", "checkpoints", "data", "quarantine")
COMMANDS = ("collect", "report", "plot class-log --format png", "status", "clean --leftovers", "clean one --yes")
FILES = ("report.html", "one/table.csv", "figures/class-log.csv", "running/process-2.log")


@pytest.fixture
def root(tmp_path):
    """A results folder with something of every kind in it, also what `clean --leftovers` deletes."""
    root = tmp_path / "results"
    store = Store(root)
    write_manifest(root, Manifest("one", {cell.key: cell.describe() for cell in CELLS}, []))
    for cell in CELLS:
        store.write(*made_up.plausible(cell))
    check_same_data(root, "banana", "abc")
    checkpoint.save(checkpoint.path_of(store, CELLS), CELLS, checkpoint.Notes([0]), {})
    for name in ("figures", "running", "quarantine"):
        (root / name).mkdir()
    (root / "figures" / "class-log.csv").write_text("mine")
    (root / "checkpoints" / "damaged.npz").write_bytes(b"")
    (root / "running" / "gone.json").write_text("{}")
    (root / "records" / "banana" / f"{'0' * 20}-01234567.npz").write_bytes(b"alone")
    for path in root.rglob("*"):
        os.utime(path, (time.time() - 1e6,) * 2)
    return root


def _content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _every_command(root, words):
    for command in COMMANDS:
        assert main([*command.split(), "--results", str(root)]) in (0, 2)
    assert main(["run", *words, "method=[elbo]", "seeds=[0]", f"results={root}", "name=one"]) in (0, 1, 2)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_elsewhere_stays_as_it_is(root, tmp_path, tiny, name):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / name, elsewhere)
    (root / name).symlink_to(elsewhere)
    before = _content(elsewhere)
    _every_command(root, tiny)
    assert _content(elsewhere) == before


def test_a_file_elsewhere_stays_as_it_is(root, tmp_path, tiny):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in FILES:
        (elsewhere / name.replace("/", "-")).write_text("mine")
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(elsewhere / name.replace("/", "-"))
    before = _content(elsewhere)
    _every_command(root, [*tiny, "workers=2"])
    assert _content(elsewhere) == before


def test_the_link_is_named(root, tmp_path, capsys):
    shutil.move(root / "figures", tmp_path / "figures")
    (root / "figures").symlink_to(tmp_path / "figures")
    assert main(["plot", "class-log", "--results", str(root)]) == 2
    assert str(root / "figures") in capsys.readouterr().err


def test_the_results_folder_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    assert main(["collect", "--results", str(tmp_path / "link")]) == 0
    assert (root / "one" / "table.csv").is_file()
    assert within(tmp_path / "link", tmp_path / "link" / "one" / "x") == tmp_path / "link" / "one" / "x"


def test_a_run_is_refused_before_it_trains(root, tmp_path, tiny):
    shutil.move(root / "records", tmp_path / "records")
    (root / "records").symlink_to(tmp_path / "records")
    with pytest.raises(OSError, match="records"):
        execute(compose([*tiny, f"results={root}"]))
