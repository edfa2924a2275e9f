"""From a composed config to a sweep: what is refused, left out, and counted as done."""

import pytest

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running import sweep as module
from dlmexp.running.run import execute
from dlmexp.running.sweep import plan_sweep, prepare_sweep, prepared_splits, stand_in_advice


def test_missing_data_is_left_out_with_a_stand_in(tmp_path, tiny):
    words = [word for word in tiny if not word.startswith("dataset=")]
    found = prepare_sweep(compose([*words, "dataset=[ringnorm_drawn,ringnorm]", f"data_root={tmp_path}"]))
    assert len(found.cells) == 18
    (sentence,) = found.missing
    assert "dataset 'ringnorm' is missing" in sentence
    assert "ringnorm_drawn can stand in: dataset=ringnorm_drawn" in sentence


def test_how_to_run_a_stand_in_is_said(data_root, tmp_path):
    assert stand_in_advice("sarcos", data_root) == " (sarcos_test can stand in: stand_ins=true)"
    assert stand_in_advice("sarcos", tmp_path) == "", "its files are missing too"
    assert stand_in_advice("banana", data_root) == ""


def test_stand_ins_run_on_request_under_their_own_names(data_root):
    words = ["experiment=reg-log", "dataset=sarcos", "seeds=[0]", "sizes=[50]", f"data_root={data_root}"]
    with pytest.raises(UserError, match="stand_ins=true"):
        prepare_sweep(compose(words))
    found = prepare_sweep(compose([*words, "stand_ins=true"]))
    assert {cell.dataset for cell in found.cells} == {"sarcos_test"}
    assert found.missing[0].endswith("(sarcos_test stands in)")


def test_nothing_can_be_run(tmp_path):
    with pytest.raises(UserError, match="nothing can be run: dataset 'banana' is missing"):
        prepare_sweep(compose(["dataset=banana", f"data_root={tmp_path}"]))


@pytest.mark.parametrize("name", ["records", "data", "a/b", "..", ""])
def test_names_that_would_get_in_the_way(tiny, name):
    with pytest.raises(UserError, match="name="):
        prepare_sweep(compose([*tiny, f"name='{name}'"]))


def test_no_dataset():
    with pytest.raises(UserError, match=r"dataset=\[\]: the grid is empty"):
        prepare_sweep(compose(["dataset=[]"]))


@pytest.mark.slow
def test_unsound_records_count_as_missing(here, tiny):
    cfg = compose(tiny)
    assert execute(cfg) == 0
    store, found = Store("results"), prepare_sweep(cfg)
    assert plan_sweep(found, store, "cpu", None).pending == 0
    victim = store.path("ringnorm_drawn", found.cells[0].key)
    victim.write_text(victim.read_text().replace('"error"', '"eror"'))
    assert plan_sweep(found, store, "cpu", None).pending == 1


def test_splits_are_cached_by_the_size_of_their_own_dataset(tiny, monkeypatch):
    """A large dataset beside it does not make a small one slow."""
    words = [word for word in tiny if not word.startswith("dataset=")]
    words += ["dataset=[ringnorm_drawn,airline_like]", "dataset.airline_like.options.rows=420"]
    found = prepare_sweep(compose(words))
    sizes = {name: data.X.nbytes for name, (_, data) in found.datasets.items()}
    monkeypatch.setattr(module, "CACHED_BYTES", sum(sizes.values()) / 2)
    split = prepared_splits(found)
    cells = {cell.dataset: cell for cell in found.cells}
    assert {name: split(cell) is split(cell) for name, cell in cells.items()} == {
        name: size < sum(sizes.values()) / 2 for name, size in sizes.items()
    }
    assert len(set(sizes.values())) == 2
