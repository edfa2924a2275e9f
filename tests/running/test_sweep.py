"""From a composed config to a sweep: what is refused, left out, and counted as done."""

from dataclasses import replace

import numpy as np
import pytest

from dlmexp import catalogue
from dlmexp.data.spec import as_spec
from dlmexp.data.splits import split
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose, parts
from dlmexp.records.store import Store
from dlmexp.running.run import execute
from dlmexp.running.sweep import plan_sweep, prepare_sweep, prepared_splits


def test_stand_ins_run_on_request_under_their_own_names(data_root):
    words = ["experiment=reg-log", "dataset=sarcos", "seeds=[0]", "sizes=[50]", f"data_root={data_root}"]
    with pytest.raises(UserError, match="stand_ins=true"):
        prepare_sweep(compose(words))
    found = prepare_sweep(compose([*words, "stand_ins=true"]))
    assert {cell.dataset for cell in found.cells} == {"sarcos_test"}
    assert found.missing[0].endswith("(sarcos_test stands in)")


@pytest.mark.parametrize("name", ["records", "data", "a/b", "..", ""])
def test_names_that_would_get_in_the_way(tiny, name):
    with pytest.raises(UserError, match="name="):
        prepare_sweep(compose([*tiny, f"name='{name}'"]))


@pytest.mark.slow
def test_unsound_records_count_as_missing(here, tiny):
    cfg = compose(tiny)
    assert execute(cfg) == 0
    store, found = Store("results"), prepare_sweep(cfg)
    assert plan_sweep(found, store, "cpu", None)[0].pending == 0
    victim = store.path("ringnorm_drawn", found.cells[0].key)
    victim.write_text(victim.read_text().replace('"error"', '"eror"'))
    assert plan_sweep(found, store, "cpu", None)[0].pending == 1


def _parts(*parts: list[str]) -> str:
    return f"parts=[{','.join(str(part) for part in parts)}]"


def test_parts_of_one_dataset_have_their_own_splits():
    """Two limits of test rows, or two kinds of split, under one name: each cell gets the split of its key."""
    drawn = ["dataset=ringnorm_drawn", "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"]
    own = [f"dataset.ringnorm_drawn.{word}" for word in ("test_cap=50", "test_cap=200", "split=regression")]
    found = prepare_sweep(compose([_parts(*([*drawn, word] for word in own))]))
    prepared = prepared_splits(found)
    rows = {cell.split: len(prepared(cell).y_test) for cell in found.cells}
    (data,) = found.loaded.values()
    quarter = len(split(len(data.y), "regression", 0).test)
    assert rows == {"counts-50-v1": 50, "counts-200-v1": 200, "regression-v1": quarter}


def test_two_tables_under_one_name_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    own = []
    for name in ("first", "second"):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(60, 3)), delimiter=",", header="a,b,y", comments="")
        words = [
            "dataset=csv",
            f"csv.path={tmp_path / name}.csv",
            "csv.target=y",
            "csv.task=regression",
            "csv.name=both",
        ]
        own.append([*words, "method=[elbo]", "seeds=[0]", "sizes=[20]", "M=5"])
    with pytest.raises(UserError, match="'both'"):
        prepare_sweep(compose([_parts(*own)]))
    own[1][4] = "csv.name=other"
    assert {cell.dataset for cell in prepare_sweep(compose([_parts(*own)])).cells} == {"both", "other"}


@pytest.mark.parametrize(
    "experiment", sorted(name for name, one in catalogue.entries("experiment").items() if "parts" in one)
)
def test_no_experiment_of_ours_has_two_contents_or_splits_under_one_name(experiment):
    """So no published record was made with the split of another part."""
    made = {}
    for part in parts(compose([f"experiment={experiment}"])):
        for dataset in part.dataset.values():
            made.setdefault(dataset.name, set()).add(
                repr(replace(as_spec(dataset), M=None, sizes=(), validation="all"))
            )
    assert {name: len(several) for name, several in made.items()} == dict.fromkeys(made, 1)
