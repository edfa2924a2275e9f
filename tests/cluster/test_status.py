"""The status of a results folder: counting, and showing it."""

import json
from pathlib import Path

import pytest

from dlmexp.cluster.status import print_json, print_tables, read_status
from dlmexp.records.collect import collect_pack
from dlmexp.records.manifest import Manifest, write_manifest
from dlmexp.records.store import Store
from dlmexp.running.presence import Presence
from tests.support import made_up

CELLS = [made_up.cell("banana", seed=seed) for seed in range(6)]


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one running, two missing."""
    store = Store(tmp_path)
    for name, cells in {"one": CELLS, "two": CELLS[:2]}.items():
        write_manifest(tmp_path, Manifest(name, {cell.key: cell.describe() for cell in cells}, []))
    for cell in CELLS[:2]:
        store.write(made_up.fit(cell, nll=0.5))
    store.write(made_up.failed(CELLS[2], "no reason"))
    with Presence(tmp_path) as mine:
        mine.announce([CELLS[3].key])
        yield tmp_path


def test_counts(root):
    found = read_status(root)
    one, two = found.experiments
    assert (one.name, one.done, one.running, one.failed, one.missing) == ("one", 2, 1, 1, 2)
    assert (two.name, two.done, two.missing) == ("two", 2, 0)
    assert sorted(one.absent) == [cell.describe() for cell in CELLS[4:]]
    assert [process["cells"] for process in found.running] == [1]
    assert found.quarantined == 0


def test_reasons_are_read_when_asked_for(root):
    assert read_status(root).experiments[0].failures == []
    (failure,) = read_status(root, failure_reasons=True).experiments[0].failures
    assert failure["cell"] == CELLS[2].describe()
    assert failure["reason"] == "no reason (iteration 17)"
    assert failure["where"] == "nowhere"


def test_a_torn_failure_stays_a_failure_with_the_way_out(root):
    path = Store(root).path("banana", CELLS[2].key, ".failed.json")
    path.write_text("{")
    (failure,) = read_status(root, failure_reasons=True).experiments[0].failures
    assert "its record is torn; retry_failed=true runs it again" in failure["reason"]
    assert path.read_text() == "{"
    again = read_status(root)
    assert again.quarantined == 0
    assert again.experiments[0].failed == 1


def test_records_in_packs_are_counted(root):
    assert read_status(root).packed == 0
    collect_pack(str(root), str(root / "records.tar.xz"), light=True)
    assert read_status(root).packed == 3


def test_a_done_cell_that_is_run_again_counts_as_done(root):
    with Presence(root) as mine:
        mine.announce([CELLS[0].key])
        assert read_status(root).experiments[0].done == 2


def test_files_in_quarantine_are_counted_without_their_reasons(root: Path, capsys: pytest.CaptureFixture[str]):
    (root / "quarantine").mkdir()
    for name in ("a.json", "a.json.why"):
        (root / "quarantine" / name).touch()
    found = read_status(root)
    assert found.quarantined == 1
    print_tables(found)
    assert f"quarantined in {root}/quarantine: 1 file\n" in capsys.readouterr().out


def test_names_in_the_json_are_stable(root: Path, capsys: pytest.CaptureFixture[str]):
    print_json(read_status(root))
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["results", "experiments", "running", "jobs", "checkpoints", "quarantined", "packed"]
    assert list(found["experiments"][0]) == [
        "name", "done", "running", "queued", "failed", "missing", "failures", "absent",
    ]  # fmt: skip
