"""The status of a results folder: counting, and showing it."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.cluster.status import print_tables, read_status
from dlmexp.records.store import Manifest, Store, write_manifest
from dlmexp.running.leases import BatchProgress, Leases, RunProgress
from tests.support.cells import PLAIN, candidates, scored

CELLS = [replace(PLAIN, seed=seed) for seed in range(6)]


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one running, two missing."""
    store = Store(tmp_path)
    for name, cells in {"one": CELLS, "two": CELLS[:2]}.items():
        write_manifest(tmp_path, Manifest(name, [candidates("fixed_log_dlm", [cell]) for cell in cells]))
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
    names = ("name", "done", "running", "failed", "missing")
    counts = [[experiment[name] for name in names] for experiment in status["experiments"]]
    assert counts == [["one", 2, 1, 1, 2], ["two", 2, 0, 0, 0]]
    absent = sorted(status["experiments"][0]["absent"])
    assert ["seed=4" in absent[0], "seed=5" in absent[1], len(absent)] == [True, True, 2]
    assert [process["cells"] for process in status["running"]] == [1]
    assert status["quarantined"] == 1, "without its reason"
    print_tables(status)
    assert f"quarantined in {root}/quarantine: 1 file\n" in capsys.readouterr().out


def test_reasons_are_read_when_asked_for(root):
    """A torn failure stays a failure, with the way out."""
    assert read_status(root)["experiments"][0]["failures"] == []
    path = Store(root).path("banana", CELLS[2].key, ".failed.json")
    for reason in ("no reason (iteration 3)", "retry_failed=true"):
        status = read_status(root, failure_reasons=True)
        (failure,) = status["experiments"][0]["failures"]
        assert "seed=2" in failure["cell"]
        assert reason in failure["reason"]
        assert (status["quarantined"], status["experiments"][0]["failed"]) == (0, 1)
        path.write_text("{")


NUMBERS = {"cells": 2, "live": 1, "iteration": 400, "limit": 3000, "rate": 10.0, "objective": 0.25}
BATCH = BatchProgress(what="banana n=100 joint elbo: 2 cells", most_seconds_left=260.0, **NUMBERS)
TOLD = RunProgress(settled=3, total=9, failed=1, seconds_left=90, batches=(BATCH,))


def test_progress_on_other_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_manifest(tmp_path, Manifest("one", [candidates("fixed_log_dlm", CELLS[4:5])]))
    about = {"host": "node7", "pid": 7, "job": "12_1", "machine": "another", "name": "node7-7"}
    path = tmp_path / "running" / "node7-7.json"
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode({**about, "progress": TOLD}))
    path.with_suffix(".lease").write_bytes(msgspec.json.encode({**about, "keys": [CELLS[4].key]}))
    assert main(["status", "--json", "--results", str(tmp_path)]) == 0
    status = json.loads(capsys.readouterr().out)
    assert list(status) == ["results", "experiments", "running", "jobs", "checkpoints", "quarantined", "packed"]
    names = ["name", "done", "running", "queued", "failed", "missing", "failures", "absent"]
    assert list(status["experiments"][0]) == names
    assert status["running"][0]["batches"] == [msgspec.to_builtins(BATCH)]
    print_tables(read_status(tmp_path))
    said = capsys.readouterr().out
    numbers = "1 cell; 3 of the 9 of this run settled, 1 failed, about 90 s left\n"
    assert f"running: node7 pid 7 job 12_1, {numbers}" in said
    batch = "  banana n=100 joint elbo: 2 cells: iteration 400 of 3000, 1 live, 10 it/s, objective 0.2500, "
    assert f"{batch}at most 4 min left\n" in said
