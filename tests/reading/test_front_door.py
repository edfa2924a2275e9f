"""Results folders that ended in a traceback, or without a word: each ends in one sentence now (docs/RELIABILITY.md)."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from dlmexp.cli import main
from dlmexp.errors import Unreadable
from dlmexp.reading import archives
from dlmexp.reading.archives import pack_members
from dlmexp.reading.files import content
from dlmexp.reading.json_text import json_value, typed_json
from dlmexp.records.files import sealed
from dlmexp.records.manifest import Manifest, read_manifests, write_manifest
from dlmexp.records.store import Store
from tests.support import made_up

COMMANDS = (["status", "--failed"], ["collect"], ["plot", "--list"], ["claims"])


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:xz", preset=0) as tar:
        for info, text in members:
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def ends_in_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str], *said: str, codes=(2,)) -> str:
    assert main(words) in codes
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    for text in said:
        assert text in out.err + out.out
    return out.err


# A pack with symlink, hardlink or looping members.


@pytest.mark.parametrize(("kind", "link"), [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "arrays/x.npz"),
                                            (tarfile.SYMTYPE, "records.jsonl"), (tarfile.CHRTYPE, "")])  # fmt: skip
def test_a_pack_with_links_is_refused_by_every_reader(tmp_path, capsys, kind, link):
    pack(tmp_path / "records.tar.xz", (member("records.jsonl", kind, link), b""))
    what = "device" if kind == tarfile.CHRTYPE else "link"
    for words in COMMANDS:
        said = ends_in_a_sentence([*words, "--results", str(tmp_path)], capsys)
        assert f"records.tar.xz: member records.jsonl is a {what}: refused" in said


# A pack that unfolds to more than it should, a pack of very many members.


def test_a_pack_that_unfolds_without_end_is_refused_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "SMALL", 1 << 20)
    path = pack(tmp_path / "records.tar.xz", (member("records.jsonl"), bytes(20 << 20)))
    assert path.stat().st_size < 20_000
    taken = []
    with pytest.raises(Unreadable, match=r"decompresses to more than .* bytes: refused"):
        taken += list(pack_members(path))
    assert not taken


def test_a_size_that_is_only_claimed_allocates_nothing(tmp_path):
    header = bytearray(member("records.jsonl").tobuf())
    header[124:136] = b"%011o\0" % (1 << 32)
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    import lzma

    (tmp_path / "records.tar.xz").write_bytes(lzma.compress(bytes(header)))
    with pytest.raises(Unreadable, match="ends within a member"):
        list(pack_members(tmp_path / "records.tar.xz"))


def test_many_members_are_read_without_a_pause_and_more_are_refused(tmp_path, monkeypatch):
    """200 000 headers took tarfile 16 s and more: they are read here. A hundred times fewer, without a clock."""
    path = pack(tmp_path / "records.tar.xz", *((member(f"arrays/{k:020x}.npz"), b"x") for k in range(2000)))
    monkeypatch.setattr(tarfile.TarFile, "next", lambda *_: pytest.fail("tarfile reads members"))
    assert sum(len(text) for _, text in pack_members(path)) == 2000
    monkeypatch.setattr(archives, "MAX_PACK_MEMBERS", 1999)
    with pytest.raises(Unreadable, match="more than 1999 members"):
        list(pack_members(path))


# Records and packs whose seal fits what is none of ours.


def record(**changes) -> dict:
    import msgspec

    values = {"format": 2} | msgspec.to_builtins(made_up.fit(made_up.cell(), nll=1.0))
    for where, value in changes.items():
        *path, last = where.split("__")
        inner = values
        for name in path:
            inner = inner[name]
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return values


DEEP = json.loads("[" * 500 + "]" * 500)
FORGED = {
    "n is a text": {"cell__n": "many"}, "n is huge": {"cell__n": 10**30}, "n is negative": {"cell__n": -3},
    "a list for a mapping": {"result__test": [1.0]}, "a number for a name": {"cell__dataset": 7},
    "a path for a name": {"cell__dataset": "../../x"}, "no cell": {"cell": None}, "no made": {"made": None},
    "a command that is none": {"made__command": "dlmexp 'run"}, "deep": {"made__note": DEEP},
    "a word where a number should be": {"cell__evaluate": "sometimes"},
    "samples that are none": {"cell__options": {"samples": "x"}},
    "infinite samples": {"cell__options": {"samples": 1e999}},
    "an unknown task": {"cell__task": "guess"}, "no such text": {"cell__dataset": "\ud800"},
    "a key that is a path": {"key": "../../../x"}, "iterations beyond all": {"result__iterations": 10**40},
    "arrays that are a path": {"arrays": "/../../x"},
    "metrics beyond all": {"result__test": {"nll": 1e308, "error": -1e308}},
    "metrics with odd names": {"result__test": {"": 1.0, "\n": 2.0}}, "status": {"status": "perhaps"},
    "an hour that is none": {"made__time": "yesterday"}, "an option that is a field": {"cell__options": {"key": 5}},
    "an option that is a column": {"cell__options": {"method": "x"}}, "a name too long": {"cell__dataset": "😀" * 200},
    "an option beyond all": {"cell__options": {"bar": 10**40}},
    "a negative beta": {"cell__beta": -1.0}, "beta is no number": {"cell__beta": float("nan")},
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("packed", [False, True])
def test_a_forged_seal_never_ends_in_a_traceback(tmp_path, capsys, forged, packed):
    good = made_up.cell(seed=1)
    made_up.fill(tmp_path, [good])
    values = record(**FORGED[forged])
    line = sealed(json.dumps(values, separators=(",", ":")).encode())
    if packed:
        pack(tmp_path / "records.tar.xz", (member("records.jsonl"), line + b"\n"))
    else:
        name = made_up.cell().key
        (tmp_path / "records" / "banana" / f"{name}.json").write_bytes(line + b"\n")
    is_read = any(one.key != good.key for one in Store(tmp_path, read_only=True).all())
    for words in COMMANDS if is_read else COMMANDS[:2]:  # what is not read reaches neither figures nor claims
        ends_in_a_sentence([*words, "--results", str(tmp_path)], capsys, codes=(0, 2))
    assert main(["collect", "--results", str(tmp_path), "--pack", str(tmp_path / "out" / "records.tar.xz")]) in (0, 2)
    assert (tmp_path / "records" / "banana" / f"{good.key}.json").exists()


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b'{"format":' + b"9" * 5000 + b"}", b"\xff{}"])
def test_json_that_is_too_deep_or_none_is_unreadable(text):
    with pytest.raises(Unreadable):
        typed_json(text, dict[str, int])
    with pytest.raises(Unreadable):
        json_value(text + b"x")


def test_a_pack_of_more_lines_than_anyone_needs_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dlmexp.records.pack.MAX_PACK_MEMBERS", 10)
    pack(tmp_path / "records.tar.xz", (member("records.jsonl"), b"\n" * 11))
    assert main(["status", "--results", str(tmp_path)]) == 2
    assert "has more than 10 lines: refused" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a\0b", "", "other"])
def test_a_manifest_names_the_folder_that_it_lies_in(tmp_path, capsys, name):
    import hashlib

    root = tmp_path / "results"
    made_up.fill(root, [made_up.cell(seed=1)])
    known = len(read_manifests(root))
    text = json.dumps({"experiment": name, "cells": {"0" * 20: "../../victim n=5"}, "candidates": []}).encode()
    folder = root / "evil" / "cells"
    folder.mkdir(parents=True)
    (folder / f"{hashlib.sha256(text).hexdigest()[:16]}.json").write_bytes(text)
    assert len(read_manifests(root)) == known
    ends_in_a_sentence(["collect", "--results", str(root)], capsys, codes=(0, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_cleaning_removes_nothing_outside_the_folder(tmp_path, capsys):
    victim = tmp_path / "victim.json"
    victim.write_text("{}")
    root = tmp_path / "results"
    made_up.fill(root, [made_up.cell(seed=1)])
    write_manifest(root, Manifest("evil", {"0" * 20: "../../victim n=5"}, []))
    assert main(["clean", "evil", "--results", str(root), "--yes"]) == 0
    assert victim.exists()


def test_a_pipe_in_a_results_folder_is_not_waited_for(tmp_path, capsys):
    made_up.fill(tmp_path, [made_up.cell(seed=1)])
    os.mkfifo(tmp_path / "records" / "banana" / f"{made_up.cell().key}.json")
    os.mkfifo(tmp_path / "made-up" / "cells" / f"{'0' * 16}.json")
    with pytest.raises(Unreadable, match="not a plain file"):
        content(tmp_path / "made-up" / "cells" / f"{'0' * 16}.json")
    for words in COMMANDS:
        ends_in_a_sentence([*words, "--results", str(tmp_path)], capsys, codes=(0,))
