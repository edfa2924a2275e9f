"""What was asked for, that its data stays what it was, and which models stay for it."""

import hashlib
import json
import shutil

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cluster.status import read_status
from dlmexp.errors import UserError
from dlmexp.plan.cell import Setting
from dlmexp.records.results import drop_unselected
from dlmexp.records.store import Manifest, Store, check_same_data, read_manifests, write_manifest
from tests.support.cells import PLAIN, candidates, scored

CELLS = [replace(PLAIN, seed=seed) for seed in range(3)]
ASKED = [candidates("fixed_log_dlm", [cell, replace(cell, beta=2.0)]) for cell in CELLS]


def test_a_setting_is_written_as_data(tmp_path):
    changed = Setting("released", {"training.lr": 0.01, "beta.values": [1.0, 0.1], "M": None}, "nll")
    write_manifest(tmp_path, Manifest("one", [candidates("fixed_log_dlm", CELLS, changed, "curve")]))
    ((group,),) = (read.candidates for read in read_manifests(tmp_path))
    assert (group.setting, group.role, group.experiment) == (changed, "curve", "test")
    assert group.setting.text == "training.lr=0.01, beta.values=[1,0.1], M=null"


def test_what_was_asked_for_adds_up_over_runs(tmp_path):
    for name, some in (("one", ASKED[:2]), ("one", [*ASKED[:2], *ASKED[:2]]), ("one", ASKED[1:]), ("two", ASKED[:1])):
        write_manifest(tmp_path, Manifest(name, some))
    assert len(list((tmp_path / "one" / "cells").iterdir())) == 2
    assert sorted(len(each.candidates) for each in read_manifests(tmp_path)) == [1, 2, 2]
    counts = {each["name"]: each["missing"] for each in read_status(tmp_path)["experiments"]}
    assert counts == {"one": 6, "two": 2}


def _name(text: bytes) -> str:
    return f"{hashlib.sha256(text).hexdigest()[:16]}.json"


def test_what_is_not_a_manifest_is_skipped_and_a_torn_one_is_written_again(tmp_path):
    write_manifest(tmp_path, Manifest("one", ASKED))
    folder = tmp_path / "one" / "cells"
    (path,) = folder.iterdir()
    (folder / "notes.json").write_bytes(b"\xff caf\xe9\n")
    (folder / "folder.json").mkdir()
    shutil.copy(path, folder / "0123456789abcdef.json")  # not what its name says
    (folder / _name(b'{"of": "others"}')).write_bytes(b'{"of": "others"}')
    assert read_manifests(tmp_path) == [Manifest("one", ASKED)]
    path.write_bytes(path.read_bytes()[:-30])
    assert read_manifests(tmp_path) == []
    write_manifest(tmp_path, Manifest("one", ASKED))
    assert read_manifests(tmp_path) == [Manifest("one", ASKED)]


@pytest.mark.parametrize("experiment", ["../outside", "", "other", "evil"])
def test_a_manifest_names_nothing_outside_the_folder_that_it_lies_in(tmp_path, experiment):
    asked = msgspec.to_builtins(Manifest("evil", ASKED)) | {"experiment": experiment}
    asked["candidates"][0]["dataset"] = "../../victim" if experiment == "evil" else "banana"
    text = json.dumps(asked).encode()
    (tmp_path / "evil" / "cells").mkdir(parents=True)
    (tmp_path / "evil" / "cells" / _name(text)).write_bytes(text)
    assert read_manifests(tmp_path) == []


def test_changed_data_is_refused(tmp_path):
    for name, checksum in (("mine", "a" * 64), ("mine", "a" * 64), ("other", "b" * 64)):
        check_same_data(tmp_path, name, checksum)
    with pytest.raises(UserError, match=f"'mine'.*{'b' * 16}"):
        check_same_data(tmp_path, "mine", "b" * 64)


BETAS = (10.0, 1.0, 0.1)
GRID = [replace(PLAIN, beta=beta) for beta in BETAS]
SCORES = tuple({"nll": nll} for nll in (0.3, 0.1, 0.2))  # beta = 1 is selected
MSE = ({"nll": 1, "mse": 3}, {"nll": 2, "mse": 2}, {"nll": 3, "mse": 1})


@pytest.mark.parametrize(
    ("runs", "scores", "left"),
    [
        ({"selected": GRID}, SCORES, {1.0}),
        ({"selected": GRID}, SCORES[:2], {10.0, 1.0}),  # undecided before all have a record
        ({"selected": GRID}, (*SCORES[:2], {"status": "failed"}), {1.0}),
        ({"selected": GRID}, MSE, {10.0, 0.1}),
        ({"selected": GRID}, ({}, {}, {}), {*BETAS}),  # no validation rows
        ({"selected": GRID, "selected too": [GRID[0], GRID[2]]}, SCORES, {1.0, 0.1}),  # what any run selects
        ({"selected": GRID, "all": GRID}, SCORES, {*BETAS}),
        ({"selected": GRID, "none": GRID}, SCORES, {1.0}),
        ({"none": GRID}, SCORES, {*BETAS}),  # of an earlier run
        ({}, SCORES, {*BETAS}),  # nobody asked for them
    ],
)
def test_which_models_stay(tmp_path, runs, scores, left):
    """What any run of the folder keeps, and what is still undecided."""
    store = Store(tmp_path)
    for name, cells in runs.items():
        write_manifest(tmp_path, Manifest(name, [candidates("fixed_log_dlm", cells)], name.split()[0]))
    for cell, score in zip(GRID, scores, strict=False):
        store.write(scored(cell, **score), model=None if "status" in score else b"a model")
    before = len(store.keys_with_models())
    assert drop_unselected(store) == before - len(left)
    assert store.keys_with_models().keys() == {cell.key for cell in GRID if cell.beta in left}
    assert drop_unselected(store) == 0
