"""`dlmexp run` in this process: what is planned, read, refused, interrupted, kept, and said at the
end."""

import os
import shlex
import signal

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.catalogue import stand_ins
from dlmexp.common.errors import UserError
from dlmexp.data.dataset import as_spec
from dlmexp.data.splits import split
from dlmexp.experiment.models.file import decoded
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import spelled_out
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import MODEL, Store
from dlmexp.experiment.running import run as module
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.process import (
    BUDGET_SPENT,
    default_worker_count,
    gpus_for,
    select_target,
)
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.run import execute
from dlmexp.experiment.running.summary import print_summary, summarize
from dlmexp.experiment.running.sweep import prepare_sweep, prepared_splits
from tests.support.cells import PLAIN, candidates, scored
from tests.support.processes import comparable

pytestmark = pytest.mark.slow


def _sweep(*words):
    return prepare_sweep(compose(spelled_out(words)))


def test_a_plan_says_what_there_is_and_writes_nothing(here, tiny, capsys, monkeypatch):
    monkeypatch.setattr(Clock, "is_short", lambda *_: False)
    monkeypatch.setattr(module, "HOUR", 0.0)
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"]), [*tiny, "plan=true"]) == 0
    *_, counts, bound, advice = capsys.readouterr().out.splitlines()
    assert counts == "18 cells: 0 done, 0 failed, 18 to run in 6 batches"
    assert bound.startswith("18 cells in 6 batches: at most about ")
    assert advice.endswith(shlex.join(["dlmexp", "run", *tiny, "preset=quick"]))
    assert list(here.iterdir()) == []


def test_an_interrupted_run_ends_with_the_command_that_goes_on(here, tiny, capsys, monkeypatch):
    plain, shown = Progress.finished, []

    def interrupt_after_two(self, record):
        plain(self, record)
        shown.append((self.settled, self.total))
        if len(shown) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Progress, "finished", interrupt_after_two)
    assert execute(compose([*tiny, "batch_cells=2"]), [*tiny, "name=a b"]) == 128 + signal.SIGTERM
    *_, stopped, last = capsys.readouterr().out.splitlines()
    assert stopped == "stopped by SIGTERM; 16 cells to do"
    command = last.removeprefix("everything is saved, continue with: ")
    assert shlex.split(command) == ["dlmexp", "run", *tiny, "name=a b"]
    before = {path: path.stat().st_mtime_ns for path in here.glob("results/records/*/*.json")}
    assert main(["run", *tiny, "budget=0.001s"]) == BUDGET_SPENT
    assert execute(compose([*tiny, "batch_cells=2"])) == 0
    assert shown[-1][0] == shown[-1][1]
    assert "18 of 18 cells done, 0 failed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("cores", "batches", "expected"),
    [(1, 9, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (8, 6, 3), (64, 99, 8)],
)
def test_as_many_processes_as_pay(monkeypatch, cores, batches, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    for given in (False, True):
        monkeypatch.setattr(
            "dlmexp.experiment.running.process.threads_are_set", lambda given=given: given
        )
        assert default_worker_count(batches, "cpu") == (1 if given else expected)
        assert default_worker_count(batches, "cuda") == 1


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


def _own(path, rows):
    """Words for a table of random numbers."""
    np.savetxt(
        path,
        np.random.default_rng(rows).normal(size=(rows, 3)),
        delimiter=",",
        header="a,b,y",
        comments="",
    )
    return [
        "dataset=csv",
        f"csv.path={path}",
        "csv.target=y",
        "csv.task=regression",
        "method=[elbo]",
        "seeds=[0]",
    ]


def _parts(*parts: list[str]) -> str:
    return f"parts=[{','.join(str(part) for part in parts)}]"


def test_two_tables_under_one_name_are_refused(tmp_path):
    first, second = (_own(tmp_path / f"{rows}.csv", rows) for rows in (60, 90))
    with pytest.raises(UserError, match="'both'"):
        _sweep(_parts([*first, "csv.name=both"], [*second, "csv.name=both"]))
    sweep = _sweep(_parts([*first, "csv.name=both"], [*second, "csv.name=other"]))
    assert {cell.dataset for cell in sweep.cells} == {"both", "other"}


def test_parts_of_one_dataset_have_their_own_splits():
    """Two limits of test rows, or two kinds of split, under one name: each cell gets the split of
    its key."""
    drawn = ["dataset=ringnorm_drawn", "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"]
    own = [
        f"dataset.ringnorm_drawn.{word}"
        for word in ("test_cap=50", "test_cap=200", "split=regression")
    ]
    sweep = _sweep(_parts(*([*drawn, word] for word in own)))
    prepared = prepared_splits(sweep)
    rows = {cell.split: len(prepared(cell).y_test) for cell in sweep.cells}
    data, *others = (data for _, data in sweep.datasets.values())
    assert all(other is data for other in others), "read once"
    quarter = len(split(len(data.y), "regression", 0).test)
    assert rows == {"counts-50-v1": 50, "counts-200-v1": 200, "regression-v1": quarter}


def test_stand_ins_run_on_request_under_their_own_names(data_root):
    words = [
        "experiment=reg-log",
        "dataset=sarcos",
        "seeds=[0]",
        "sizes=[50]",
        f"data_root={data_root}",
    ]
    with pytest.raises(UserError, match="stand_ins=true"):
        _sweep(*words)
    sweep = _sweep(*words, "stand_ins=true")
    assert {cell.dataset for cell in sweep.cells} == {"sarcos_test"}
    assert sweep.notes[-1].endswith("(sarcos_test stands in)")
    assert stand_ins("peds1_dir0") == ["peds1_left"], "one direction serves for all"


def _kept(folder: str) -> set[str]:
    """Keys with a sound model, which is that of the record."""
    store = Store(folder)
    files, records = store.keys_with_models(), {record.key: record for record in store.own()}
    for key, paths in files.items():
        written = store.beside(records[key].cell.dataset, key, MODEL, records[key].model)
        assert len(paths) == 1
        assert decoded(written).cell == records[key].cell
    return set(files)


def test_a_record_has_the_spec_that_its_data_was_loaded_by(here, tiny):
    cfg = compose(tiny)
    assert execute(cfg, tiny) == 0
    (spec,) = cfg.dataset.values()
    specs = [record.dataset_spec for record in Store("results").own()]
    assert specs
    assert all(values is not None and as_spec(values) == as_spec(spec) for values in specs)


def test_models_that_are_kept(here, tiny):
    """Models of what is selected, all, or none; also where betas come in runs that know nothing of
    each other."""
    words = [*tiny, "method=[joint_log_dlm]", "beta.values=[10,1]"]
    for keep, expected in (("selected", 2), ("all", 4), ("none", 0)):  # 2 seeds
        assert main(["run", *words, f"results={keep}", f"keep={keep}"]) == 0
        assert len(_kept(keep)) == expected
    assert _kept("selected") == set(ResultsFolder("selected").table["key"])
    assert comparable(here / "selected") == comparable(here / "all") == comparable(here / "none")
    for betas in ("10", "1", "10,1"):
        assert main(["run", *words, "results=apart", f"beta.values=[{betas}]"]) == 0
    assert len(_kept("apart")) == 4, "the earlier runs still keep theirs"


CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (2, 1, 0) for beta in (10.0, 1.0, 0.1)]
CHOSEN = {2: 1.0, 1: 0.1, 0: 10.0}  # each of the grid, none of them a mean or a median


@pytest.mark.parametrize(("there", "code"), [(9, 0), (8, 1)])
def test_the_closing_table(tmp_path, capsys, there, code):
    """Betas in the order of seeds; fits at their limit are counted; the betas of each seed are
    asked for together."""
    store, forever = (
        Store(tmp_path),
        replace(PLAIN, window=None, seed=9),
    )  # it has no limit to stop at
    for cell in (*CELLS[:there], forever):
        record = scored(cell, nll=float(cell.beta != CHOSEN.get(cell.seed, 0.1)), error=0.25)
        record.result.converged = cell.beta == 10.0
        store.write(record)
    groups = [CELLS[:3], CELLS[3:6], CELLS[6:], [forever]]
    summary = summarize([candidates("fixed_log_dlm", group) for group in groups], store)
    print_summary(summary, store)
    assert summary.exit_code == code
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines() if "fixed_log_dlm" in line]
    words = "banana 100 53 fixed_log_dlm 20.0 3 10, 0.1, 1 0.5000±0.0000 0.7500±0.0000"
    assert (words.split() in lines) == (code == 0)
    assert f"{there + 1} of 10 cells done, 0 failed" in said
    assert ("1 without a record" in said) == (code == 1)
    assert f"{6 if there == 9 else 5} of {there} fits stopped at the limit" in said
