"""Records, and what was asked for: what is written is read back; what is damaged, forged or foreign
is not, and ends in a sentence."""

import hashlib
import io
import json
import math
import os
import platform
import re
import shlex
import shutil
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.cli import main
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.provenance import Provenance, provenance_here
from dlmexp.common.reading.files import read_npz
from dlmexp.experiment.cluster.status import read_status
from dlmexp.experiment.records.manifests import (
    Manifest,
    check_same_data,
    read_manifests,
    write_manifest,
)
from dlmexp.experiment.records.packed import arrow_table
from dlmexp.experiment.records.record import (
    FORMAT,
    JSON_FIELDS,
    Record,
    Result,
    decoded,
    encoded,
    with_checksum,
)
from dlmexp.experiment.records.store import Store
from tests.support.cells import ELBO, PLAIN, candidates, fill, scored

ARRAYS = {"objective": np.linspace(3, 1, 7), "Z": np.arange(6.0).reshape(3, 2)}
RECORD = scored(ELBO, nll=1.0)


def _values(**changes: Any) -> dict[str, Any]:
    """The record as a JSON object; a change of None removes a field, `cell__n` is a field of the
    cell."""
    values = json.loads(encoded(RECORD))
    for where, value in changes.items():
        part, _, name = where.rpartition("__")
        target = values[part] if part else values
        target[name] = value
        if value is None:
            del target[name]
    return values


def _line(**changes: Any) -> bytes:
    return with_checksum(json.dumps(_values(**changes), separators=(",", ":")).encode())


def _read(line: bytes) -> Record:
    return replace(decoded(line), sha256=None)


@given(st.dictionaries(st.text(max_size=4), st.floats()), st.none() | st.floats(allow_nan=False))
def test_every_number_survives_even_nan_and_infinity(metrics, value):
    again = decoded(
        with_checksum(encoded(replace(RECORD, result=Result(test=metrics, objective_value=value))))
    )
    assert (again.cell, again.result.objective_value) == (ELBO, value)
    np.testing.assert_equal(again.result.test, metrics)


def test_a_missing_field_has_its_default_and_an_unknown_one_is_ignored_but_in_a_cell():
    empty = _read(_line(result={}, made={}))
    assert (empty.result, empty.made) == (Result(), Provenance())
    for place in ("later", "result__later", "made__later"):
        assert _read(_line(**{place: {"any": "thing"}})) == RECORD


def test_the_spec_of_a_dataset_survives_and_is_missing_in_older_records():
    spec = {"name": "mine", "options": {"path": "a.csv"}, "M": None}
    assert _read(with_checksum(encoded(replace(RECORD, dataset_spec=spec)))).dataset_spec == spec
    assert "dataset_spec" not in _values()
    assert _read(_line()).dataset_spec is None


@given(place=st.integers(0, len(_line()) - 1), letter=st.characters(codec="utf-8"))
def test_a_changed_letter_breaks_the_seal(place, letter):
    line = _line().decode()
    assume(line[place] != letter)
    with pytest.raises(Unreadable):
        decoded((line[:place] + letter + line[place + 1 :]).encode())


def test_a_row_has_every_fact_of_a_record():
    cell = replace(PLAIN, options={"samples": 10, "nu": 0.5}, initial={"noise": 1.0})
    metrics = {
        "validation": {"nll": math.nan},
        "test": {"nll": 0.5},
        "trivial": {"test": {"nll": 2.0}},
    }
    result = Result(**metrics, hyperparameters={"noise": 0.1}, iterations=7, stopped="limit")
    (row,) = arrow_table([replace(scored(cell), result=result)]).to_pylist()
    for name in JSON_FIELDS:
        assert json.loads(row.pop(name)) == getattr(cell, name)
    assert {
        name: row[name] for name in msgspec.structs.asdict(cell).keys() & row.keys()
    }.items() <= (msgspec.structs.asdict(cell).items())
    assert (row["test_nll"], row["trivial_test_nll"], row["hyper_noise"]) == (0.5, 2.0, 0.1)
    assert (row["iterations"], row["stopped"], row["status"], row["host"]) == (
        7,
        "limit",
        "done",
        "h",
    )
    assert math.isnan(row["validation_nll"])


def test_how_a_record_was_made(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["/somewhere/dlmexp", "run", "sizes=['5%']", "results=here", "workers=3"]
    )
    made = provenance_here("cpu")
    assert (made.version, made.python, made.device) == (
        __version__,
        platform.python_version(),
        "cpu",
    )
    assert shlex.split(made.command or "") == ["dlmexp", "run", "sizes=['5%']"], (
        "nothing of this machine"
    )
    assert made.commit is None or re.fullmatch(r"[0-9a-f]{12}\+?", made.commit)
    assert _read(_line(made=msgspec.to_builtins(made))).made == made


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


TEXTS = [b"", b"null", b"[" * 100_000, b"{", b"\xff", encoded(RECORD), _line()[:50], _line()[:-2]]
TEXTS += [_line().replace(b"banana", b"banane"), _line(key="0" * 20)]
CHANGES: list[dict[str, Any]] = [
    {"cell__jitter": 1e-5}, {"cell__n": "many"}, {"cell__n": None}, {"cell__n": 10**30}, {"status": "perhaps"},
    {"key": None}, {"key": "../../../x"}, {"result": []}, {"made": None}, {"cell": None},
    {"format": "new"}, {"cell__dataset": "../../x"}, {"cell__dataset": "\ud800"}, {"cell__dataset": "x" * 900},
    {"result__test": [1.0]}, {"arrays": "/../../x"}, {"result__iterations": 10**40},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", [*TEXTS, *(_line(**changes) for changes in CHANGES)])
def test_what_is_no_sound_record_ends_in_a_sentence_and_is_quarantined_by_a_run(
    store, text, capsys, caplog
):
    good, path = replace(ELBO, seed=1), store.path("banana", ELBO.key)
    fill(store.root, candidates("elbo", [good]))
    path.write_bytes(text)
    for command in (["status", "--failed"], ["collect"]):
        assert main([*command, "--results", str(store.root)]) in (0, 2)
        assert "Traceback" not in capsys.readouterr().err
    caplog.clear()
    sound = [record.key for record in store.own_records()]
    assert path.read_bytes() == text, "readers leave it alone"
    assert sound == [good.key]
    assert [str(path) in said for said in caplog.messages] == [True]
    assert store.verified_arrays("banana", ELBO.key) is None
    assert ELBO.key not in store.keys()[0]
    quarantined, why = sorted((store.root / "quarantine").iterdir())
    assert why.name == quarantined.name + ".why"
    assert quarantined.read_bytes() == text


def test_whatever_else_lies_about_is_no_record(store, capsys):
    fill(store.root, candidates("elbo", [ELBO]))
    (store.records / ".DS_Store").write_bytes(b"\0")
    (store.records / "notes.json").write_text("{}")
    (store.records / "banana" / f".{ELBO.key}.json.abc.tmp").write_text("{")
    os.mkfifo(store.path("banana", "1" * 20))  # which is not waited for
    os.mkfifo(store.root / "test" / "cells" / f"{'0' * 16}.json")
    folder = store.path("banana", "0" * 20)
    folder.mkdir()
    assert [record.key for record in store.own_records()] == [ELBO.key]
    assert main(["status", "--results", str(store.root)]) == 0
    assert store.verified_arrays("banana", "0" * 20) is None
    assert not folder.exists(), "quarantined"


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_a_record_of_another_version_is_refused_and_stays(store, version):
    """A run must not take it for damage and train the cell again."""
    path = store.path("banana", ELBO.key)
    path.parent.mkdir(parents=True)
    path.write_bytes(_line(format=version, cell={"nothing": "known"}))
    with pytest.raises(UserError, match=rf"format {version}.*results=DIR"):
        store.verified_arrays("banana", ELBO.key)
    assert path.exists()
    assert not (store.root / "quarantine").exists()


def _flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _others(_):
    """Sound arrays, which are not those of the record."""
    np.savez(buffer := io.BytesIO(), Z=ARRAYS["Z"])
    return buffer.getvalue()


@pytest.mark.parametrize(
    "cell", [PLAIN, replace(PLAIN, evaluate="10"), replace(PLAIN, kind="gradient")]
)
@pytest.mark.parametrize("damage", [_flipped, None, lambda content: content[:-5], _others])
def test_arrays_that_do_not_match_are_reported_by_readers_and_cost_the_record_where_a_run_needs_them(
    store, damage, cell, caplog
):
    """A run needs those of a base fit, and those of a cell that was run for them."""
    store.write(scored(cell, nll=0.25), ARRAYS)
    (path,) = store.records.glob("*/*.npz")
    assert store.verified_arrays("banana", cell.key) is not None
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(content))
    assert store.arrays(cell.key) == {}
    assert len(caplog.messages) == 1
    assert store.keys() == ({cell.key}, set())
    read = store.base_hyperparameters if cell is PLAIN else store.verified_arrays
    assert read("banana", cell.key) is None
    assert store.keys() == (set(), set())
    assert len(list((store.root / "quarantine").glob("*.json"))) == 1


def test_a_failure_gives_way_to_success_and_is_not_deleted(store):
    done, failed = ({PLAIN.key}, set()), (set(), {PLAIN.key})
    for status, keys in (
        ("failed", failed),
        ("done", done),
        ("failed", done),
    ):  # the last one elsewhere, later
        store.write(replace(scored(PLAIN), status=status), {"m": np.ones(3)})
        assert store.keys() == keys
        assert [record.status for record in store.own_records()] == [
            "done" if keys is done else "failed"
        ]
    assert len(list((store.root / "quarantine").glob("*.failed.json"))) == 1


def test_two_writers_of_one_cell_never_leave_a_record_with_the_others_arrays(store):
    """Both differ in the last bit, as two machines may; whoever is last, record and arrays fit."""

    def write(who):
        for _ in range(40):
            store.write(scored(PLAIN, nll=float(who)), {"Z": np.full(3, float(who))})

    writers = [threading.Thread(target=write, args=(who,)) for who in (0, 1)]
    for thread in writers:
        thread.start()
    while any(thread.is_alive() for thread in writers):
        for record in store.own_records():
            written = store.attachment("banana", record.key, ".npz", record.arrays)
            assert read_npz(written)["Z"][0] == record.result.validation["nll"]
    assert not (store.root / "quarantine").exists()


CELLS = [replace(PLAIN, seed=seed) for seed in range(3)]
ASKED = [candidates("fixed_log_dlm", [cell, replace(cell, beta=2.0)]) for cell in CELLS]


def test_what_was_asked_for_adds_up_over_runs(tmp_path):
    for name, some in (
        ("one", ASKED[:2]),
        ("one", [*ASKED[:2], *ASKED[:2]]),
        ("one", ASKED[1:]),
        ("two", ASKED[:1]),
    ):
        write_manifest(tmp_path, Manifest(name, some))
    assert len(list((tmp_path / "one" / "cells").iterdir())) == 2
    assert sorted(len(each.candidates) for each in read_manifests(tmp_path)) == [1, 2, 2]
    counts = {each.name: each.missing for each in read_status(tmp_path).experiments}
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


def test_a_record_that_changes_is_read_again(tmp_path):
    store = Store(tmp_path)
    store.write(scored(PLAIN, nll=1.0))
    store.write(scored(ELBO, nll=2.0))
    assert sorted(store.cells()["validation_nll"].to_pylist()) == [1.0, 2.0]
    Store(tmp_path).write(scored(PLAIN, nll=3.25))
    assert sorted(store.cells()["validation_nll"].to_pylist()) == [2.0, 3.25]
    store.path(ELBO.dataset, ELBO.key).unlink()
    assert store.cells()["key"].to_pylist() == [PLAIN.key]


def test_records_of_some_cells_have_no_columns_of_others(tmp_path):
    store = Store(tmp_path)
    store.write(scored(PLAIN, nll=1.0))
    store.write(scored(ELBO, nll=1.0, mse=2.0))
    assert "validation_mse" in store.cells().column_names
    assert "validation_mse" not in store.cells({PLAIN.key}).column_names
