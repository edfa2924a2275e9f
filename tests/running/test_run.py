"""`dlmexp run` in this process: plans, data, beta grids, processes, and runs that are interrupted."""

import os
import shlex
import signal

import numpy as np
import pytest

from dlmexp.cli import main
from dlmexp.errors import UserError
from dlmexp.plan.batches import Plan
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out
from dlmexp.running import processes
from dlmexp.running import run as module
from dlmexp.running.device import select_target
from dlmexp.running.overview import what_was_read
from dlmexp.running.processes import check_workers, processes_that_pay
from dlmexp.running.progress import Progress
from dlmexp.running.run import execute
from dlmexp.running.signals import BUDGET_SPENT, STOP_SIGNALS, Stop, StopRequest
from dlmexp.running.sweep import prepare_sweep

pytestmark = pytest.mark.slow


def test_a_plan_says_what_there_is_and_writes_nothing(here, tiny, capsys, monkeypatch):
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"])) == 0
    assert "18 cells: 0 done, 0 failed, 18 to run in 6 batches" in capsys.readouterr().out
    assert list(here.iterdir()) == []
    monkeypatch.setattr(module, "is_short", lambda *_: False)
    assert execute(compose([*tiny, "plan=true"])) == 0
    said = capsys.readouterr().out
    assert "18 cells in 3 batches: at most about " in said
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
    assert execute(compose([*tiny, "batch_cells=2"])) == 0
    assert "18 of 18 cells done, 0 failed" in capsys.readouterr().out


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
    before = signal.getsignal(number)
    with StopRequest() as stop:
        signal.raise_signal(number)
        assert stop.received == number
        with pytest.raises(Stop) as raised:
            stop.raise_if_requested()
    assert raised.value.code == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("cores", "batches", "expected"), [(1, 9, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (8, 6, 3), (64, 99, 8)]
)
def test_as_many_processes_as_pay(monkeypatch, cores, batches, expected):
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "is_short", lambda plan: False)
    plan = Plan((), ((),) * batches, frozenset(), frozenset())
    assert processes_that_pay(plan, "cpu", {}) == expected
    assert processes_that_pay(plan, "cuda", {}) == processes_that_pay(plan, "cpu", {"OMP_NUM_THREADS": "2"}) == 1


def test_a_gpu_has_one_process(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_workers(1, "cuda")
    check_workers(8, "cpu")
    with pytest.raises(UserError, match="workers=8"):
        check_workers(8, "cuda")
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
