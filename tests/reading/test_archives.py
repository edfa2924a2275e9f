"""Malicious and damaged archives are refused; nothing is ever written."""

import bz2
import io
import pickle
import random
import tarfile
import zipfile

import numpy as np
import pytest

from dlmexp.errors import UserError
from dlmexp.reading.archives import open_raw
from dlmexp.reading.arrays import read_npz


def make_zip(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make_tgz(path, *infos):
    with tarfile.open(path, "w:gz") as archive:
        for info, content in infos:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def read(path, member=None, limit=30_000):
    with open_raw(path, member, limit) as stream:
        return stream.read()


def test_members_are_found_by_file_name(tmp_path):
    assert read(make_zip(tmp_path / "a.zip", {"x/": "", "x/f.txt": "hello"}), "f.txt") == b"hello"
    assert read(make_tgz(tmp_path / "a.tgz", (tarfile.TarInfo("x/f.txt"), b"hello")), "f.txt") == b"hello"
    (tmp_path / "f.bz2").write_bytes(bz2.compress(b"hello"))
    assert read(tmp_path / "f.bz2") == b"hello"
    (tmp_path / "f.txt").write_bytes(b"hello")
    assert read(tmp_path / "f.txt", limit=1) == b"hello"  # the limit is for compressed files only


@pytest.mark.parametrize("name", ["../f.txt", "/etc/f.txt", "a/../../f.txt", "..\\f.txt"])
def test_members_with_paths_outside_the_archive_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="points outside"):
        read(make_zip(tmp_path / "a.zip", {"f.txt": "fine", name: "evil"}), "f.txt")
    with pytest.raises(UserError, match="points outside"):
        read(make_tgz(tmp_path / "a.tgz", (tarfile.TarInfo(name), b"evil")), "f.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "a.zip"]


def test_decompression_stops_at_the_limit(tmp_path):
    bomb = b"0" * 1_000_000
    (tmp_path / "f.bz2").write_bytes(bz2.compress(bomb))
    for path, member in [
        (make_zip(tmp_path / "a.zip", {"f.txt": bomb}), "f.txt"),
        (make_tgz(tmp_path / "a.tgz", (tarfile.TarInfo("f.txt"), bomb)), "f.txt"),
        (make_tgz(tmp_path / "b.tgz", (tarfile.TarInfo("big"), bomb), (tarfile.TarInfo("f.txt"), b"")), "f.txt"),
        (tmp_path / "f.bz2", None),
    ]:
        with pytest.raises(UserError, match="more than 30000 bytes"):
            read(path, member)


def test_links_are_refused(tmp_path):
    link = tarfile.TarInfo("f.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(UserError, match=r"member f\.txt is a link: refused"):
        read(make_tgz(tmp_path / "a.tgz", (link, b"")), "f.txt")


def test_too_many_members_are_refused(tmp_path):
    many = make_zip(tmp_path / "a.zip", {f"{k}": "" for k in range(10_001)})
    with pytest.raises(UserError, match="10001 members"):
        read(many, "f.txt")


def test_a_missing_member_lists_those_present(tmp_path):
    with pytest.raises(UserError, match=r"no member 'f.txt'; it has g.txt"):
        read(make_zip(tmp_path / "a.zip", {"g.txt": ""}), "f.txt")
    with pytest.raises(UserError, match="is an archive"):
        read(make_zip(tmp_path / "a.zip", {"g.txt": ""}))


@pytest.mark.parametrize("name", ["a.zip", "a.tgz", "a.bz2"])
def test_damaged_archives_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"this is not an archive at all")
    with pytest.raises(UserError, match=f"{name} is damaged"):
        read(tmp_path / name, "f.txt")


def test_truncated_archives_are_named(tmp_path):
    payload = random.Random(0).randbytes(1000)
    (tmp_path / "f.bz2").write_bytes(bz2.compress(payload)[:-20])
    tgz = make_tgz(tmp_path / "a.tgz", (tarfile.TarInfo("f.txt"), payload))
    tgz.write_bytes(tgz.read_bytes()[:600])
    archive = make_zip(tmp_path / "a.zip", {"f.txt": payload}, zipfile.ZIP_STORED)
    data = bytearray(archive.read_bytes())
    data[60] ^= 1
    archive.write_bytes(data)
    for path in (tmp_path / "f.bz2", tgz, archive):
        with pytest.raises(UserError, match="is damaged"):
            read(path, "f.txt")


class Unpicklable:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_in_npz_files_are_refused_without_loading_them(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([Unpicklable()], dtype=object))
    with pytest.raises(UserError, match="without pickles"):
        read_npz(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Unpicklable()))
    with pytest.raises(UserError, match="without pickles"):
        read_npz(tmp_path / "b.npz")


def test_npz_files_are_limited_in_size(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros(100_000))
    with pytest.raises(UserError, match="more than 1000: refused"):
        read_npz(tmp_path / "a.npz", limit=1000)
    assert list(read_npz(tmp_path / "a.npz")) == ["X"]
