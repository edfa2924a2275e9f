"""A pack is a layer of records under a folder's own."""

import io
import shutil
import tarfile

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.records.collect import collect_pack
from dlmexp.records.files import sealed
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import read_results
from dlmexp.records.schema import encoded
from dlmexp.records.store import Store
from tests.support.cells import PLAIN, candidates, scored

CURVE = replace(PLAIN, evaluate="10")
ARRAYS = {"objective": np.linspace(3, 1, 7), "Z": np.arange(6.0).reshape(3, 2), "test_nll": np.array([2.0, 1.0])}


@pytest.fixture
def packed(tmp_path):
    """A folder with a pack and nothing else, made from one with two records."""
    source = Store(tmp_path / "source")
    for cell in (PLAIN, CURVE):
        source.write(scored(cell, nll=0.5), ARRAYS)
    target = tmp_path / "target"
    target.mkdir()
    assert collect_pack(str(source.root), str(target / "records.tar.xz"), light=False) == 2
    return target


def test_packed_records_count_as_the_folders_own(packed):
    store = Store(packed)
    assert store.keys() == ({PLAIN.key, CURVE.key}, set())
    found = store.find(PLAIN.dataset, PLAIN.key)
    assert found is not None
    assert found.result.validation["nll"] == 0.5
    assert {r.key for r in store.all()} == {PLAIN.key, CURVE.key}


def test_the_objective_travels_only_with_learning_curves(packed):
    store = Store(packed)
    arrays = {r.key: store.arrays(r) for r in store.all()}
    assert set(arrays[PLAIN.key]) == {"Z", "test_nll"}
    assert set(arrays[CURVE.key]) == set(ARRAYS)
    assert np.array_equal(arrays[CURVE.key]["objective"], ARRAYS["objective"])


def test_a_light_pack_has_only_what_is_drawn(packed, tmp_path):
    collect_pack(str(packed), str(tmp_path / "records-light.tar.xz"), light=True)
    folder = tmp_path / "light"
    folder.mkdir()
    shutil.move(tmp_path / "records-light.tar.xz", folder)
    store = Store(folder)
    assert [set(store.arrays(r)) for r in store.all()] == [{"test_nll"}] * 2
    assert store.keys() == Store(packed).keys()


def test_the_folders_own_record_wins(packed):
    store = Store(packed)
    store.write(scored(PLAIN, nll=0.25), ARRAYS)
    found = Store(packed).find(PLAIN.dataset, PLAIN.key)
    assert found is not None
    assert found.result.validation["nll"] == 0.25
    assert sum(r.key == PLAIN.key for r in Store(packed).all()) == 1


def test_commands_lose_what_only_concerned_the_machine(tmp_path):
    store = Store(tmp_path)
    made = scored(PLAIN, nll=1.0)
    command = "dlmexp run experiment=x results=/scratch/me budget=3h device=cuda:1"
    store.write(replace(made, made=replace(made.made, command=command)))
    collect_pack(str(tmp_path), str(tmp_path / "records.tar.xz"), light=False)
    (packed,) = Store(tmp_path).packs.records.values()
    assert packed.made.command == "dlmexp run experiment=x"


def test_a_name_that_nobody_would_find_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"records\.tar\.xz"):
        collect_pack(str(tmp_path), str(tmp_path / "mine.tar.xz"), light=False)


def test_a_torn_pack_is_named(packed):
    path = packed / "records.tar.xz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"records\.tar\.xz is damaged .*: copy or download it again"):
        Store(packed).keys()


def test_a_folder_under_a_packs_name_is_no_pack(packed):
    (packed / "records-more.tar.xz").mkdir()
    assert len(list(Store(packed).all())) == 2
    with pytest.raises(UserError, match="is a folder: name a file"):
        collect_pack(str(packed), str(packed / "records-more.tar.xz"), light=False)


def test_sealed_lines_that_are_no_records_are_skipped(tmp_path):
    content = sealed(b'{"key":"k"}') + b"\n" + sealed(b'{"status":"done"}') + b"\n"
    info = tarfile.TarInfo("records.jsonl")
    info.size = len(content)
    with tarfile.open(tmp_path / "records.tar.xz", "w:xz") as tar:
        tar.addfile(info, io.BytesIO(content))
    assert list(Store(tmp_path).all()) == []
    assert Store(tmp_path).keys() == (set(), set())


@pytest.mark.parametrize("results", ["nowhere", "empty"])
def test_nothing_to_pack(tmp_path, results):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"{results}: there are no records"):
        collect_pack(str(tmp_path / results), str(tmp_path / "records.tar.xz"), light=False)
    assert not (tmp_path / "records.tar.xz").exists()


CANDIDATES = [
    candidates("fixed_log_dlm", [replace(PLAIN, seed=seed, beta=beta) for beta in (4.0, 2.0, 1.0)], "4, 2, 1")
    for seed in (0, 1)
]


@pytest.fixture
def asked_for(tmp_path):
    """Records of two experiments: one complete, of the other one cell has failed and one is missing."""
    store = Store(tmp_path / "source")
    for some in CANDIDATES:
        for cell in some.cells:
            store.write(scored(cell, nll=abs((cell.beta or 0.0) - 2.0 + cell.seed)), ARRAYS)
    late = candidates(
        "joint_log_dlm", [replace(PLAIN, variant="joint", base=None, beta=b) for b in (9.0, 8.0, 7.0)], ""
    )
    store.write(scored(late.cells[0], nll=0.5))
    store.write(scored(late.cells[1], "failed"))
    write_manifest(store.root, manifest("one", CANDIDATES))
    write_manifest(store.root, manifest("two", [late]))
    return store.root


def _selected(results):
    return sorted((one.method, one.betas, one.missing, one.failed, chosen.key if (chosen := one.selected()) else None)
                  for one in results.choices)  # fmt: skip


def test_a_light_pack_has_reliability_diagrams_of_what_was_selected(asked_for, tmp_path):
    """And of candidates that can't be selected from yet."""
    store = Store(asked_for)
    for record in list(store.all()):
        if record.done:
            store.write(record, {"reliability_p": np.ones(3), "test_nll": np.ones(2)})
    collect_pack(str(asked_for), str(tmp_path / "target" / "records.tar.xz"), light=True)
    packed = Store(tmp_path / "target")
    arrays = {record.key: set(packed.arrays(record)) for record in packed.all() if record.done}
    selected = {key for *_, key in _selected(read_results(asked_for)) if key is not None}
    complete = {cell.key for some in CANDIDATES for cell in some.cells}
    assert len(selected) == 2
    assert len(complete) == 6
    for key, names in arrays.items():
        assert names == ({"test_nll"} if key in complete - selected else {"test_nll", "reliability_p"})


@pytest.mark.parametrize("light", [False, True])
def test_a_pack_alone_selects_what_the_folder_selects(asked_for, tmp_path, light):
    before = read_results(asked_for)
    target = tmp_path / "target"
    assert collect_pack(str(asked_for), str(target / "records.tar.xz"), light) == 8
    alone = read_results(target)
    assert alone.records.keys() == before.records.keys()
    assert set(alone.asked) == set(before.asked)
    assert alone.unasked == 0
    assert _selected(alone) == _selected(before)
    assert len(_selected(alone)) == 3
    assert sum(key is not None for *_, key in _selected(alone)) == 2, "one grid lacks a candidate"


@pytest.mark.parametrize("light", [False, True])
def test_a_pack_of_a_pack_is_the_same_pack(asked_for, tmp_path, light):
    once, twice = tmp_path / "once" / "records.tar.xz", tmp_path / "twice" / "records.tar.xz"
    collect_pack(str(asked_for), str(once), light)
    collect_pack(str(once.parent), str(twice), light)
    one, two = read_results(once.parent), read_results(twice.parent)
    assert one.records == two.records
    assert set(one.asked) == set(two.asked)


def test_a_run_that_goes_on_from_a_pack_completes_its_grid(asked_for, tmp_path):
    collect_pack(str(asked_for), str(tmp_path / "target" / "records.tar.xz"), light=False)
    lacking = replace(PLAIN, variant="joint", base=None, beta=7.0)
    Store(tmp_path / "target").write(scored(lacking, nll=0.1))
    found = {one.method: one.selected() for one in read_results(tmp_path / "target").choices}
    assert found["joint_log_dlm"] is not None
    assert found["joint_log_dlm"].key == lacking.key


def test_a_pack_still_knows_the_cells_that_are_missing(asked_for, tmp_path):
    collect_pack(str(asked_for), str(tmp_path / "target" / "records.tar.xz"), light=False)
    lacking = replace(PLAIN, variant="joint", base=None, beta=7.0)
    cells = {one.experiment: one.cells for one in Store(tmp_path / "target").packs.manifests}
    assert cells == {"one": {}, "two": {lacking.key: lacking.describe()}}


def _pack(path, **members):
    with tarfile.open(path, "w:xz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{name}.jsonl")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_a_pack_without_manifests_is_read_and_nothing_is_selected(tmp_path):
    """As packs of the first version are."""
    line = sealed(encoded(replace(scored(PLAIN, nll=0.5), format=2)))
    _pack(tmp_path / "records.tar.xz", records=line + b"\n")
    found = read_results(tmp_path)
    assert list(found.records) == [PLAIN.key]
    assert found.unasked == 1
    assert found.choices == []


def test_a_manifest_that_can_not_be_read_is_skipped_with_a_sentence(tmp_path, caplog):
    good = msgspec.json.encode(manifest("one", CANDIDATES))
    line = sealed(encoded(replace(scored(CANDIDATES[0].cells[0], nll=0.5), format=2)))
    _pack(tmp_path / "records.tar.xz", records=line + b"\n", manifests=b'{"experiment":3}\n' + good + b"\n")
    found = read_results(tmp_path)
    assert [(one.method, one.missing) for one in found.choices] == [("fixed_log_dlm", 2)]
    assert "records.tar.xz, manifests.jsonl, line 1: Expected `str`" in caplog.text


def test_a_line_of_a_newer_version_is_skipped_with_a_sentence(tmp_path, caplog):
    lines = [encoded(replace(scored(replace(PLAIN, seed=f), nll=0.5), format=f)) for f in (2, 3)]
    _pack(tmp_path / "records.tar.xz", records=b"".join(sealed(line) + b"\n" for line in lines))
    assert [record.cell.seed for record in Store(tmp_path).all()] == [2]
    assert "records.tar.xz, line 2: it has format 3, from a newer dlmexp" in caplog.text
