"""Results folders that ended in a traceback, or without a word: each ends in one sentence now (docs/RELIABILITY.md)."""

import hashlib
import json
import os

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.errors import Unreadable
from dlmexp.reading.files import content
from dlmexp.records.manifest import manifest, read_manifests
from dlmexp.records.record import FORMAT, sealed
from tests.support.cells import ELBO, candidates, fill, scored

GOOD = replace(ELBO, seed=1)
COMMANDS = (["status", "--failed"], ["collect"])


def ends_in_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str], codes=(0, 2)) -> None:
    assert main(words) in codes
    assert "Traceback" not in capsys.readouterr().err


def record(**changes) -> dict:
    """A record with changed values, `cell__n` in its cell; without those that are None."""
    values = {"format": FORMAT} | msgspec.to_builtins(scored(ELBO, nll=1.0))
    for where, value in changes.items():
        part, _, name = where.rpartition("__")
        (values[part] if part else values)[name] = value
    return {name: value for name, value in values.items() if value is not None}


DEEP = json.loads("[" * 500 + "]" * 500)
FORGED = {
    "n is a text": {"cell__n": "many"}, "n is huge": {"cell__n": 10**30}, "a list": {"result__test": [1.0]},
    "a path for a name": {"cell__dataset": "../../x"}, "no cell": {"cell": None}, "deep": {"made__note": DEEP},
    "no command": {"made__command": "dlmexp 'run"}, "infinite samples": {"cell__options": {"samples": 1e999}},
    "samples that are none": {"cell__options": {"samples": "x"}}, "an unknown task": {"cell__task": "guess"},
    "no such text": {"cell__dataset": "\ud800"}, "a key that is a path": {"key": "../../../x"},
    "arrays that are a path": {"arrays": "/../../x"}, "iterations beyond all": {"result__iterations": 10**40},
    "metrics beyond all": {"result__test": {"nll": 1e308, "error": -1e308}}, "status": {"status": "perhaps"},
    "metrics with odd names": {"result__test": {"": 1.0, "\n": 2.0}}, "no hour": {"made__time": "yesterday"},
    "an option that is a field": {"cell__options": {"key": 5}}, "a name too long": {"cell__dataset": "x" * 900},
    "an option that is a column": {"cell__options": {"method": "x"}}, "huge": {"cell__options": {"bar": 10**40}},
    "a negative beta": {"cell__beta": -1.0}, "beta is no number": {"cell__beta": float("nan")},
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_seal_never_ends_in_a_traceback(tmp_path, capsys, forged):
    fill(tmp_path, candidates("elbo", [GOOD]))
    values = record(**FORGED[forged])
    line = sealed(json.dumps(values, separators=(",", ":")).encode())
    (tmp_path / "records" / "banana" / f"{ELBO.key}.json").write_bytes(line + b"\n")
    for words in COMMANDS:
        ends_in_a_sentence([*words, "--results", str(tmp_path)], capsys)
    assert (tmp_path / "records" / "banana" / f"{GOOD.key}.json").exists()


@pytest.mark.parametrize("changes", [
    {"experiment": "../outside"}, {"experiment": ""}, {"experiment": "other"}, {"dataset": "../../victim"},
])  # fmt: skip
def test_a_manifest_names_nothing_outside_the_folder_that_it_lies_in(tmp_path, capsys, changes):
    root = tmp_path / "results"
    fill(root, candidates("elbo", [GOOD]))
    known = len(read_manifests(root))
    asked = msgspec.to_builtins(manifest("evil", [candidates("elbo", [ELBO])]))
    asked["experiment"] = changes.get("experiment", "evil")
    asked["candidates"][0] |= changes
    text = json.dumps(asked).encode()
    folder = root / "evil" / "cells"
    folder.mkdir(parents=True)
    (folder / f"{hashlib.sha256(text).hexdigest()[:16]}.json").write_bytes(text)
    assert len(read_manifests(root)) == known
    ends_in_a_sentence(["collect", "--results", str(root)], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_pipe_in_a_results_folder_is_not_waited_for(tmp_path, capsys):
    fill(tmp_path, candidates("elbo", [GOOD]))
    os.mkfifo(tmp_path / "records" / "banana" / f"{ELBO.key}.json")
    os.mkfifo(tmp_path / "test" / "cells" / f"{'0' * 16}.json")
    with pytest.raises(Unreadable, match="not a plain file"):
        content(tmp_path / "test" / "cells" / f"{'0' * 16}.json")
    for words in COMMANDS:
        ends_in_a_sentence([*words, "--results", str(tmp_path)], capsys, codes=(0,))
