"""The status of a results folder: what is counted and shown."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.experiment.cluster.slurm import JobState
from dlmexp.experiment.cluster.status import print_status, read_status
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.leases import BatchProgress, Leases
from tests.support.cells import PLAIN, candidates, scored
from tests.support.jobs import submit_job

CELLS = [replace(PLAIN, seed=seed) for seed in range(6)]
COUNTS = ("done", "running", "queued", "failed", "missing")


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one running, two missing."""
    store = Store(tmp_path)
    for name, cells in {"one": CELLS, "two": CELLS[:2]}.items():
        write_manifest(
            tmp_path, Manifest(name, [candidates("fixed_log_dlm", [cell]) for cell in cells])
        )
    for cell in CELLS[:2]:
        store.write(scored(cell, nll=0.5))
    store.write(scored(CELLS[2], "failed"))
    with Leases(tmp_path, print) as mine:
        mine.take([CELLS[3].key])
        yield tmp_path


def counts(root: Path) -> dict[str, tuple[int, ...]]:
    """The counts of each experiment in the order of `COUNTS`."""
    status = read_status(root)
    return {
        experiment.name: tuple(getattr(experiment, state) for state in COUNTS)
        for experiment in status.experiments
    }


def test_cells_of_each_experiment_are_counted_by_state(root):
    assert counts(root) == {"one": (2, 1, 0, 1, 2), "two": (2, 0, 0, 0, 0)}


def test_cells_of_a_queued_job_are_queued(root, slurm):
    submit_job(root, "9", CELLS[4].key)
    slurm["9"] = JobState("PENDING")
    assert counts(root)["one"] == (2, 1, 1, 1, 1)


def test_cells_of_an_ended_job_are_missing(root, slurm):
    submit_job(root, "9", CELLS[4].key)
    assert counts(root)["one"] == (2, 1, 0, 1, 2)


def test_failed_cell_of_an_active_job_that_trains_is_running(root, slurm):
    with Leases(root, print) as process:
        process.take([CELLS[2].key])
        assert counts(root)["one"] == (2, 2, 0, 0, 2)


def test_missing_cells_are_described(root):
    absent = sorted(read_status(root).experiments[0].absent)
    assert len(absent) == 2
    assert "seed=4" in absent[0]
    assert "seed=5" in absent[1]


def test_process_is_counted_with_its_cells(root):
    assert [process.cells for process in read_status(root).running] == [1]


def test_quarantined_files_are_counted_without_their_reasons(root, capsys):
    (root / "quarantine").mkdir()
    for name in ("a.json", "a.json.why"):
        (root / "quarantine" / name).touch()
    status = read_status(root)
    assert status.quarantined == 1
    print_status(status)
    assert "quarantined: 1 in quarantine/\n" in capsys.readouterr().out


def test_failure_reasons_are_read_only_on_request(root, capsys):
    assert read_status(root).experiments[0].failures == []
    assert main(["status", "--json", "--failed", "--results", str(root)]) == 0
    ((failure,), _) = [e["failures"] for e in json.loads(capsys.readouterr().out)["experiments"]]
    assert failure["key"] == CELLS[2].key
    assert list(failure) == ["key", "cell", "reason", "where", "when"]
    assert "seed=2" in failure["cell"]
    assert failure["reason"] == "no reason (iteration 3)"


def test_torn_failure_stays_a_failure_and_says_the_way_out(root):
    Store(root).path("banana", CELLS[2].key, ".failed.json").write_text("{")
    status = read_status(root, failure_reasons=True)
    (failure,) = status.experiments[0].failures
    assert "retry_failed=true" in failure.reason
    assert failure.where == "?"
    assert list(msgspec.to_builtins(failure)) == ["key", "cell", "reason", "where"]
    assert (status.quarantined, status.experiments[0].failed) == (0, 1)


def test_printed_status_lists_failures_and_on_request_missing_cells(root, capsys):
    status = read_status(root, failure_reasons=True)
    print_status(status)
    without_missing = capsys.readouterr().out
    print_status(status, missing=True)
    with_missing = capsys.readouterr().out.splitlines()
    (failure,) = [line for line in without_missing.splitlines() if "no reason" in line]
    assert failure.startswith("one: banana n=100 seed=2 ")
    assert ": missing" not in without_missing
    assert len([line for line in with_missing if line.startswith("one: missing banana")]) == 2


BATCH = BatchProgress(
    what="banana n=100 joint elbo: 2 cells",
    cells=2,
    live=1,
    iteration=400,
    limit=3000,
    rate=1204.3,
    objective=0.25,
)


@pytest.fixture
def remote(tmp_path):
    """A folder in which a process on another node trains."""
    write_manifest(tmp_path, Manifest("one", [candidates("fixed_log_dlm", CELLS[4:5])]))
    about = {"host": "node7", "pid": 7, "job": "12_1", "machine": "another"}
    progress = {"settled": 3, "total": 9, "failed": 1, "seconds_left": 90, "batches": [BATCH]}
    path = tmp_path / "running" / "node7-7.json"
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode(about | progress))
    path.with_suffix(".1.lease").write_bytes(msgspec.json.encode({**about, "keys": [CELLS[4].key]}))
    return tmp_path


def test_json_status_has_stable_names(remote, capsys):
    assert main(["status", "--json", "--results", str(remote)]) == 0
    status = json.loads(capsys.readouterr().out)
    assert list(status) == [
        "results",
        "experiments",
        "running",
        "jobs",
        "checkpoints",
        "quarantined",
        "packed",
        "gaps",
    ]
    assert list(status["experiments"][0]) == ["name", *COUNTS, "failures", "absent"]
    assert list(status["running"][0]) == [
        "who",
        "cells",
        "settled",
        "total",
        "failed",
        "seconds_left",
        "batches",
    ]
    assert status["running"][0]["batches"] == [msgspec.to_builtins(BATCH)]


def test_json_status_of_a_job_has_stable_names(remote, slurm, capsys):
    submit_job(remote, "9", CELLS[4].key)
    slurm["9"] = JobState("PENDING", "", "Priority")
    assert main(["status", "--json", "--results", str(remote)]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    names = ["job", "state", "active", "lost", "node", "cells", "left", "block", "user", "log"]
    assert list(job) == names
    assert (job["state"], job["active"], job["lost"]) == ("pending (Priority)", True, 0)


def test_progress_on_another_node_is_printed(remote, capsys):
    print_status(read_status(remote))
    printed = capsys.readouterr().out
    assert (
        "running: node7 pid 7 job 12_1, 1 cell; "
        "3 of 9 cells of its run have a record, 1 failed, about 90 s left\n"
    ) in printed
    assert (
        "  banana n=100 joint elbo: 2 cells: "
        "iteration 400 of 3000, 1 live, 1204 it/s, objective 0.2500\n"
    ) in printed
