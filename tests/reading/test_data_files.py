"""Files of data and settings that ended in a traceback, or without a word: each ends in one sentence now."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dlmexp.cli import main
from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.matlab import read_variables
from tests.reading.test_front_door import ends_in_a_sentence

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


TEN_TO_THE_NINTH = "a0: &a0 [0]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 10))


@pytest.mark.parametrize(
    "text",
    [b"[1]", b"5", bytes(range(256)), b"a: [1", b"a: &a [*a]", b"!!python/name:os.system x", b"stands_for: [1]",
     TEN_TO_THE_NINTH.encode()],
    ids=["list", "number", "bytes", "torn", "circle", "code", "stands for a list", "many anchors"],
)  # fmt: skip
@pytest.mark.parametrize("words", [["data", "list"], ["run", "plan=true", "dataset=mine"]], ids=["data", "run"])
def test_a_settings_file_that_is_none(tmp_path, capsys, text, words):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine.yaml").write_bytes(text)
    ends_in_a_sentence([*words, "--config-dir", str(tmp_path)], capsys, "mine")


def test_files_of_a_dataset_that_are_none(tmp_path, capsys):
    words = ["run", "plan=true", f"results={tmp_path}", "dataset.ringnorm_drawn.files=[1]"]
    ends_in_a_sentence(words, capsys, "each of its files is a mapping with a name")
