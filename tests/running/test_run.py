"""`dlmexp run` in this process: what is planned, read, refused, interrupted, kept, and said at the end."""

import json
import os
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.data.splits import split
from dlmexp.errors import UserError
from dlmexp.models.file import decoded
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out
from dlmexp.records.results import load
from dlmexp.records.store import Store
from dlmexp.running import processes
from dlmexp.running import run as module
from dlmexp.running.device import select_target
from dlmexp.running.processes import gpus_for, processes_that_pay
from dlmexp.running.progress import Progress
from dlmexp.running.run import execute
from dlmexp.running.signals import BUDGET_SPENT, STOP_SIGNALS, Stop, StopRequest
from dlmexp.running.sweep import prepare_sweep, prepared_splits
from dlmexp.running.tables import summary, what_was_read
from tests.support.cells import PLAIN, candidates, scored
from tests.support.processes import comparable

pytestmark = pytest.mark.slow


def test_a_plan_says_what_there_is_and_writes_nothing(here, tiny, capsys, monkeypatch):
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"])) == 0
    assert "18 cells: 0 done, 0 failed, 18 to run in 6 batches" in capsys.readouterr().out
    monkeypatch.setattr(module, "is_short", lambda *_: False)
    monkeypatch.setattr(module, "HOUR", 0.0)
    assert execute(compose([*tiny, "plan=true"]), [*tiny, "plan=true"]) == 0
    bound, advice = capsys.readouterr().out.splitlines()[-2:]
    assert bound.startswith("18 cells in 3 batches: at most about ")
    assert advice.endswith(shlex.join(["dlmexp", "run", *tiny, "preset=quick"]))
    assert list(here.iterdir()) == []
    assert execute(compose(tiny)) == 0
    said = capsys.readouterr().out
    assert "at most about " in said
    assert "\n18 cells in " in said, "what it took"
    assert execute(compose([*tiny, "plan=true"])) == 0
    assert "18 cells: 18 done, 0 failed, 0 to run in 0 batches" in capsys.readouterr().out


def test_an_interrupted_run_ends_with_the_command_that_goes_on(here, tiny, capsys, monkeypatch):
    plain, finished = Progress.finished, []

    def interrupt_after_two(self, record):
        plain(self, record)
        finished.append(record)
        if len(finished) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "finished", interrupt_after_two)
        assert execute(compose([*tiny, "batch_cells=2"]), [*tiny, "name=a b"]) == 128 + signal.SIGTERM
    *_, stopped, last = capsys.readouterr().out.splitlines()
    assert stopped == "stopped by SIGTERM; 16 cells to do"
    command = last.removeprefix("everything is saved, continue with: ")
    assert shlex.split(command) == ["dlmexp", "run", *tiny, "name=a b"]
    before = {path: path.stat().st_mtime_ns for path in here.glob("results/records/*/*.json")}
    assert execute(compose([*tiny, "batch_cells=2"])) == 0
    assert "18 of 18 cells done, 0 failed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_cells_of_a_checkpoint_count_also_where_one_of_them_is_asked_for(here, tiny, monkeypatch):
    words, shown, finished = [*tiny, "method=[elbo]"], [], Progress.finished

    def noting(self, record):
        finished(self, record)
        shown.append((self.settled, self.total))

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "tick", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert execute(compose(words)) == 128 + signal.SIGTERM
    monkeypatch.setattr(Progress, "finished", noting)
    assert execute(compose([*words, "seeds=[0]"])) == 0
    assert shown == [(1, 2), (2, 2)]


def test_a_spent_budget_is_an_exit_code_of_its_own(here, tiny):
    assert main(["run", *tiny, "budget=0.001s"]) == BUDGET_SPENT


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_is_noted_and_raised_later(number):
    before = signal.signal(number, signal.SIG_DFL)  # a shell may have it ignored
    try:
        with StopRequest() as request:
            signal.raise_signal(number)
            with pytest.raises(Stop) as raised:
                request.raise_if_requested()
        assert raised.value.code == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("damage", ["truncated", "foreign", "edited"])
def test_a_damaged_record_is_quarantined_and_redone(here, tiny, damage):
    words = [*tiny, "method=[elbo]"]
    assert execute(compose(words)) == 0
    expected = comparable(Path("results"))
    victim, other = sorted(here.glob("results/records/*/*.json"))
    record = json.loads(victim.read_bytes())
    record["result"]["test"]["nll"] = 0.0
    spoilt = {
        "truncated": victim.read_bytes()[:500],
        "foreign": other.read_bytes(),
        "edited": json.dumps(record).encode(),
    }
    victim.write_bytes(spoilt[damage])
    assert execute(compose(words)) == 0
    assert [path.read_bytes() for path in here.glob("results/quarantine/*.json")] == [spoilt[damage]]
    redone = comparable(Path("results"))
    assert redone.keys() == expected.keys()
    assert redone[victim.stem][2].test == pytest.approx(expected[victim.stem][2].test, rel=1e-9)


@pytest.mark.parametrize(
    ("cores", "batches", "expected"), [(1, 9, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (8, 6, 3), (64, 99, 8)]
)
def test_as_many_processes_as_pay(monkeypatch, cores, batches, expected):
    monkeypatch.setattr(processes, "cores", lambda: cores)
    for given in (False, True):
        monkeypatch.setattr(processes, "threads_given", lambda given=given: given)
        assert processes_that_pay(batches, "cpu") == (1 if given else expected)
        assert processes_that_pay(batches, "cuda") == 1


def test_a_gpu_has_one_process(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert (gpus_for(8, "cpu"), gpus_for(2, "cuda")) == ([], ["4", "7"])
    with pytest.raises(UserError, match="workers=8"):
        gpus_for(8, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert select_target("auto", "float32").device.type == "cpu"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(UserError, match=device):
            select_target(device, "float64")


def test_what_is_read_of_an_own_table_is_said(tmp_path):
    for name, rows in (("some", 600), ("others", 50)):
        rng = np.random.default_rng(rows)
        values = np.column_stack([rng.normal(size=(rows, 2)), np.arange(rows) // 30, rng.normal(size=rows)])
        np.savetxt(tmp_path / f"{name}.csv", values, delimiter=",", header="a,b,house,y", comments="")

    def said(*words):
        own = ["dataset=csv", f"csv.path={tmp_path}/some.csv", "csv.target=y", "csv.task=regression", "method=[elbo]"]
        return what_was_read(prepare_sweep(compose(spelled_out([*own, *words]))))

    first, _, divided = said("csv.split=group", "csv.by=house")
    assert "600 rows of some.csv, 2 features" in first
    assert "by group (house): 402 rows for training, 48 for validation, 120 for testing" in divided
    first, _, divided = said(f"csv.test={tmp_path}/others.csv")
    assert "600 rows of some.csv and 50 of others.csv, 3 features" in first
    assert "536 rows for training, 64 for validation, 50 for testing" in divided


def test_stand_ins_run_on_request_under_their_own_names(data_root):
    words = ["experiment=reg-log", "dataset=sarcos", "seeds=[0]", "sizes=[50]", f"data_root={data_root}"]
    with pytest.raises(UserError, match="stand_ins=true"):
        prepare_sweep(compose(words))
    sweep = prepare_sweep(compose([*words, "stand_ins=true"]))
    assert {cell.dataset for cell in sweep.cells} == {"sarcos_test"}
    assert sweep.missing[0].endswith("(sarcos_test stands in)")


@pytest.mark.parametrize("name", ["records", "a/b", "..", ""])
def test_names_that_would_get_in_the_way(tiny, name):
    with pytest.raises(UserError, match="name="):
        prepare_sweep(compose([*tiny, f"name='{name}'"]))


def _parts(*parts: list[str]) -> str:
    return f"parts=[{','.join(str(part) for part in parts)}]"


def test_parts_of_one_dataset_have_their_own_splits():
    """Two limits of test rows, or two kinds of split, under one name: each cell gets the split of its key."""
    drawn = ["dataset=ringnorm_drawn", "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"]
    own = [f"dataset.ringnorm_drawn.{word}" for word in ("test_cap=50", "test_cap=200", "split=regression")]
    sweep = prepare_sweep(compose([_parts(*([*drawn, word] for word in own))]))
    prepared = prepared_splits(sweep)
    rows = {cell.split: len(prepared(cell).y_test) for cell in sweep.cells}
    data, *others = (data for _, data in sweep.datasets.values())
    assert all(other is data for other in others), "read once"
    quarter = len(split(len(data.y), "regression", 0).test)
    assert rows == {"counts-50-v1": 50, "counts-200-v1": 200, "regression-v1": quarter}


def test_two_tables_under_one_name_are_refused(tmp_path):
    rng, own = np.random.default_rng(0), []
    for name in ("first", "second"):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(60, 3)), delimiter=",", header="a,b,y", comments="")
        words = ["dataset=csv", f"csv.path={tmp_path / name}.csv", "csv.target=y", "csv.task=regression"]
        own.append([*words, "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5", "csv.name=both"])
    with pytest.raises(UserError, match="'both'"):
        prepare_sweep(compose([_parts(*own)]))
    own[1][-1] = "csv.name=other"
    assert {cell.dataset for cell in prepare_sweep(compose([_parts(*own)])).cells} == {"both", "other"}


def _kept(folder: str) -> set[str]:
    """Keys with a sound model, which is that of the record."""
    store = Store(folder)
    files, records = store.keys_with_models(), {record.key: record for record in store.own()}
    for key, paths in files.items():
        written = store.model(records[key].cell.dataset, key, records[key].model)
        assert len(paths) == 1
        assert written is not None
        assert decoded(written).cell == records[key].cell
    return set(files)


def test_models_that_are_kept(here, tiny):
    """Of what is selected, of all, or of none; also where betas come in runs that know nothing of each other."""
    words = [*tiny, "method=[elbo,joint_log_dlm]", "beta.values=[10,1]"]
    for keep, expected in (("selected", 4), ("all", 6), ("none", 0)):  # 2 seeds, 2 methods
        assert main(["run", *words, f"results={keep}", f"keep={keep}"]) == 0
        assert len(_kept(keep)) == expected
    assert _kept("selected") == set(load("selected").table["key"])
    assert comparable(here / "selected") == comparable(here / "all") == comparable(here / "none")
    for betas in ("10", "1", "10,1"):
        assert main(["run", *tiny, "method=[joint_log_dlm]", "results=apart", f"beta.values=[{betas}]"]) == 0
    assert len(_kept("apart")) == 4, "the earlier runs still keep theirs"


CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (0, 1) for beta in (1.0, 0.1)]


def _said(tmp_path, capsys, records, cells=CELLS):
    """Exit code and words of the closing summary; the betas of each seed are asked for together."""
    store, groups = Store(tmp_path), {}
    for record in records:
        store.write(record)
    for cell in cells:
        groups.setdefault(replace(cell, beta=None).key, []).append(cell)
    return summary([candidates("fixed_log_dlm", group) for group in groups.values()], store), capsys.readouterr().out


def test_the_closing_table(tmp_path, capsys):
    code, said = _said(tmp_path, capsys, [scored(cell, nll=cell.beta or 0.0, error=0.25) for cell in CELLS])
    assert code == 0
    assert "4 of 4 cells done, 0 failed" in said
    (line,) = [line for line in said.splitlines() if "fixed_log_dlm" in line]
    words = "banana 100 53 fixed_log_dlm bmc-10 whitened 2 0.1 0.6000±0.0000 0.7500±0.0000"
    assert line.split() == words.split()


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["done", "failed", "done", "done"], "3 of 4 cells done, 1 failed;"),
        (["done", "done", "", ""], "2 of 4 cells done, 0 failed, 2 without a record"),
        (["failed"] * 4, "0 of 4 cells done, 4 failed"),
    ],
)
def test_what_is_not_there_is_said(tmp_path, capsys, states, words):
    records = [scored(cell, state) for cell, state in zip(CELLS, states, strict=True) if state]
    code, said = _said(tmp_path, capsys, records)
    assert code == 1
    assert words in said
    assert ("retry_failed=true" in said) == ("failed" in states)


def test_betas_that_differ_between_seeds_are_shown_in_the_order_of_seeds(tmp_path, capsys):
    """Seeds 2, 1, 0 select 1, 0.1, 10: each of the grid, none of them a mean or a median."""
    chosen = {2: 1.0, 1: 0.1, 0: 10.0}
    cells = [replace(PLAIN, seed=seed, beta=beta) for seed in chosen for beta in (10.0, 1.0, 0.1)]
    code, said = _said(tmp_path, capsys, [scored(c, nll=float(c.beta != chosen[c.seed])) for c in cells], cells)
    assert code == 0
    assert " 10, 0.1, 1 " in said


def test_fits_that_stopped_at_their_limit_are_counted(tmp_path, capsys):
    forever = replace(PLAIN, window=None, seed=9)  # no stopping rule: to reach the limit is what was asked for
    records = [scored(cell, nll=0.5) for cell in (*CELLS, forever)]
    for record, converged in zip(records, (False, True, False, False, False), strict=True):
        record.result.converged = converged
    assert "3 of 4 fits stopped at the limit" in _said(tmp_path, capsys, records, [*CELLS, forever])[1]
