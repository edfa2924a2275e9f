"""fetch and import: only complete, verified and parsed files get their final names."""

import contextlib
import fcntl
import hashlib
import io
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dlmexp.data import acquire
from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError
from tests.support.http_server import Behaviour, serving

TABLE = "".join(f"{k / 10},{k % 7},{2 * (k % 2) - 1}\n" for k in range(50)).encode()


def silent(name):
    return lambda done, total: None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def label_last(**file) -> DatasetSpec:
    return DatasetSpec("toy", "label_last", "binary", "counts", features=2, files=(FileSpec("toy/toy.dat", **file),))


def song(url: str) -> DatasetSpec:
    archive = FileSpec("song/YearPredictionMSD.txt.zip", url=url)
    return DatasetSpec("song", "song", "regression", "regression", features=2, files=(archive,))


def all_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_fetch_puts_a_verified_file_in_place(tmp_path):
    with serving(Behaviour(body=TABLE)) as url:
        spec = label_last(url=url, sha256=digest(TABLE))
        assert acquire.fetch(spec, tmp_path, silent) == [tmp_path / "toy" / "toy.dat"]
        assert all_files(tmp_path) == ["toy/toy.dat"]
        assert acquire.fetch(spec, tmp_path, silent) == []
    assert load(spec, tmp_path).X.shape == (50, 2)


def test_a_download_with_a_wrong_checksum_is_deleted(tmp_path):
    with serving(Behaviour(body=TABLE)) as url, pytest.raises(UserError, match=f"{digest(TABLE)}.*{'0' * 64}"):
        acquire.fetch(label_last(url=url, sha256="0" * 64), tmp_path, silent)
    assert all_files(tmp_path) == []


def test_a_download_is_verified_even_if_not_pinned(tmp_path):
    with serving(Behaviour(body=TABLE)) as url, pytest.raises(UserError, match="not the expected file"):
        acquire.fetch(label_last(url=url, sha256="0" * 64, pinned=False), tmp_path, silent)


def test_a_damaged_file_is_replaced(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_bytes(b"damaged")
    with serving(Behaviour(body=TABLE)) as url:
        acquire.fetch(label_last(url=url, sha256=digest(TABLE)), tmp_path, silent)
    assert (tmp_path / "toy" / "toy.dat").read_bytes() == TABLE


def test_a_404_error_leaves_no_files(tmp_path):
    with serving(Behaviour(status=[404])) as url, pytest.raises(UserError, match="404"):
        acquire.fetch(label_last(url=url), tmp_path, silent)
    assert all_files(tmp_path) == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../../YearPredictionMSD.txt": b"2001,1,2\n"}, "points outside"),
        ({"other.txt": b"2001,1,2\n"}, "no member 'YearPredictionMSD.txt'"),
        ({"YearPredictionMSD.txt": b"import os; os.system('true')\n"}, "not a table of 3 numbers"),
    ],
)
def test_a_malicious_archive_is_refused(tmp_path, members, message):
    with serving(Behaviour(body=zipped(members))) as url, pytest.raises(UserError, match=message):
        acquire.fetch(song(url), tmp_path / "root", silent)
    assert all_files(tmp_path) == []


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dlmexp.reading.archives.open_raw.__wrapped__.__defaults__", (None, 10_000))
    bomb = zipped({"YearPredictionMSD.txt": b"0" * 1_000_000})
    with serving(Behaviour(body=bomb)) as url, pytest.raises(UserError, match="more than 10000 bytes"):
        acquire.fetch(song(url), tmp_path, silent)
    assert all_files(tmp_path) == []


KILLED_FETCH = """
import sys, time
from pathlib import Path
from dlmexp.data import acquire
from dlmexp.data.spec import DatasetSpec, FileSpec
def slow(name):
    def progress(done, total):
        print(done, flush=True)
        time.sleep(0.2 if done else 0)
    return progress
files = (FileSpec("toy/toy.dat", url=sys.argv[1], sha256=sys.argv[3]),)
spec = DatasetSpec("toy", "label_last", "binary", "counts", features=2, files=files)
acquire.fetch(spec, Path(sys.argv[2]), slow)
"""


@pytest.mark.processes
def test_a_killed_fetch_leaves_no_partial_file_and_is_resumed(tmp_path):
    body = TABLE * 2000
    behaviour = Behaviour(body=body)
    with serving(behaviour) as url:
        command = [sys.executable, "-c", KILLED_FETCH, url, str(tmp_path), digest(body)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        while int(child.stdout.readline()) == 0:
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert not (tmp_path / "toy").exists()
        part = tmp_path / ".incoming" / "toy" / "toy.dat"
        kept = part.stat().st_size
        assert 0 < kept < len(body)
        acquire.fetch(label_last(url=url, sha256=digest(body)), tmp_path, silent)
    assert behaviour.requested_ranges == [None, f"bytes={kept}-"]
    assert all_files(tmp_path) == ["toy/toy.dat"]


def test_two_at_once_do_not_mix(tmp_path):
    (tmp_path / ".incoming" / "toy").mkdir(parents=True)
    with (tmp_path / ".incoming" / "toy" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process"):
            acquire.fetch(label_last(url="http://127.0.0.1:9/"), tmp_path, silent)


def test_a_read_only_data_root_is_an_error(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(UserError, match="read-only"):
        acquire.fetch(label_last(url="http://127.0.0.1:9/"), tmp_path / "closed", silent)
    assert all_files(tmp_path) == []


def test_without_a_url_the_error_says_how_to_import(tmp_path):
    with pytest.raises(UserError, match=r"no public address.*dlmexp data import toy"):
        acquire.fetch(label_last(), tmp_path, silent)


def test_only_missing_files_are_fetched(tmp_path):
    files = (FileSpec("toy/a", url="http://127.0.0.1:9/"), FileSpec("toy/b", url="http://127.0.0.1:9/"))
    spec = DatasetSpec("toy", "sarcos", "regression", "regression", files=files)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a").write_text("there")
    (group,) = acquire._fetchable(spec, tmp_path)
    wanted = [entry.name for entry in group if not acquire._is_valid(entry, tmp_path)]
    assert wanted == ["toy/b"]


def test_import_by_name_and_by_checksum(tmp_path):
    for name in ("toy.dat", "renamed.bin"):
        (tmp_path / name).write_bytes(TABLE)
        root = tmp_path / f"root of {name}"
        assert acquire.import_files(label_last(sha256=digest(TABLE)), root, [tmp_path / name]) == [
            root / "toy" / "toy.dat"
        ]
        assert all_files(root) == ["toy/toy.dat"]
    assert (tmp_path / "toy.dat").exists()


def test_import_refuses_unknown_and_invalid_files(tmp_path):
    (tmp_path / "other.dat").write_bytes(TABLE)
    (tmp_path / "toy.dat").write_bytes(b"1,2,x\n")
    root = tmp_path / "root"
    with pytest.raises(UserError, match=r"none of the files of dataset 'toy', by its name and checksum: toy.dat"):
        acquire.import_files(label_last(), root, [tmp_path / "other.dat"])
    with pytest.raises(UserError, match="no such file"):
        acquire.import_files(label_last(), root, [tmp_path / "nothing"])
    with pytest.raises(UserError, match="published file"):
        acquire.import_files(label_last(sha256="0" * 64), root, [tmp_path / "toy.dat"])
    with pytest.raises(UserError, match="not a table of 3 numbers"):
        acquire.import_files(label_last(), root, [tmp_path / "toy.dat"])
    drawn = DatasetSpec("r", "ringnorm", "binary", "counts", options={"rows": 10})
    with pytest.raises(UserError, match="needs no file"):
        acquire.import_files(drawn, root, [tmp_path / "toy.dat"])
    assert all_files(root) == []


def test_import_by_content(tmp_path):
    """Whatever the file is called, and in whichever of the formats it is."""
    x = np.loadtxt(io.BytesIO(TABLE), delimiter=",")[:, :2]
    checks = {"x_mean": x.mean(0).tolist(), "x_std": x.std(0).tolist()}
    files = (FileSpec("toy/toy.csv", group="a"), FileSpec("toy/toy.arff", group="b"), FileSpec("toy/c", "0" * 64))
    spec = DatasetSpec("toy", "label_last", "binary", "counts", features=2, files=files, options={"checks": checks})
    arff = b"@relation toy\n@attribute a real\n@data\n" + TABLE
    for name, content, copy in (("mine.txt", TABLE, "toy.csv"), ("some.arff", arff, "toy.arff")):
        (tmp_path / name).write_bytes(content)
        root = tmp_path / f"root of {name}"
        assert acquire.import_files(spec, root, [tmp_path / name]) == [root / "toy" / copy]
        assert np.array_equal(load(spec, root).X, x)
    (tmp_path / "other").write_bytes(TABLE.replace(b",3,", b",4,"))
    with pytest.raises(UserError, match=r"by its name, checksum and content: toy.csv, toy.arff"):
        acquire.import_files(spec, tmp_path / "root", [tmp_path / "other"])
    assert not (tmp_path / "root").exists()


def test_the_files_of_a_group_can_be_imported_one_by_one(tmp_path):
    from scipy.io import savemat

    names = ("sarcos_inv", "sarcos_inv_test")
    spec = DatasetSpec(
        "s", "sarcos", "regression", "regression", files=tuple(FileSpec(f"s/{name}.mat") for name in names)
    )
    for name in names:
        savemat(tmp_path / f"{name}.mat", {name: np.random.default_rng(0).normal(size=(30, 28))})
        acquire.import_files(spec, tmp_path / "root", [tmp_path / f"{name}.mat"])
    assert load(spec, tmp_path / "root").X.shape == (60, 21)


def test_a_tar_with_a_symbolic_link_is_refused(tmp_path):
    with tarfile.open(tmp_path / "cal_housing.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("CaliforniaHousing/cal_housing.data")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    spec = DatasetSpec("c", "california", "regression", "regression", files=(FileSpec("c/cal_housing.tgz"),))
    with pytest.raises(UserError, match="is a link: refused"):
        acquire.import_files(spec, tmp_path / "root", [tmp_path / "cal_housing.tgz"])
    assert all_files(tmp_path / "root") == []


def test_progress_is_reported(tmp_path):
    seen: list[tuple[str, int, int | None]] = []
    with serving(Behaviour(body=TABLE)) as url:
        acquire.fetch(label_last(url=url), tmp_path, lambda name: lambda done, total: seen.append((name, done, total)))
    assert seen[-1] == ("toy/toy.dat", len(TABLE), len(TABLE))


def test_mirrors_are_tried_in_order(tmp_path):
    with serving(Behaviour(status=[404] * 9)) as gone, serving(Behaviour(body=TABLE)) as good:
        spec = label_last(url=gone, mirrors=(gone, good), sha256=digest(TABLE))
        assert acquire.fetch(spec, tmp_path, silent) == [tmp_path / "toy" / "toy.dat"]
        with pytest.raises(UserError, match=r"404.*; then .*404"):
            acquire.fetch(label_last(url=gone, mirrors=(gone,)), tmp_path / "other", silent)


def test_other_groups_of_files_are_tried_where_the_first_is_not_the_data(tmp_path):
    """A file that parses but holds other numbers is refused by its content, and the next format is fetched."""
    other = TABLE.replace(b",3,", b",4,")
    x = np.loadtxt(io.BytesIO(TABLE), delimiter=",")[:, :2]
    checks = {"x_mean": x.mean(0).tolist(), "x_std": x.std(0).tolist()}
    arff = b"@relation toy\n@attribute a real\n@data\n" + TABLE
    with serving(Behaviour(body=other)) as wrong, serving(Behaviour(body=arff)) as right:
        files = (FileSpec("toy/a.csv", url=wrong, group="a"), FileSpec("toy/b.arff", url=right, group="b"))
        spec = DatasetSpec("toy", "label_last", "binary", "counts", features=2, files=files, options={"checks": checks})
        assert acquire.fetch(spec, tmp_path, silent) == [tmp_path / "toy" / "b.arff"]
    assert all_files(tmp_path) == ["toy/b.arff"]
    assert np.array_equal(load(spec, tmp_path).X, x)


def test_a_staging_folder_that_others_remove_and_make_at_the_same_time(tmp_path):
    inside: Counter[str] = Counter()

    def use(name: str) -> int:
        used = 0
        for _ in range(40):
            with contextlib.suppress(acquire.Busy), acquire._staging_folder(tmp_path, name) as folder:
                inside[name] += 1
                assert inside[name] == 1, "one at a time"
                (folder / "part").touch()
                (folder / "part").unlink()
                inside[name] -= 1
                used += 1
        return used

    with ThreadPoolExecutor(6) as pool:
        assert any(pool.map(use, ["a", "a", "a", "b", "b", "b"]))
    assert all_files(tmp_path) == []
