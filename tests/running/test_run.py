"""From a composed config to a plan: what is refused, left out, counted."""

import pytest

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running.run import device_of, execute, planned, stand_in, work, writable


def test_plan_says_what_there_is_and_writes_nothing(here, tiny, capsys):
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"])) == 0
    said = capsys.readouterr().out
    assert "18 cells: 0 done, 0 failed, 18 to run in 6 batches" in said
    assert list(here.iterdir()) == []


def test_plan_after_a_run(here, tiny, capsys):
    assert execute(compose(tiny)) == 0
    capsys.readouterr()
    assert execute(compose([*tiny, "plan=true"])) == 0
    assert "18 cells: 18 done, 0 failed, 0 to run in 0 batches" in capsys.readouterr().out


def test_missing_data_is_left_out_with_a_stand_in(tmp_path, tiny):
    words = [word for word in tiny if not word.startswith("dataset=")]
    found = work(compose([*words, "dataset=[ringnorm_drawn,ringnorm]", f"data_root={tmp_path}"]))
    assert len(found.cells) == 18
    (sentence,) = found.missing
    assert "dataset 'ringnorm' is missing" in sentence
    assert "ringnorm_drawn can stand in: dataset=ringnorm_drawn" in sentence


def test_the_experiment_made_for_a_stand_in_is_named(data_root):
    assert "experiment=reg-log-sarcos_test" in stand_in("sarcos", "reg-log", data_root)
    assert stand_in("banana", "class-log", data_root) == ""


def test_nothing_can_be_run(tmp_path):
    with pytest.raises(UserError, match="nothing can be run: dataset 'banana' is missing"):
        work(compose(["dataset=banana", f"data_root={tmp_path}"]))


@pytest.mark.parametrize("name", ["records", "data", "a/b", "..", ""])
def test_names_that_would_get_in_the_way(tiny, name):
    with pytest.raises(UserError, match="name="):
        work(compose([*tiny, f"name='{name}'"]))


def test_no_dataset():
    with pytest.raises(UserError, match=r"dataset=\[\]: the grid is empty"):
        work(compose(["dataset=[]"]))


def test_unsound_records_count_as_missing(here, tiny):
    cfg = compose(tiny)
    assert execute(cfg) == 0
    store, found = Store("results"), work(cfg)
    assert planned(found, store, "cpu", None).pending == 0
    victim = store.path("ringnorm_drawn", found.cells[0].key)
    victim.write_text(victim.read_text().replace('"error"', '"eror"'))
    assert planned(found, store, "cpu", None).pending == 1


def test_device():
    assert device_of(compose(["dataset=banana", "device=cpu"])) == ("cpu", None)


def test_writable(tmp_path):
    writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't write there"):
        writable(tmp_path / "file")
