"""Records on disk: what is written is read back, what is damaged is not."""

import math
import threading

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.records.record import sealed
from dlmexp.records.store import Store, npz_bytes
from tests.support.cells import PLAIN, scored

ARRAYS = {"objective": np.linspace(3, 1, 7), "Z": np.arange(6.0).reshape(3, 2)}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def _arrays(store, record):
    return store.arrays(record.cell.dataset, record.key, record.arrays)


def _path(store, suffix=".json"):
    return store.path("banana", PLAIN.key, suffix)


def test_there_and_back(store):
    assert (list(store.own()), store.keys(), store.find("banana", PLAIN.key)) == ([], (set(), set()), None)
    store.write(scored(PLAIN, nll=0.1 + 0.2, error=math.nan), ARRAYS)
    _path(store).write_bytes(_path(store).read_bytes()[:-1])  # without the line's end, it is whole
    (found,) = store.own()
    assert found.result.validation["nll"] == 0.1 + 0.2
    assert math.isnan(found.result.validation["error"])
    assert found.cell.beta == PLAIN.beta
    arrays = _arrays(store, found)
    assert arrays.keys() == ARRAYS.keys()
    assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())
    assert store.keys() == ({PLAIN.key}, set())


def _without(*names):
    """A sealed record that lacks what every record of ours has."""
    values = {"format": 3} | msgspec.to_builtins(scored(PLAIN, nll=1.0))
    return sealed(msgspec.json.encode({name: v for name, v in values.items() if name not in names})).decode()


FOREIGN = [
    "[]", "null", '{"format": 1}', "\xff", "", _without("status"), _without("cell", "made"), _without("key"),
    _without()[:50], _without()[:-2], _without().replace("banana", "banane"), _without().replace(PLAIN.key, "0" * 20),
]  # fmt: skip


@pytest.mark.parametrize("text", FOREIGN)
def test_what_is_no_sound_record_is_left_alone_by_readers_who_say_so_and_quarantined_by_a_run(store, text, caplog):
    store.write(scored(replace(PLAIN, seed=1), nll=0.25))
    _path(store).write_bytes(text.encode("latin-1"))
    assert [r.cell.seed for r in store.own()] == [1]
    assert _path(store).read_bytes() == text.encode("latin-1")
    (said,) = caplog.messages
    assert str(_path(store)) in said
    assert store.find("banana", PLAIN.key) is None
    assert PLAIN.key not in store.keys()[0]
    quarantined, why = sorted((store.root / "quarantine").iterdir())
    assert why.name == quarantined.name + ".why"
    assert quarantined.read_bytes() == text.encode("latin-1")


def test_whatever_else_lies_about_is_no_record(store):
    store.write(scored(PLAIN, nll=0.25))
    (store.records / ".DS_Store").write_bytes(b"\0")
    (store.records / "notes.json").write_text("{}")
    (store.records / "banana" / f".{PLAIN.key}.json.abc.tmp").write_text("{")
    _path(store, ".folder.json").mkdir()
    assert len(list(store.own())) == 1
    assert PLAIN.key in store.keys()[0]
    folder = store.path("banana", "0" * 20)
    folder.mkdir()
    assert store.find("banana", "0" * 20) is None
    assert not folder.exists(), "quarantined"


def _damage_arrays(store, damage):
    (path,) = store.records.glob("*/*.npz")
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "short":
        path.write_bytes(content[:-5])
    elif damage == "another's":
        path.write_bytes(npz_bytes({"Z": np.ones(3)}))
    else:
        path.unlink()


@pytest.mark.parametrize("damage", ["bit", "gone", "short", "another's"])
def test_arrays_that_do_not_match_are_reported_by_readers_and_cost_the_record_where_a_run_needs_them(
    store, damage, caplog
):
    store.write(scored(PLAIN, nll=0.25), ARRAYS)
    (found,) = store.own()
    _damage_arrays(store, damage)
    assert _arrays(store, found) == {}
    assert len(caplog.messages) == 1
    assert store.keys() == ({PLAIN.key}, set())
    assert store.base("banana", PLAIN.key) is None
    assert store.keys() == (set(), set())
    assert len(list((store.root / "quarantine").glob("*.json"))) == 1


@pytest.mark.parametrize("cell", [replace(PLAIN, evaluate="10"), replace(PLAIN, kind="gradient")])
def test_a_cell_that_lost_the_arrays_it_was_run_for_is_not_done(store, cell):
    store.write(scored(cell, nll=0.25), ARRAYS)
    assert store.find("banana", cell.key) is not None
    _damage_arrays(store, "short")
    assert store.find("banana", cell.key) is None
    assert store.keys() == (set(), set())
    assert len(list((store.root / "quarantine").glob("*.json"))) == 1


def test_a_failure_gives_way_to_success_and_is_not_deleted(store):
    store.write(scored(PLAIN, "failed"), {"m": np.ones(3)})
    assert store.keys() == (set(), {PLAIN.key})
    assert [r.status for r in store.own()] == ["failed"]
    store.write(scored(PLAIN, nll=0.25), ARRAYS)
    assert store.keys() == ({PLAIN.key}, set())
    assert [r.status for r in store.own()] == ["done"]
    assert len(list((store.root / "quarantine").glob("*.failed.json"))) == 1
    store.write(scored(PLAIN, "failed"), {"m": np.ones(3)})  # elsewhere, later
    assert store.keys() == ({PLAIN.key}, set())
    assert [r.status for r in store.own()] == ["done"]


def test_two_writers_of_one_cell_never_leave_a_record_with_the_others_arrays(store):
    """Both differ in the last bit, as two machines may; whoever is last, record and arrays fit."""
    trouble = []

    def write(who):
        for _ in range(40):
            store.write(scored(PLAIN, nll=0.25 + who), {"Z": np.full(3, float(who))})

    def read():
        while writers[0].is_alive() or writers[1].is_alive():
            for found in store.own():
                if _arrays(store, found)["Z"][0] != found.result.validation["nll"] - 0.25:
                    trouble.append(found)

    writers = [threading.Thread(target=write, args=(who,)) for who in (0, 1)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in (*writers, reader):
        thread.join()
    assert not trouble
    assert not (store.root / "quarantine").exists()


def test_a_record_of_a_newer_version_is_refused_and_stays(tmp_path):
    """A run must not take it for damage and train the cell again."""
    store, made = Store(tmp_path), scored(PLAIN, nll=0.1)
    path = store.path(made.cell.dataset, made.key)
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"format":99}')
    with pytest.raises(UserError, match=r"format 99, from a newer dlmexp.*results=DIR"):
        store.find(made.cell.dataset, made.key)
    assert path.exists()
    assert not (tmp_path / "quarantine").exists()
