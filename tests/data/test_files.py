"""From an address or a user's file to arrays: downloads, imports, `dlmexp data`."""

import hashlib
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.data import acquisition
from dlmexp.data.acquisition import fetch, import_files
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import FileSpec, dataset_names, read_spec
from dlmexp.data.raw_files import find_files, how_to_get, load

TABLE = "".join(f"{k / 10},{k % 7},{2 * (k % 2) - 1}\n" for k in range(50)).encode()
OTHER = TABLE.replace(b",3,", b",4,")
X = np.loadtxt(io.BytesIO(TABLE), delimiter=",")[:, :2]
CHECKS = {"checks": {"x_mean": X.mean(0).tolist(), "x_std": X.std(0).tolist()}}
ARFF = b"@relation toy\n@attribute a real\n@data\n" + TABLE
SHA = hashlib.sha256(TABLE).hexdigest()


SILENT = Progress(disable=True)


def toy(*files: FileSpec, **file) -> DatasetConfig:
    how: Any = (
        {"files": [*files], "options": CHECKS}
        if files
        else {"files": [FileSpec("toy/toy.dat", **file)]}
    )
    return DatasetConfig(
        "toy", "label_last", "binary", split="counts", features=2, note="a note", **how
    )


def all_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@contextmanager
def serving(body: bytes, *errors: int) -> Iterator[str]:
    """The address of a server that answers with these `errors` first, then with the file."""
    left = list(errors)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = (left.pop(0), b"") if left else (200, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/file"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def root(tmp_path):
    """A data root with the toy data."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_bytes(TABLE)
    return tmp_path


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def test_fetch_puts_a_verified_file_in_place(tmp_path):
    bars = Progress(disable=True)
    with serving(TABLE) as url:
        spec = toy(url=url, sha256=SHA)
        assert fetch(spec, tmp_path, bars) == [tmp_path / "toy" / "toy.dat"]
        assert fetch(spec, tmp_path, SILENT) == []
        (tmp_path / "toy" / "toy.dat").write_bytes(b"damaged")
        assert len(fetch(spec, tmp_path, SILENT)) == 1
    assert [(bar.description, bar.completed, bar.total) for bar in bars.tasks] == [
        ("toy/toy.dat", *[len(TABLE)] * 2)
    ]
    assert all_files(tmp_path) == ["toy/toy.dat"]


@pytest.mark.parametrize(("body", "errors", "file", "word"), [
    (TABLE, [], {"sha256": "0" * 64}, "hash"), (TABLE, [], {"git_blob": "0" * 40}, "git blob"),
    (b"1,2,x\n", [], {}, "3 numbers"), (TABLE, [404] * 9, {}, "404"), (TABLE, [], {"url": "ftp://h/x"}, "ftp://h/x"),
    (TABLE, [], {"url": "file:///etc/passwd"}, "file:///etc/passwd"), (TABLE, [], {"url": "nonsense"}, "nonsense"),
    (TABLE, [], {"url": "http://127.0.0.1:9/x"}, "127.0.0.1:9/x"), (TABLE, [], {"url": "http://["}, r"http://\["),
    (TABLE, [], {"url": None}, "no public address.*dlmexp data import toy"),
])  # fmt: skip
def test_what_is_not_the_file_leaves_nothing_behind(tmp_path, body, errors, file, word):
    with serving(body, *errors) as url, pytest.raises(UserError, match=word):
        fetch(toy(**{"url": url, "pinned": False, **file}), tmp_path, SILENT)
    assert all_files(tmp_path) == []


def test_files_that_are_too_large_folders_that_are_closed_and_data_without_files(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(acquisition, "MAX_BYTES", 100)
    with serving(TABLE) as url, pytest.raises(UserError, match="more than 100 bytes"):
        fetch(toy(url=url), tmp_path, SILENT)
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(UserError, match="read-only"):
        fetch(toy(url="http://127.0.0.1:9/"), tmp_path / "closed", SILENT)
    assert fetch(read_spec("ringnorm_drawn"), tmp_path, SILENT) == []
    assert all_files(tmp_path) == []


def test_errors_that_pass_mirrors_and_other_formats_are_tried_in_order(tmp_path):
    with serving(TABLE, 503, 500) as url:
        fetch(toy(url=url, sha256=SHA), tmp_path / "d", SILENT)
    with serving(b"", *[404] * 99) as gone, serving(TABLE) as good:
        fetch(toy(url=gone, mirrors=(gone, good), sha256=SHA), tmp_path / "a", SILENT)
        with pytest.raises(UserError, match=r"404.*; then .*404"):
            fetch(toy(url=gone, mirrors=(gone,)), tmp_path / "b", SILENT)
    with serving(OTHER) as wrong, serving(ARFF) as right:
        spec = toy(
            FileSpec("toy/a.csv", url=wrong, group="a"),
            FileSpec("toy/b.arff", url=right, group="b"),
        )
        assert fetch(spec, tmp_path / "c", SILENT) == [tmp_path / "c" / "toy" / "b.arff"]
    assert all_files(tmp_path / "c") == ["toy/b.arff"]


def test_import_by_name_and_checksum(tmp_path):
    for name, spec, copy in (("toy.dat", toy(sha256=SHA), "toy.dat"), ("renamed.bin", toy(sha256=SHA), "toy.dat"),
                             ("any.csv", toy(FileSpec("toy/*.csv")), "any.csv")):  # fmt: skip
        (tmp_path / name).write_bytes(TABLE)
        root = tmp_path / f"root of {name}"
        assert import_files(spec, root, [tmp_path / name]) == [root / "toy" / copy]
        assert np.array_equal(load(spec, root).X, X)
        assert (tmp_path / name).exists()
    (tmp_path / "other.dat").write_bytes(OTHER)
    (tmp_path / "toy.dat").write_bytes(b"1,2,x\n")
    for spec, name, word in (
        (toy(), "other.dat", "none of the files.*toy.dat"),
        (toy(sha256="0" * 64), "toy.dat", "published"), (toy(), "toy.dat", "3 numbers"),
        (read_spec("twonorm_drawn"), "toy.dat", "no file"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=word):
            import_files(spec, tmp_path / "root", [tmp_path / name])
    assert all_files(tmp_path / "root") == []


def test_groups_of_files_are_alternatives(tmp_path):
    files = [
        FileSpec("t/a", group="i"),
        FileSpec("t/b", group="i", page="http://x.org"),
        FileSpec("t/*.z", group="j"),
    ]
    spec = DatasetConfig("t", "pol", "regression", split="regression", files=files)
    assert find_files(spec, tmp_path).state == "missing"
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").touch()
    found = find_files(spec, tmp_path)
    assert (found.state, [entry.name for entry in found.best.missing]) == ("partial", ["t/b"])
    said = how_to_get(spec, found, tmp_path)
    assert all(
        word in said
        for word in ("has no t/b", "dlmexp data import t", "http://x.org", str(tmp_path))
    )
    (tmp_path / "t" / "k.z").touch()
    assert list(find_files(spec, tmp_path).best.files) == ["t/k.z"]


def test_what_is_loaded_is_verified_and_read_only(root):
    first = load(toy(), root)
    with pytest.raises(ValueError, match="read-only"):
        first.X[0, 0] = 1.0
    (root / "toy" / "toy.dat").write_bytes(TABLE + b"7,8,1\n")
    assert load(toy(), root).checksum != first.checksum
    with pytest.raises(UserError, match="0" * 64):
        load(toy(sha256="0" * 64), root)
    assert len(load(toy(sha256="0" * 64, pinned=False), root).y) == 51


def test_the_command(root, monkeypatch, capsys):
    assert main(["data", "list", "--data-root", str(root)]) == 0
    assert {*dataset_names()} <= {*capsys.readouterr().out.split()}
    monkeypatch.setattr("dlmexp.data.dataset.read_spec", lambda name: toy())
    monkeypatch.setattr("dlmexp.data.dataset.dataset_names", lambda: ["toy"])
    there = ["--data-root", str(root / "[red]")]
    assert main(["data", "list", *there]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["toy", "binary", "2", "missing"]
    for action, word in ((["import", "toy", str(root / "toy" / "toy.dat")], "toy is ready"), (["fetch", "toy"], "toy"),
                         (["check"], "50 x 2 parsed")):  # fmt: skip
        assert main(["data", *action, *there]) == 0
        assert word in capsys.readouterr().out
    (root / "[red]" / "toy" / "toy.dat").write_text("1,2,9\n")
    assert main(["data", "check", "toy", *there]) == 1
    assert main(["data", "check", "--data-root", str(root / "nowhere")]) == 2


# of the values, whatever the format of the file: part of the keys of published results
CHECKSUMS = {
    "abalone": "51502a0c4cdf", "banana": "3db3221ec108", "cadata": "c1321452dee9", "flights": "7b472808b380",
    "peds1_left": "ef11ba3e6199", "pol": "a420adce2a89", "ringnorm": "192a12c663fd", "sarcos_test": "ab0379a883eb",
    "thyroid": "1a90e3a78b55", "twonorm": "c6f9fd4c4e1a",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKSUMS)
def test_real_data_has_the_published_checksum(data_root, name):
    if name == "flights" and len(list((data_root / "flights").glob("*.npz"))) != 4:
        pytest.skip("not all four parts of flights are there")
    assert load(read_spec(name), data_root).checksum.startswith(CHECKSUMS[name])
