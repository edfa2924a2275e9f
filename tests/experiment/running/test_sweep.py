"""The cells of a config, their data, and the batches that have to be trained."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.common.catalogue import stand_ins
from dlmexp.common.errors import UserError
from dlmexp.data.splits import split
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import sweep as module
from dlmexp.experiment.running.process import select_target
from dlmexp.experiment.running.sweep import Sweep, make_split_preparer, plan_sweep, prepare_sweep
from tests.support.cells import PLAIN, scored

pytestmark = pytest.mark.slow
CPU = select_target("cpu", "float64")
DRAWN = ["dataset=ringnorm_drawn", "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"]


def sweep_of(*words):
    return prepare_sweep(compose(expand_shorthand(words)))


def table(path, rows):
    """Return the words for a table of random numbers."""
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    np.savetxt(path, values, delimiter=",", header="a,b,y", comments="")
    return [
        "dataset=csv",
        f"csv.path={path}",
        "csv.target=y",
        "csv.task=regression",
        "method=[elbo]",
        "seeds=[0]",
    ]


def parts(*words: list[str]) -> str:
    return f"parts=[{','.join(str(part) for part in words)}]"


def test_two_tables_under_one_name_are_refused(tmp_path):
    first = [*table(tmp_path / "first.csv", 60), "csv.name=both"]
    second = [*table(tmp_path / "second.csv", 90), "csv.name=both"]
    with pytest.raises(UserError, match="'both'"):
        sweep_of(parts(first, second))


def test_two_tables_under_two_names_are_two_datasets(tmp_path):
    first = [*table(tmp_path / "first.csv", 60), "csv.name=first"]
    second = [*table(tmp_path / "second.csv", 90), "csv.name=second"]
    sweep = sweep_of(parts(first, second))
    assert {cell.dataset for cell in sweep.cells} == {"first", "second"}


def test_empty_grid_is_refused():
    with pytest.raises(UserError, match="the grid is empty"):
        sweep_of("dataset=[]")


def test_missing_table_is_an_error_even_if_other_data_are_there(tmp_path):
    words = [*table(tmp_path / "table.csv", 60), "csv.name=mine"]
    (tmp_path / "table.csv").unlink()
    with pytest.raises(UserError, match=r"table\.csv"):
        sweep_of(parts(DRAWN, words))


def test_parts_of_one_dataset_have_their_own_splits():
    """Two limits of test rows, or two kinds of split, under one name."""
    changes = ("test_cap=50", "test_cap=200", "split=regression")
    sweep = sweep_of(parts(*([*DRAWN, f"dataset.ringnorm_drawn.{word}"] for word in changes)))
    prepared = make_split_preparer(sweep)
    rows = {cell.split: len(prepared(cell).y_test) for cell in sweep.cells}
    (_, data), *_ = sweep.datasets.values()
    quarter = len(split(len(data.y), "regression", 0).test)
    assert rows == {"counts-50-v1": 50, "counts-200-v1": 200, "regression-v1": quarter}


def test_dataset_of_two_parts_is_loaded_once():
    words = [*DRAWN, "dataset.ringnorm_drawn.test_cap=50"]
    sweep = sweep_of(parts(DRAWN, words))
    (_, first), (_, second) = sweep.datasets.values()
    assert first is second


@pytest.mark.parametrize(("limit", "times"), [(1e8, 1), (1.0, 2)])
def test_splits_of_small_datasets_are_cached(monkeypatch, limit, times):
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", limit)
    calls = []
    monkeypatch.setattr(module, "prepare", lambda *call: calls.append(call))
    sweep = sweep_of(*DRAWN)
    prepared = make_split_preparer(sweep)
    prepared(sweep.cells[0])
    prepared(sweep.cells[0])
    assert len(calls) == times


@pytest.fixture
def only_stand_ins(monkeypatch):
    """A machine without the paper's files of sarcos, but with those of its stand-in."""
    load = module.load

    def load_others(dataset, root):
        if dataset.name in ("sarcos", "pol"):
            raise UserError(f"dataset '{dataset.name}' is missing")
        return load(dataset, root)

    monkeypatch.setattr(module, "load", load_others)
    monkeypatch.setattr(
        module, "stand_ins", lambda name: {"sarcos": ["twonorm_drawn"]}.get(name, [])
    )
    monkeypatch.setattr(module, "find_files", lambda spec, root: SimpleNamespace(state="ready"))


REGRESSION = ["method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"]


def test_missing_dataset_names_its_stand_in(only_stand_ins):
    with pytest.raises(UserError) as error:
        sweep_of("dataset=sarcos", *REGRESSION)
    assert str(error.value) == (
        "nothing can be run: dataset 'sarcos' is missing "
        "(twonorm_drawn can stand in: stand_ins=true)"
    )


def test_missing_dataset_is_left_out_if_others_are_there(only_stand_ins):
    sweep = sweep_of("dataset=[pol,ringnorm_drawn]", *REGRESSION)
    assert {cell.dataset for cell in sweep.cells} == {"ringnorm_drawn"}
    assert sweep.notes[-1] == "left out: dataset 'pol' is missing"


def test_stand_in_runs_on_request_under_its_own_name(only_stand_ins):
    sweep = sweep_of("dataset=[sarcos,ringnorm_drawn]", "stand_ins=true", *REGRESSION)
    names = [name for name, _ in sweep.datasets]
    assert names == ["ringnorm_drawn", "twonorm_drawn"], "it comes after what was requested"
    assert sweep.notes[-1] == ("left out: dataset 'sarcos' is missing (twonorm_drawn stands in)")


def test_published_stand_in_has_real_data(data_root):
    words = ["experiment=reg-log", "dataset=sarcos", "seeds=[0]", "sizes=[50]"]
    sweep = sweep_of(*words, f"data_root={data_root}", "stand_ins=true")
    assert {cell.dataset for cell in sweep.cells} == {"sarcos_test"}


def test_one_direction_of_pedestrians_stands_in_for_all():
    assert stand_ins("peds1_dir0") == ["peds1_left"]


BASE = replace(PLAIN, variant="joint", objective="elbo", base=None, beta=1.0)
CHILD = replace(PLAIN, base=BASE.key)
OTHER = replace(BASE, seed=5)


def plan(root, cells=(BASE, CHILD, OTHER), **settings):
    cfg: Any = SimpleNamespace(retry_failed=False, rerun=None, batch_cells=1, **settings)
    sweep = Sweep(cfg, by_key={cell.key: cell for cell in cells})
    return plan_sweep(sweep, Store(root), CPU)


def write(root, cell, status: Any = "done", arrays=None):
    Store(root).write(scored(cell, status), arrays)


HYPERPARAMETERS = {"Z": np.zeros((2, 2)), "noise": np.ones(1)}


def planned(result):
    return {cell.key for batch in result.batches for cell in batch}


def test_cells_with_a_record_are_not_trained(tmp_path):
    write(tmp_path, BASE, arrays=HYPERPARAMETERS)
    write(tmp_path, OTHER, "failed")
    result = plan(tmp_path)
    assert planned(result) == {CHILD.key}
    assert (result.done, result.failed) == ({BASE.key}, {OTHER.key})
    assert result.retrained == frozenset()


def test_failed_cells_are_trained_again_on_request(tmp_path):
    write(tmp_path, OTHER, "failed")
    cfg: Any = SimpleNamespace(retry_failed=True, rerun=None, batch_cells=1)
    sweep = Sweep(cfg, by_key={OTHER.key: OTHER})
    assert planned(plan_sweep(sweep, Store(tmp_path), CPU)) == {OTHER.key}


def test_base_fit_without_hyperparameters_is_trained_again_for_a_pending_cell(tmp_path):
    write(tmp_path, BASE)
    result = plan(tmp_path)
    assert planned(result) == {BASE.key, CHILD.key, OTHER.key}
    assert result.retrained == frozenset([BASE])
    assert result.done == set()


def test_base_fit_is_not_trained_again_if_nothing_starts_from_it(tmp_path):
    write(tmp_path, BASE)
    write(tmp_path, CHILD)
    result = plan(tmp_path)
    assert planned(result) == {OTHER.key}
    assert result.done == {BASE.key, CHILD.key}


def test_base_fit_is_not_trained_again_for_a_failed_cell(tmp_path):
    write(tmp_path, BASE)
    write(tmp_path, CHILD, "failed")
    result = plan(tmp_path)
    assert planned(result) == {OTHER.key}
    assert result.done == {BASE.key}


def test_a_run_with_nothing_to_do_reads_each_record_once(tmp_path, monkeypatch):
    cells = (BASE, CHILD, OTHER)
    for cell in cells:
        write(tmp_path, cell, arrays=HYPERPARAMETERS)
    store = Store(tmp_path)
    read: list[str] = []
    original = store.read
    monkeypatch.setattr(store, "read", lambda path: read.append(path.name) or original(path))
    cfg: Any = SimpleNamespace(retry_failed=False, rerun=None, batch_cells=1)
    plan_sweep(Sweep(cfg, by_key={cell.key: cell for cell in cells}), store, CPU)
    assert len(store.cells({cell.key for cell in cells})) == 3
    assert sorted(read) == sorted(f"{cell.key}.json" for cell in cells)


def test_cell_with_a_torn_record_is_trained_again(tmp_path):
    write(tmp_path, OTHER)
    Store(tmp_path).path(OTHER.dataset, OTHER.key).write_text("torn")
    result = plan(tmp_path)
    assert OTHER.key in planned(result)
    assert len(list((tmp_path / "quarantine").glob("*.why"))) == 1


def test_records_of_other_runs_are_not_counted(tmp_path):
    write(tmp_path, replace(OTHER, seed=6))
    write(tmp_path, replace(OTHER, seed=7), "failed")
    result = plan(tmp_path)
    assert (result.done, result.failed) == (set(), set())
