"""What was seen to end in a traceback, or without a word: each ends in one sentence now (docs/RELIABILITY.md)."""

import io
import json
import os
import socket
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dlmexp.cli import main
from dlmexp.data.download import download
from dlmexp.errors import Unreadable, UserError
from dlmexp.reading import archives
from dlmexp.reading.archives import open_raw, pack_members
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.files import content
from dlmexp.reading.json_text import json_value, typed_json
from dlmexp.reading.matlab import read_variables
from dlmexp.records.files import sealed
from dlmexp.records.manifest import Manifest, read_manifests, write_manifest
from dlmexp.records.store import Store
from tests.support import made_up
from tests.support.http_server import Behaviour, serving

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


# MATLAB files.


@pytest.fixture
def mat(tmp_path) -> Path:
    path = tmp_path / "a.mat"
    cells = np.empty(3, dtype=object)
    cells[:] = [np.ones((2, 3)), "text", np.arange(4)]
    savemat(path, {"X": np.arange(600.0).reshape(60, 10), "c": cells, "s": {"a": 1.0, "b": cells}}, do_compression=True)
    return path


def test_sound_matlab_files_are_read(mat, tmp_path):
    X, c, s = read_variables(mat, "X", "c", "s")
    assert X.shape == (60, 10)
    assert c.size == 3
    assert s.dtype.names == ("a", "b")
    savemat(tmp_path / "plain.mat", {"X": X})
    assert np.array_equal(read_variables(tmp_path / "plain.mat", "X")[0], X)


def test_a_matlab_file_cut_anywhere_or_with_any_bit_flipped_is_read_or_refused(mat):
    sound = mat.read_bytes()
    refused = 0
    for k in range(0, len(sound), 7):
        flipped = bytearray(sound)
        flipped[k] ^= 1 << (k % 8)
        for damaged in (sound[:k], bytes(flipped)):
            mat.write_bytes(damaged)
            try:
                read_variables(mat, "X", "c")
            except Unreadable as error:
                refused += str(mat) in str(error)
    assert refused > len(sound) // 7


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(kind: int, shape: list[int], *rest: bytes) -> bytes:
    about = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, about + element(1, b"X") + b"".join(rest))


HEADER = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
BOMBS = {
    "cells": matrix(1, [1 << 30, 1 << 30]), "numbers": matrix(6, [1 << 30, 1 << 30], element(9, bytes(8))),
    "text": matrix(4, [1, 1 << 30], element(16, b"x")), "an object": matrix(3, [1, 1]),
    "a struct": matrix(2, [1, 1 << 30], element(5, struct.pack("<i", 1)), element(1, b"a" * 64)),
    "a small element": struct.pack("<HH", 14, 9) + b"abcd", "another kind": element(9, bytes(8)),
    "a type that is none": matrix(12, [1, 0], element(99, b"")),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_matlab_file_that_claims_more_than_it_has_is_refused_before_allocating(tmp_path, bomb):
    (tmp_path / "a.mat").write_bytes(HEADER + BOMBS[bomb])
    with pytest.raises(Unreadable, match=r"a\.mat"):
        read_variables(tmp_path / "a.mat", "X")


def test_a_matlab_file_that_unfolds_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dlmexp.reading.matlab.MAX_BYTES", 1 << 20)
    packed = zlib.compress(matrix(6, [1 << 20, 4], element(9, bytes(32 << 20))))
    (tmp_path / "a.mat").write_bytes(HEADER + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(Unreadable, match="more than 1048576 bytes"):
        read_variables(tmp_path / "a.mat", "X")


# Zip files that are encrypted or packed in another way; the arrays of npz files.


def patched_zip(path: Path, name: str, text: bytes, flags: int = 0, method: int | None = None) -> Path:
    """A zip file whose two headers of its member claim flags and a method of compression."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, text)
    data = bytearray(path.read_bytes())
    for signature, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.index(signature) + at
        struct.pack_into("<HH", data, start, flags, zipfile.ZIP_STORED if method is None else method)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("how", "said"), [({"flags": 1}, "encrypted"), ({"method": 93}, "method 93"),
                                           ({"method": 12}, "method 12"), ({"flags": 0x41}, "encrypted")])  # fmt: skip
def test_zip_files_that_are_encrypted_or_of_another_method_are_refused(tmp_path, how, said):
    path = patched_zip(tmp_path / "a.zip", "f.mat", b"x" * 100, **how)
    with pytest.raises(Unreadable, match=said), open_raw(path, "f.mat") as stream:
        stream.read()
    with pytest.raises(Unreadable, match=said):
        read_npz(patched_zip(tmp_path / "a.npz", "X.npy", b"x" * 100, **how))


def npy(header: bytes, data: bytes = b"", version: int = 1) -> bytes:
    header = header.ljust(118) + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + data


def header(descr: str = "'<f8'", shape: str = "(1,)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()


NPY = {
    "7 TiB": npy(header(shape="(1000000000000,)"), bytes(8)), "no header": b"\x93NUMPY\1\0\x10\0{'descr': '<f8'",
    "an open bracket": npy(b"{'descr': ("), "not a mapping": npy(b"[1]"),
    "a negative shape": npy(header(shape="(-1,)")),
    "deep": npy(b"[" * 9000), "names of types": npy(header("'no such type'")), "objects": npy(header("'|O'"), bytes(8)),
    "a version": npy(header(), bytes(8), version=9), "no magic": b"not an array", "nothing": b"",
    "too many dimensions": npy(header(shape="(1,)").replace(b"(1,)", b"(" + b"1," * 70 + b")"), bytes(8)),
    "texts of no bytes": npy(header("'|S0'", "(1000000000000,)")), "letters": npy(header("'<U1'"), b"\xff\xff\xff\x7f"),
    "bytes that are no text": npy(header("'|S2'"), b"\xff\xfe"), "a surrogate": npy(header("'<U1'"), b"\0\xd8\0\0"),
}  # fmt: skip


@pytest.mark.parametrize("which", NPY)
def test_arrays_are_refused_from_their_header_before_allocating(tmp_path, which):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", NPY[which])
    with pytest.raises(Unreadable, match=r"a\.npz: array 'X'|a\.npz is damaged"):
        read_npz(path)


def test_an_npz_file_whose_directory_claims_more_than_there_is_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", npy(header(shape="(100000000,)"), bytes(8)))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, 800_000_128)
    path.write_bytes(data)
    with pytest.raises(Unreadable, match="claims more bytes than there are"):
        read_npz(path)


def test_byte_strings_are_text(tmp_path):
    np.savez(
        tmp_path / "a.npz", X=np.array([b"caf\xc3\xa9", b"b"]), y=np.array(["c", "d"]), none=np.array([], dtype="S3")
    )
    found = read_npz(tmp_path / "a.npz")
    assert found["X"].tolist() == ["café", "b"]
    assert found["y"].tolist() == ["c", "d"]
    assert found["none"].shape == (0,)


# A CSV file of very many columns.


def test_a_table_of_ten_thousand_columns_is_read_and_more_are_refused(tmp_path, capsys, monkeypatch):
    def table(columns: int) -> list[str]:
        path = tmp_path / f"wide{columns}.csv"
        numbers = np.random.default_rng(0).integers(0, 100, (50, columns))
        rows = [",".join(map(str, row)) for row in numbers.tolist()]
        path.write_text("\n".join([",".join(f"c{k}" for k in range(columns)), *rows]) + "\n")
        words = ["dataset=csv", f"csv.path={path}", "csv.target=c1", "csv.task=regression", "sizes=[10]", "plan=true"]
        return ["run", *words, f"results={tmp_path}/results", "method=[elbo]", "seeds=[0]", "device=cpu"]

    assert main(table(10_000)) == 0
    ends_in_a_sentence(table(20_001), capsys, "20001 columns, more than 20000")


# HTTP.


def silent(done: int, total: int | None) -> None:
    pass


def answering(tmp_path, *headers: str, pauses: list | None = None, body: bytes = b"x" * 10) -> None:
    """Downloads from a server that answers with these headers, whatever they are."""
    import threading

    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall("\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode("latin-1") + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/f"
        download(url, tmp_path / "part", silent, sleep=(pauses if pauses is not None else []).append)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("length", ["²", "ten", "-5", "0x10", "1e3", ""])
def test_a_length_that_is_no_number_counts_as_none(tmp_path, length):
    answering(tmp_path, f"Content-Length: {length}", "Connection: close")
    assert (tmp_path / "part").read_bytes() == b"x" * 10


@pytest.mark.parametrize("length", ["9" * 5000, str(1 << 60)])
def test_a_length_beyond_all_is_refused(tmp_path, length):
    with pytest.raises(Unreadable, match=r"more than .* refused"):
        answering(tmp_path, f"Content-Length: {length}")


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "http://h:x/", "file:///etc/passwd",
                                 "http://a b/", "ftp://h/f", "http://h\n/", "http://h:99999999/"])  # fmt: skip
def test_an_address_that_is_none_is_refused_at_once(tmp_path, url):
    pauses = []
    with pytest.raises(UserError, match=r"is no address of a file|is there a network"):
        download(url, tmp_path / "part", silent, sleep=pauses.append)
    assert not pauses


def test_a_redirection_to_a_place_that_is_none_is_refused(tmp_path):
    for place in ("file:///etc/passwd", "http://[x", "ftp://127.0.0.1:1/f"):
        with pytest.raises(UserError):
            answering_redirect(tmp_path, place)


def answering_redirect(tmp_path, place: str) -> None:
    with serving(Behaviour(redirect=place)) as url:
        download(url, tmp_path / "part", silent, sleep=lambda seconds: None)


def test_a_refused_connection_and_an_unknown_host_are_final(tmp_path, monkeypatch):
    pauses = []
    with serving(Behaviour()) as url:
        pass
    with pytest.raises(Unreadable, match="Connection refused; is the address right"):
        download(url, tmp_path / "part", silent, sleep=pauses.append)

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Unreadable, match="Name or service not known; is the address right"):
        download("http://nowhere.invalid/f", tmp_path / "part", silent, sleep=pauses.append)
    assert not pauses


def test_what_may_pass_is_tried_again_and_said(tmp_path, monkeypatch, caplog):
    def later(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", later)
    pauses = []
    with pytest.raises(UserError, match="Temporary failure in name resolution, 5 times in a row"):
        download("http://nowhere.invalid/f", tmp_path / "part", silent, sleep=pauses.append)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert "attempt 2 of 5 follows in 1 s" in caplog.text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n", "the answer is damaged"),
        (b"302 F\r\nLocation: ftp://127.0.0.1:9/x\r\nContent-Length: 0\r\n\r\n", "only http and https"),
        (b"302 F\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "answered 302"),
    ],
)
def test_chunks_and_redirections_that_lead_nowhere(tmp_path, answer, said):
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    with server.accept()[0] as one:
                        one.recv(1 << 16)
                        one.sendall(b"HTTP/1.1 " + answer)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(Unreadable, match=said) as refused:
            download(address, tmp_path / "x", lambda *_: None, will_verify=False)
        assert "\n" not in str(refused.value)
        server.shutdown(socket.SHUT_RDWR)


def test_a_matlab_file_of_too_many_parts_or_too_much_that_nobody_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "x.mat"
    cells = np.empty((1, 30), object)
    cells[:] = 1.0
    savemat(path, {"X": cells, "other": np.zeros(3000), "more": np.zeros(3000)}, do_compression=True)
    monkeypatch.setattr("dlmexp.reading.matlab.MAX_PARTS", 20)
    with pytest.raises(Unreadable, match="more than 20 parts"):
        read_variables(path, "X")
    monkeypatch.setattr("dlmexp.reading.matlab.MAX_BYTES", 40_000)
    with pytest.raises(Unreadable, match="decompresses to more than 40000"):
        read_variables(path, "absent")


def test_a_header_whose_type_is_an_empty_tuple_is_refused(tmp_path):
    header = b"{'descr': (), 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(8))
    with pytest.raises(Unreadable, match="no sound header"):
        read_npz(tmp_path / "x.npz")


def test_a_gzipped_table_that_unfolds_without_end_is_refused(tmp_path, monkeypatch):
    import gzip

    from dlmexp.reading.tables import read_csv

    monkeypatch.setattr("dlmexp.reading.tables.SMALL_TEXT", 1000)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n" + b"1,2\n" * 1_000_000))
    with pytest.raises(Unreadable, match="decompresses to more than"):
        read_csv(path)


@pytest.mark.parametrize(
    "text", [b"[1]", b"5", bytes(range(256)), b"a: [1", b"a: &a [*a]", b"!!python/name:os.system x"]
)
def test_a_settings_file_that_is_none(tmp_path, capsys, text):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine.yaml").write_bytes(text)
    ends_in_a_sentence(["data", "list", "--config-dir", str(tmp_path)], capsys, "mine.yaml")


def test_files_of_a_dataset_that_are_none(tmp_path, capsys):
    words = ["run", "plan=true", f"results={tmp_path}", "dataset.ringnorm_drawn.files=[1]"]
    ends_in_a_sentence(words, capsys, "each of its files is a mapping with a name")
