"""The status of a results folder: counting, and showing it."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.cluster import status as module
from dlmexp.cluster.status import print_tables, read_status, watch
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.store import Store
from dlmexp.running.leases import BatchProgress, Leases, RunProgress
from tests.support.cells import PLAIN, candidates, scored

CELLS = [replace(PLAIN, seed=seed) for seed in range(6)]


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one running, two missing."""
    store = Store(tmp_path)
    for name, cells in {"one": CELLS, "two": CELLS[:2]}.items():
        write_manifest(tmp_path, manifest(name, [candidates("fixed_log_dlm", [cell]) for cell in cells]))
    for cell in CELLS[:2]:
        store.write(scored(cell, nll=0.5))
    store.write(scored(CELLS[2], "failed"))
    with Leases(tmp_path, print) as mine:
        mine.take([CELLS[3].key])
        yield tmp_path


def test_counts(root, capsys):
    (root / "quarantine").mkdir()
    for name in ("a.json", "a.json.why"):
        (root / "quarantine" / name).touch()
    status = read_status(root)
    one, two = status["experiments"]
    assert [one[name] for name in ("name", "done", "running", "failed", "missing")] == ["one", 2, 1, 1, 2]
    assert (two["name"], two["done"], two["missing"]) == ("two", 2, 0)
    assert len(one["absent"]) == 2
    assert all(f"seed={cell.seed}" in text for cell, text in zip(CELLS[4:], sorted(one["absent"]), strict=True))
    assert [process["cells"] for process in status["running"]] == [1]
    assert status["quarantined"] == 1, "without its reason"
    print_tables(status)
    assert f"quarantined in {root}/quarantine: 1 file\n" in capsys.readouterr().out


def test_reasons_are_read_when_asked_for(root):
    """A torn failure stays a failure, with the way out."""
    assert read_status(root)["experiments"][0]["failures"] == []
    (failure,) = read_status(root, failure_reasons=True)["experiments"][0]["failures"]
    assert "seed=2" in failure["cell"]
    assert (failure["reason"], failure["where"]) == ("no reason (iteration 3)", "h")
    path = Store(root).path("banana", CELLS[2].key, ".failed.json")
    path.write_text("{")
    (failure,) = read_status(root, failure_reasons=True)["experiments"][0]["failures"]
    assert "retry_failed=true" in failure["reason"]
    assert path.read_text() == "{"
    assert (read_status(root)["quarantined"], read_status(root)["experiments"][0]["failed"]) == (0, 1)


def test_names_in_the_json_are_stable(root: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["status", "--json", "--results", str(root)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["results", "experiments", "running", "jobs", "checkpoints", "quarantined", "packed"]
    assert list(found["experiments"][0]) == [
        "name", "done", "running", "queued", "failed", "missing", "failures", "absent",
    ]  # fmt: skip


BATCH = BatchProgress(
    what="banana n=100 joint elbo: 2 cells",
    cells=2,
    live=1,
    iteration=400,
    limit=3000,
    rate=10.0,
    objective=0.25,
    most_seconds_left=260.0,
)
TOLD = RunProgress(settled=3, total=9, failed=1, seconds_left=90, batches=(BATCH,))


def _note(root: Path, told: RunProgress, pid: int) -> Path:
    """The presence file of a process on another node, as it writes it."""
    about = {"host": "node7", "pid": pid, "job": "12_1", "machine": "another", "name": f"node7-{pid}"}
    path = root / "running" / f"node7-{pid}.json"
    path.write_bytes(msgspec.json.encode({**about, "progress": told}))
    path.with_suffix(".lease").write_bytes(msgspec.json.encode({**about, "keys": [CELLS[4].key]}))
    return path


def test_progress_of_batches_on_other_nodes(root: Path, capsys: pytest.CaptureFixture[str]):
    _note(root, TOLD, 7)
    print_tables(read_status(root))
    said = capsys.readouterr().out
    assert "running: node7 pid 7 job 12_1, 1 cell; 3 of the 9 of this run settled, 1 failed, about 90 s left\n" in said
    assert (
        "  banana n=100 joint elbo: 2 cells: iteration 400 of 3000, 1 live, 10 it/s, objective 0.2500, "
        "at most 4 min left\n"
    ) in said
    assert main(["status", "--json", "--results", str(root)]) == 0
    (other,) = [one for one in json.loads(capsys.readouterr().out)["running"] if one["who"].startswith("node7")]
    assert other["batches"] == [msgspec.to_builtins(BATCH)]


def test_watching_ends_when_nothing_runs(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    write_manifest(tmp_path, manifest("one", [candidates("fixed_log_dlm", CELLS[4:5])]))
    (tmp_path / "running").mkdir()
    path, slept = _note(tmp_path, TOLD, 7), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            path.unlink()

    monkeypatch.setattr(module.time, "sleep", sleep)
    watch(tmp_path, 3.0)
    said = capsys.readouterr().out
    assert slept == [3.0, 3.0]
    assert said.count("iteration 400 of 3000") == 2
    assert said.endswith("nothing runs\n")
