"""Records that grow: what was added has a default, what is unknown is ignored or refused in a sentence."""

import hashlib
import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.errors import Unreadable
from dlmexp.plan.cell import FIRST_OPTIONS
from dlmexp.records.files import sealed
from dlmexp.records.pack import read_record
from dlmexp.records.schema import FORMAT, Made, Record, Result, decoded, encoded, upgraded
from dlmexp.records.store import Store
from tests.support import made_up
from tests.support.cells import PLAIN, scored

RECORD = replace(scored(PLAIN, nll=0.25, error=0.1), format=FORMAT)
NEWER = "it has format 3, from a newer dlmexp (this one reads up to 2): upgrade dlmexp"


def _read(values: Any) -> Record:
    """From its text, as records are read: however it is done, the same record comes out."""
    text = json.dumps(values).encode()
    found = decoded(text)
    assert encoded(found) == encoded(upgraded(json.loads(text)))
    return found


def _values(**changes: Any) -> dict[str, Any]:
    """The record as a decoded JSON object; a change of None removes a field, `cell__x` is a field of the cell."""
    values = json.loads(encoded(RECORD))
    for name, value in changes.items():
        *inside, name = name.split("__")
        target = values[inside[0]] if inside else values
        if value is None:
            del target[name]
        else:
            target[name] = value
    return values


def test_there_and_back():
    assert _read(_values()) == RECORD


@given(st.dictionaries(st.text(max_size=4), st.floats()), st.one_of(st.none(), st.floats(allow_nan=False)))
def test_every_number_survives_even_nan_and_infinity(metrics, value):
    record = replace(RECORD, result=Result(test=metrics, objective_value=value))
    found = read_record(sealed(encoded(record)))
    assert found.result.objective_value == value
    assert found.result.test.keys() == metrics.keys()
    for name, number in metrics.items():
        again = found.result.test[name]
        assert again == number or (math.isnan(again) and math.isnan(number))


def test_numbers_of_numpy_are_numbers():
    values: Any = {
        "test": {"nll": np.float64(0.1), "error": np.float32(0.5)},
        "iterations": np.int64(3),
        "converged": np.bool_(True),
    }
    found = _read(json.loads(encoded(replace(RECORD, result=Result(**values)))))
    assert found.result == Result(test={"nll": 0.1, "error": 0.5}, iterations=3, converged=True)
    with pytest.raises(TypeError, match="a record can't hold"):
        encoded(replace(RECORD, result=Result(reason=object())))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("part", [Result, Made])
def test_a_field_that_a_record_lacks_has_its_default(part):
    empty = _read(_values(**{part.__name__.lower(): {}}))
    assert getattr(empty, part.__name__.lower()) == part()


def test_a_record_without_what_was_added_later_means_the_default():
    found = _read(_values(cell__base=None))
    assert found.cell.base is None
    assert found.key == RECORD.key, "what a record is about is not judged by its key"
    assert _read(_values(format=2)).arrays is None


class _GrownResult(Result, kw_only=True, omit_defaults=True):
    peak_memory: float | None = None


class _GrownRecord(Record, kw_only=True, omit_defaults=True):
    result: _GrownResult  # pyright: ignore[reportIncompatibleVariableOverride]


def test_records_of_today_are_records_of_a_version_with_one_more_field():
    found = msgspec.convert(_values(), _GrownRecord)
    assert found.result.peak_memory is None
    found.result.peak_memory = 1e9
    assert _read(msgspec.to_builtins(found)) == RECORD, "and those of that version are read by today's"


@pytest.mark.parametrize("place", ["later", "result__later", "made__later"])
def test_an_unknown_field_is_ignored_where_it_does_not_change_what_the_record_is_about(place):
    assert _read(_values(**{place: {"any": "thing"}})) == RECORD


def test_an_unknown_field_of_the_cell_is_refused_by_name():
    with pytest.raises(Unreadable, match=r"schema of a record: .*unknown field `jitter`.*cell"):
        _read(_values(cell__jitter=1e-5))


@pytest.mark.parametrize(
    "changes",
    [
        {"cell__n": "many"},
        {"cell__n": None},
        {"status": "perhaps"},
        {"key": None},
        {"result": []},
        {"cell": 3},
        {"made": None},
    ],
)
def test_what_does_not_fit_is_refused(changes):
    with pytest.raises(Unreadable, match="does not fit the schema of a record"):
        _read(_values(**changes))


@pytest.mark.parametrize("values", [None, 3, [], "record", {"format": "new"}])
def test_what_is_no_record(values):
    with pytest.raises(Unreadable, match="it is not a record"):
        _read(values)


@pytest.mark.parametrize("version", [0, -1])
def test_a_format_that_never_was(version):
    with pytest.raises(Unreadable):
        _read(_values(format=version))


def _first_format(record: Record) -> bytes:
    """A line as the first version wrote it: options as fields of the cell, all fields in the order of the alphabet."""
    values = msgspec.to_builtins(record)
    cell = dict(values["cell"])
    cell |= dict.fromkeys(FIRST_OPTIONS) | cell.pop("options")
    values = {name: value for name, value in values.items() if name not in ("sha256", "arrays")}
    values |= {"format": 1, "cell": cell, "arrays": None}

    def line(of: dict[str, Any]) -> bytes:
        return json.dumps(of, sort_keys=True, separators=(",", ":")).encode()

    return line({**values, "sha256": hashlib.sha256(line(values)).hexdigest()})


FIRST = [
    {},
    {"samples": 10},
    {"samples": 1, "nu": 0.5},
    {"nodes": 40},
    {"samples": 10, "sampler": "rejection"},
]


@pytest.mark.parametrize("options", FIRST)
def test_the_first_format_is_read_as_the_same_cell(options):
    cell = replace(PLAIN, options=options)
    record = scored(cell, nll=0.25)
    line = _first_format(record)
    assert b'"samples":' in line
    assert b'"options"' not in line
    found = read_record(line)
    assert found.cell == cell
    assert found.cell.key == record.key == cell.key
    assert found == replace(record, format=2, sha256=found.sha256)


def test_nan_of_the_first_format():
    found = read_record(_first_format(scored(PLAIN, nll=math.nan, error=math.inf)))
    assert math.isnan(found.result.validation["nll"])
    assert found.result.validation["error"] == math.inf


def test_a_folder_of_the_first_format_is_read_and_gone_on_from(tmp_path):
    store = Store(tmp_path)
    path = store.path("banana", PLAIN.key)
    path.parent.mkdir(parents=True)
    path.write_bytes(_first_format(scored(PLAIN, nll=0.25)) + b"\n")
    found = store.find("banana", PLAIN.key)
    assert found is not None
    assert found.cell == PLAIN
    assert [record.key for record in store.all()] == [PLAIN.key]


@pytest.fixture
def newer(tmp_path):
    """Results with one record of a newer version among ours."""
    made_up.fill(tmp_path, made_up.sweep("banana", ("elbo", "joint_log_dlm"), [100], range(2), 3))
    path = Store(tmp_path).path("banana", PLAIN.key)
    path.write_bytes(sealed(json.dumps(_values(format=3, cell__jitter=1e-5)).encode()) + b"\n")
    return tmp_path, path


def test_a_newer_format_is_refused_in_a_sentence():
    with pytest.raises(Unreadable) as found:
        _read(_values(format=3, cell={"nothing": "known"}))
    assert str(found.value) == NEWER


def test_readers_say_so_and_go_on_with_the_others(newer, caplog):
    folder, path = newer
    assert len(list(Store(folder).all())) == 8
    assert caplog.messages == [f"skipped 1 files or lines that are no sound records, such as {path}: {NEWER}"]
    assert path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", ["plot class-log --format png", "claims", "collect", "status", "report"])
def test_every_reading_command_goes_on(newer, tmp_path_factory, capsys, caplog, words):
    folder, path = newer
    name, *rest = words.split()
    target = tmp_path_factory.mktemp("out")
    out = {"plot": ["--out", str(target)], "report": ["--out", str(target / "report.html")]}.get(name, [])
    assert main([name, *rest, "--results", str(folder), *out]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert path.exists()
    if name != "status":  # which goes by the names of files
        assert NEWER in caplog.text
    if name == "plot":
        assert (target / "class-log.png").exists()
