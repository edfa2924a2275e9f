"""A pack is a layer of records under a folder's own."""

import io
import shutil
import tarfile

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.records.collect import collect_pack
from dlmexp.records.files import sealed
from dlmexp.records.store import Store
from tests.support.cells import PLAIN, scored

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
    with pytest.raises(UserError, match=r"records\.tar\.xz' is torn .*: copy it here again"):
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
