"""`dlmexp status`, `logs`, `cancel` and `clean`: what they show, what they stop and remove, and what they leave."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.atomic import machine
from dlmexp.cli import folder, main, manage
from dlmexp.cluster import jobs as jobs_module
from dlmexp.cluster.jobs import SUBMITTED, write_submission
from dlmexp.cluster.slurm import SlurmState
from dlmexp.records.manifest import check_same_data
from dlmexp.records.results import collect_packed
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.cleaning import removal
from dlmexp.running.leases import Leases
from tests.support import made_up
from tests.support.cells import ask

BANANA = [made_up.cell("banana", seed=seed) for seed in range(4)]
THYROID = [made_up.cell("thyroid", seed=seed) for seed in range(2)]


@pytest.fixture
def mine(here):
    """The experiment `mine`: two cells done, one failed, one missing; the first three are of jobs 12_0, 12_1 and 13,
    of which the last has not started."""
    store = Store("results")
    ask(store.root, "mine", BANANA)
    for cell in BANANA[:2]:
        store.write(made_up.fit(cell, nll=0.5, error=0.1))
    store.write(made_up.failed(BANANA[2], "the objective is [red]NaN[/red]"))
    for job, cell in zip(("12_0", "12_1", "13"), BANANA, strict=False):
        place = store.root / "multirun" / "now" / "jobs" / job
        write_submission(place, job, "here", [f"seeds=[{cell.seed}]"], [cell.key])
        if job != "13":
            (place / f"{job}_0_log.out").write_text(f"first of {job}\nlast of {job}\n")
    return here


REFUSED = {  # what is typed: what the sentence names
    "status --results nowhere": "dlmexp run results=nowhere", "status --watch 0": "--watch 0",
    "status --watch nan": "--watch nan", "status --watch soon": "'soon'", "status --watch --json": "not allowed with",
    "logs 99": "'99'", "logs bananna": "did you mean banana?", "logs 12 --lines 0": "--lines 0",
    "logs --results nowhere": "nowhere", "cancel 12": "'12'", "cancel --results nowhere --yes": "nowhere",
    "clean tow --yes": "'tow'", "clean ../mine --yes": "'../mine'", "clean mine": "add --yes",
    "clean min --yes": "did you mean mine",
}  # fmt: skip


@pytest.mark.parametrize("typed", REFUSED)
def test_mistakes_are_refused_and_change_nothing(mine, capsys, typed):
    before = _files(mine)
    assert main(typed.split()) == 2
    assert REFUSED[typed] in capsys.readouterr().err
    assert _files(mine) == before


def test_status(mine, capsys):
    (mine / "results" / "mine" / "cells" / "notes.txt").write_bytes("café".encode("latin-1"))
    assert main(["status", "--failed", "--missing"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "mine " in line and "│" in line]
    assert [word for word in line.replace("│", " ").split() if word.isdigit()] == ["2", "0", "0", "1", "1"]
    assert "mine: banana n=100 seed=2 elbo exact beta=1: the objective is [red]NaN[/red] (iteration 17)" in said
    assert "mine: missing banana n=100 seed=3 elbo exact beta=1" in said
    assert main(["status", "--json", "--failed"]) == 0
    (experiment,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (experiment["done"], experiment["failed"], experiment["missing"]) == (2, 1, 1)
    assert experiment["failures"][0]["key"] == BANANA[2].key
    main(["collect", "--pack", "other/records.parquet"])
    assert main(["status", "--results", "other", "--watch"]) == 0
    said = capsys.readouterr().out
    assert "3 records" in said
    assert said.endswith("nothing runs\n")


@pytest.mark.processes
def test_status_loads_neither_torch_nor_pandas(mine):
    code = "from dlmexp.cli import main; import sys; main(['status']); print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


@pytest.mark.parametrize("command", ["status", "data list"])
def test_tables_fit_80_columns(mine, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(command.split()) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["12_1"], ["first of 12_1", "last of 12_1"]),
        (["12", "--lines", "1"], ["last of 12_0", "last of 12_1"]),
        ([BANANA[0].key[:10]], ["first of 12_0", "last of 12_0"]),
        (["banana", "seed=1"], ["first of 12_1", "last of 12_1"]),
        (["13"], ["(no log: the job has not started, or never did)"]),
    ],
)
def test_whose_log(mine, capsys, words, expected):
    assert main(["logs", *words]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not line.startswith("==")] == expected


def test_jobs_are_listed_and_a_cell_may_have_none(mine, capsys):
    assert main(["logs"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("job")] == [
        "job 12_0: seeds=[0]", "job 12_1: seeds=[1]", "job 13: seeds=[2]",
    ]  # fmt: skip
    assert main(["logs", "seed=3"]) == 0
    assert "no job" in capsys.readouterr().out


STATES = {
    "12_0": SlurmState("RUNNING", "node1"),
    "12_1": SlurmState("PENDING", reason="PartitionConfig"),
    "13": SlurmState("COMPLETED", "node1"),
    "14": SlurmState("PENDING", reason="Priority"),
}


def _process(root: Path, pid: int, where: str) -> None:
    (root / "running").mkdir(exist_ok=True)
    about = {"host": "h", "pid": pid, "machine": where}
    (root / "running" / f"h-{pid}.json").write_text(json.dumps(about))


@pytest.fixture
def cancelled(here, monkeypatch):
    """What is cancelled of two tasks of ours, a job that has ended, one of another user, a process here and one
    elsewhere."""
    root = Path("results")
    for job in STATES:
        write_submission(root / "multirun" / "now" / "jobs" / job, job, "here", [], [f"k{job}"])
    foreign = root / "multirun" / "now" / "jobs" / "14" / SUBMITTED
    foreign.write_text(json.dumps({**json.loads(foreign.read_text()), "user": "somebody-else"}))
    _process(root, os.getppid(), machine())
    _process(root, 777, "elsewhere")
    monkeypatch.setattr(jobs_module, "cluster_info", lambda: ("here", 1001))
    monkeypatch.setattr(jobs_module, "job_states", lambda jobs: {job: STATES[job] for job in jobs})
    stopped: list[str] = []
    monkeypatch.setattr(jobs_module, "ask", lambda *words: stopped.extend(words[2:]))
    monkeypatch.setattr(
        jobs_module.os, "kill", lambda pid, number: stopped.append(f"{pid} {number:d}") if number else 0
    )
    return stopped


OURS = f"{os.getppid()} {signal.SIGTERM:d}"


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        ("--yes", ["12_0", "12_1", OURS], 0),
        ("12 --yes", ["12_0", "12_1"], 0),
        ("12_1 --yes", ["12_1"], 0),
        ("14 --yes", [], 0),
        ("777 --yes", [], 0),
        (f"{os.getppid()} --yes", [OURS], 0),
        ("13 --yes", [], 2),  # it has ended
        ("12", [], 2),  # nobody can be asked
    ],
)
def test_only_what_is_ours_and_named_is_cancelled(cancelled, capsys, words, expected, code):
    assert main(["cancel", *words.split()]) == code
    assert cancelled == expected
    said = capsys.readouterr().out
    if words == "--yes":
        assert "job 14 of somebody-else: pending (Priority)" in said
        assert "h pid 777" in said
        assert "job 12_1: can't start (PartitionConfig)" in said


def test_nothing_to_cancel(tmp_path, capsys):
    assert main(["cancel", "--results", str(tmp_path)]) == 0
    assert str(tmp_path) in capsys.readouterr().out


@pytest.fixture
def root(tmp_path):
    """`one` asked for all of banana and thyroid, `two` for the first two seeds of banana."""
    store = Store(tmp_path)
    ask(tmp_path, "one", [*BANANA, *THYROID])
    ask(tmp_path, "two", BANANA[:2])
    for cell in (*BANANA[:3], *THYROID):
        store.write(*made_up.plausible(cell))
    store.write(made_up.failed(BANANA[3], "no reason"))
    for dataset in ("banana", "thyroid"):
        check_same_data(tmp_path, dataset, "abc")
    for cells in (BANANA[1:3], BANANA[2:3]):  # one batch with a shared cell, one without
        checkpoint.save(checkpoint.path_of(store, tuple(cells)), checkpoint.Checkpoint(tuple(cells), [0]), {})
    return tmp_path


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_others_share_stays(root, capsys):
    collect_packed(str(root), str(root / "records.parquet"))
    before = _files(root)
    assert main(["clean", "one", "--results", str(root), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "one: 4 cells" in said
    assert "\n2 cells that other experiments asked for too" in said
    assert "4 records in packs" in said
    after = _files(root)
    assert after.items() <= before.items()
    gone = before.keys() - after.keys()
    keys = {cell.key for cell in (*BANANA[2:], *THYROID)}
    assert {name.split("/")[0] for name in gone} == {"records", "one", "data", "checkpoints"}
    assert {Path(name).name[:20] for name in gone if name.startswith("records/")} == keys
    assert not any(Path(name).name[:20] in keys for name in after if name.startswith("records/"))
    assert "data/thyroid.json" in gone, "another table may have that name now"
    assert "data/banana.json" in after
    assert [name for name in after if name.startswith("checkpoints")] == [
        str(checkpoint.path_of(Store(root), tuple(BANANA[1:3])).relative_to(root))
    ]
    assert not (root / "one").exists()
    assert not (root / "records" / "thyroid").exists()
    assert main(["clean", "two", "--results", str(root), "--yes"]) == 0
    assert {name.split("/")[0] for name in _files(root)} <= {"checkpoints", "records.parquet"}


@given(first=st.sets(st.integers(0, 3)), second=st.sets(st.integers(0, 3)))
def test_exactly_the_cells_of_no_other_experiment_go(tmp_path_factory, first, second):
    root = tmp_path_factory.mktemp("results")
    ask(root, "first", [BANANA[i] for i in first])
    ask(root, "second", [BANANA[i] for i in second])
    assert removal(root, "first").keys == {BANANA[i].key for i in first - second}
    assert removal(root, "first").shared == len(first & second)


def test_an_experiment_in_training_is_refused(root, capsys):
    before = _files(root)
    with Leases(root, print) as mine:
        mine.take([BANANA[3].key])
        assert main(["clean", "one", "--results", str(root), "--yes"]) == 2
        assert "dlmexp cancel --results " in capsys.readouterr().err
        assert main(["clean", "two", "--results", str(root), "--yes"]) == 0, "none of its cells is in training"
    assert before.keys() - _files(root).keys() == {name for name in before if name.startswith("two/")}


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("", False)])
def test_the_question(root, monkeypatch, answer, deleted):
    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return answer

    (root / "checkpoints" / "damaged.npz").write_bytes(b"not a checkpoint")
    before = _files(root)
    monkeypatch.setattr(folder.sys, "stdin", Terminal())
    assert main(["clean", "one", "--results", str(root)]) == 0
    assert (root / "one").exists() != deleted
    assert deleted or _files(root) == before


def test_errors_of_the_file_system_and_interrupts_are_one_line(mine, monkeypatch, capsys):
    for error, code, said in (
        (PermissionError(13, "Permission denied", "there/it"), 2, "there/it: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(manage, "results_folder", fail)
        monkeypatch.setattr(signal, "signal", lambda *_: None)  # it would ignore Ctrl-C from now on
        assert main(["status"]) == code
        err = capsys.readouterr().err
        assert err.startswith(f"dlmexp: {said}")
        assert err.count("\n") == 1
