"""Readers of untrusted files: sizes are limited first, and whatever a library raises names the file."""

import bz2
import gzip
import io
import os
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import (
    open_raw,
    read_content,
    read_npz,
    reading,
)


def test_errors_of_a_library_name_the_file_and_those_of_the_system_stay(tmp_path):
    for error in (
        ValueError("odd\nmore"),
        MemoryError(),
        RecursionError("deep"),
        OSError("no number"),
    ):
        with (
            pytest.raises(Unreadable, match=r"^a\.bin is odd \(\S+( number)?\)$"),
            reading("a.bin", "is odd"),
        ):
            raise error
    with pytest.raises(FileNotFoundError), reading("x"):
        (tmp_path / "none").read_bytes()
    with pytest.raises(Unreadable, match=r"^ours$"), reading("x"):
        raise Unreadable("ours")


def test_only_plain_files_up_to_a_limit_are_read(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    assert read_content(tmp_path / "f", 5) == b"12345"
    with pytest.raises(Unreadable, match="5 bytes, more than 4"):
        read_content(tmp_path / "f", 4)
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", tmp_path):
        with pytest.raises(Unreadable, match="not a plain file"):
            read_content(odd)


def archive(path, name: str = "a/f.txt", text: bytes = b"hello", kind: bytes = tarfile.REGTYPE):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr(name, text)
    elif path.name in ("x.bz2", "x.gz"):
        path.write_bytes((bz2 if path.suffix == ".bz2" else gzip).compress(text))
    else:
        with tarfile.open(path, "w:gz") as made:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(text), kind, "/etc/passwd"
            made.addfile(info, io.BytesIO(text) if kind == tarfile.REGTYPE else None)
    return path


@pytest.mark.parametrize("name", ["x.zip", "x.tgz", "x.bz2", "x.gz"])
def test_members_of_archives(tmp_path, name):
    path, member = tmp_path / name, None if name in ("x.bz2", "x.gz") else "f.txt"
    with open_raw(archive(path), member) as stream:
        assert stream.read() == b"hello"
    sound = path.read_bytes()
    archive(path, text=b"0" * 100_000)
    with (
        pytest.raises(Unreadable, match="more than 2000 bytes"),
        open_raw(path, member, 2000) as stream,
    ):
        stream.read()
    path.write_bytes(sound[: len(sound) // 2])
    refused = [(name, {})]
    refused += [("no file 'f.txt' in it; it has g", {"name": "g"})] if member else []
    if name == "x.tgz":
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
        refused += [("no file 'f.txt'", {"kind": kind}) for kind in kinds]
    for word, changed in refused:
        if changed:
            archive(path, **changed)
        with pytest.raises(Unreadable, match=word), open_raw(path, member) as stream:
            stream.read()


def npz(shape: str, descr: str = "<f8", data: bytes = b"\0" * 16) -> bytes:
    """The bytes of an npz file with one array that claims this type and shape."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        text = (
            f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(
                118
            )
            + b"\n"
        )
        made.writestr("X.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return buffer.getvalue()


@pytest.mark.parametrize("made", [
    npz("(1000000000000,)"), npz("(-1,)"), npz("(2,)", "|O"), npz("(10,)", "|S0", b""), npz("(3,)"), npz("]"),
    npz("(4,)", "<U1", b"a\0\0\0" * 4), b"no zip file", npz("(2,)")[:-30],
], ids=range(9))  # fmt: skip
def test_arrays_that_are_not_sound_are_refused(made, tmp_path):
    (tmp_path / "a.npz").write_bytes(made)
    with pytest.raises(Unreadable, match=r"a\.npz"):
        read_npz(tmp_path / "a.npz")
    with pytest.raises(Unreadable, match="the arrays"):
        read_npz(made, "the arrays")


def test_arrays_and_their_limit(tmp_path):
    arrays = {
        "X": np.arange(6.0).reshape(2, 3),
        "é": np.array([True]),
        "n": np.array(3),
        "e": np.zeros((0, 3)),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = read_npz(tmp_path / "a.npz")
    assert {name: value.tolist() for name, value in found.items()} == {
        k: v.tolist() for k, v in arrays.items()
    }
    assert read_npz(tmp_path / "a.npz", only=lambda name: name == "n").keys() == {"n"}
    np.savez_compressed(tmp_path / "b.npz", X=np.zeros(100_000))
    with pytest.raises(Unreadable, match="more than 9000"):
        read_npz(tmp_path / "b.npz", limit=9000)


class Pickled:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_no_pickle_is_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([Pickled(tmp_path / "loaded")]))
    with pytest.raises(Unreadable, match=r"a\.npz.*'X'"):
        read_npz(tmp_path / "a.npz")
    assert not (tmp_path / "loaded").exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as arrays:
        assert arrays["X"].shape == (1,)
    assert (tmp_path / "loaded").exists(), "or the file would do no harm"
