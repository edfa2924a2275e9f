"""`dlmexp logs`: by job, by key, by words; and cells that no job trained."""

import pytest

from dlmexp.cli import main
from dlmexp.cluster.jobs import write_submission
from dlmexp.records.store import Store
from tests.support import made_up
from tests.support.cells import ask

CELLS = [made_up.cell("banana", seed=seed) for seed in range(4)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Tasks 12_0 and 12_1 with a log each, 13 that has not started; the last cell was trained without a job."""
    monkeypatch.chdir(tmp_path)
    store = Store("results")
    ask(store.root, "mine", CELLS)
    for job, cell in zip(("12_0", "12_1", "13"), CELLS, strict=False):
        folder = store.root / "multirun" / "now" / "jobs" / job
        write_submission(folder, job, "here", [f"seeds=[{cell.seed}]"], [cell.key])
        if job != "13":
            (folder / f"{job}_0_log.out").write_text(f"first of {job}\nlast of {job}\n")
    store.write(made_up.failed(CELLS[3], "no reason"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["12_1"], ["first of 12_1", "last of 12_1"]),
        (["12"], ["first of 12_0", "last of 12_0", "first of 12_1", "last of 12_1"]),
        (["12", "--lines", "1"], ["last of 12_0", "last of 12_1"]),
        ([CELLS[0].key], ["first of 12_0", "last of 12_0"]),
        ([CELLS[0].key[:10]], ["first of 12_0", "last of 12_0"]),
        (["banana", "seed=1"], ["first of 12_1", "last of 12_1"]),
        (["13"], ["(no log: the job has not started, or never did)"]),
    ],
)
def test_whose(here, capsys, words, expected):
    assert main(["logs", *words]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not line.startswith("==")] == expected


def test_a_cell_without_a_job(here, capsys):
    assert main(["logs", "seed=3"]) == 0
    assert "no job" in capsys.readouterr().out


def test_all_jobs_are_listed(here, capsys):
    assert main(["logs"]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("job")] == [
        "job 12_0: seeds=[0]",
        "job 12_1: seeds=[1]",
        "job 13: seeds=[2]",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["99"], "'99' is neither a job nor a cell of results"),
        (["bananna"], "did you mean banana?"),
        (["12", "--lines", "0"], "--lines 0"),
        (["--results", "nowhere"], "there is no such folder"),
    ],
)
def test_what_is_not_there(here, capsys, words, said):
    assert main(["logs", *words]) == 2
    assert said in capsys.readouterr().err
