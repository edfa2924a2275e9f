"""A record as JSON and as a row: every number survives, what does not fit is refused."""

import json
import math
import platform
import re
import shlex
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.errors import Unreadable
from dlmexp.records.record import FORMAT, Made, Record, Result, TooNew, decoded, encoded, flat, provenance, sealed
from tests.support.cells import PLAIN, scored

RECORD = scored(PLAIN, nll=0.25, error=0.1)


def _read(values: Any) -> Record:
    return replace(decoded(sealed(json.dumps(values, separators=(",", ":")).encode())), sha256=None, format=0)


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


@given(st.dictionaries(st.text(max_size=4), st.floats()), st.one_of(st.none(), st.floats(allow_nan=False)))
def test_every_number_survives_even_nan_and_infinity(metrics, value):
    record = replace(RECORD, result=Result(test=metrics, objective_value=value))
    again = decoded(sealed(encoded(record)))
    assert again.cell == RECORD.cell
    assert again.result.objective_value == value
    np.testing.assert_equal(again.result.test, metrics)


def test_numbers_of_numpy_are_numbers():
    values: Any = {"test": {"nll": np.float64(0.1)}, "iterations": np.int64(3), "converged": np.bool_(True)}
    again = _read(json.loads(encoded(replace(RECORD, result=Result(**values)))))
    assert again.result == Result(test={"nll": 0.1}, iterations=3, converged=True)
    with pytest.raises(TypeError, match="object"):
        encoded(replace(RECORD, result=Result(reason=object())))  # pyright: ignore[reportArgumentType]


def test_a_missing_field_has_its_default_and_an_unknown_one_is_ignored_but_in_a_cell():
    empty = _read(_values(result={}, made={}))
    assert (empty.result, empty.made) == (Result(), Made())
    for place in ("later", "result__later", "made__later"):
        assert _read(_values(**{place: {"any": "thing"}})) == RECORD


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cell__jitter": 1e-5}, "jitter"), ({"cell__n": "many"}, "n"), ({"cell__n": None}, "n"),
        ({"status": "perhaps"}, "perhaps"), ({"key": None}, "key"), ({"result": []}, "result"),
        ({"made": None}, "made"),
        ({"cell__dataset": "../x"}, "dataset"),
        ({"format": FORMAT - 1}, str(FORMAT - 1)), ({"format": "new"}, "not a record"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, named):
    with pytest.raises(Unreadable, match=named):
        _read(_values(**changes))


@given(st.data())
def test_a_changed_letter_breaks_the_seal(data):
    line = sealed(encoded(RECORD)).decode()
    place, letter = data.draw(st.integers(0, len(line) - 1)), data.draw(st.characters(codec="utf-8"))
    assume(line[place] != letter)
    with pytest.raises(Unreadable):
        decoded((line[:place] + letter + line[place + 1 :]).encode())


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{", b"\xff", b'{"format": 3}', encoded(RECORD)])
def test_what_is_no_sealed_record(text):
    with pytest.raises(Unreadable):
        decoded(text)


def test_a_newer_format_is_told_apart():
    with pytest.raises(TooNew, match="upgrade"):
        _read(_values(format=FORMAT + 1, cell={"nothing": "known"}))


def test_a_row_has_every_fact_of_a_record():
    cell = replace(PLAIN, options={"samples": 10, "nu": 0.5}, initial={"noise": 1.0})
    result = Result(
        validation={"nll": math.nan}, test={"nll": 0.5}, trivial={"test": {"nll": 2.0}}, hyperparameters={"noise": 0.1},
        iterations=7, stopped="limit",
    )  # fmt: skip
    row = flat(replace(scored(cell), result=result))
    assert {name: row[name] for name in msgspec.structs.asdict(cell) if name not in ("options", "initial")} == {
        name: value for name, value in msgspec.structs.asdict(cell).items() if name not in ("options", "initial")
    }
    assert json.loads(row["options"]) == cell.options
    assert json.loads(row["initial"]) == cell.initial
    assert (row["test_nll"], row["trivial_test_nll"], row["hyper_noise"]) == (0.5, 2.0, 0.1)
    assert (row["iterations"], row["stopped"], row["status"], row["host"]) == (7, "limit", "done", "h")
    assert math.isnan(row["validation_nll"])


def test_how_a_record_was_made(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/dlmexp", "run", "sizes=['5%']", "results=here", "workers=3"])
    made = provenance("cpu")
    assert (made.version, made.python, made.device) == (__version__, platform.python_version(), "cpu")
    assert shlex.split(made.command or "") == ["dlmexp", "run", "sizes=['5%']"], "nothing of this machine"
    assert made.commit is None or re.fullmatch(r"[0-9a-f]{12}\+?", made.commit)
    assert _read(_values(made=msgspec.to_builtins(made))).made == made
