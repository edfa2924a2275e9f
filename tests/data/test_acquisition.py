"""From an address or a user's file to a verified file in the data root."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.progress import Progress

from dlmexp.cli import main
from dlmexp.common.atomic import machine, this_process
from dlmexp.common.catalogue import with_members
from dlmexp.common.errors import UserError
from dlmexp.data import acquisition
from dlmexp.data.acquisition import fetch, import_files
from dlmexp.data.dataset import FileSpec, read_spec
from dlmexp.data.raw_files import load
from tests.support.toy_data import ARFF, OTHER, SHA, TABLE, X, all_files, toy

SILENT = Progress(disable=True)


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


@contextmanager
def serving_folder(folder: Path) -> Iterator[str]:
    """The address of a server of the files below a folder."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


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


def test_download_without_a_known_size_stops_at_the_limit(monkeypatch):
    monkeypatch.setattr(acquisition, "MAX_BYTES", 100)
    bar = acquisition._DownloadBar(SILENT, "a")
    bar.update(100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        bar.update(1)
    bar.reset()
    bar.update(100)


def test_other_file_that_need_not_be_the_published_one_is_kept(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_bytes(OTHER)
    spec = toy(url="http://127.0.0.1:9/x", sha256=SHA, pinned=False)
    assert fetch(spec, tmp_path, SILENT) == []


def test_files_of_an_incomplete_group_are_imported_unparsed(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1,2,x\n")
    spec = toy(FileSpec("toy/a.csv", group="i"), FileSpec("toy/b.csv", group="i"))
    assert import_files(spec, tmp_path / "root", [tmp_path / "a.csv"])


def test_files_of_python_packages_are_not_imported(tmp_path):
    (tmp_path / "a.csv").write_bytes(TABLE)
    spec = toy(FileSpec("a.csv", package="numpy"), FileSpec("toy/b.csv"))
    with pytest.raises(UserError, match=r"none of the files.*: b\.csv$"):
        import_files(spec, tmp_path / "root", [tmp_path / "a.csv"])


def test_a_dataset_of_a_suite_that_cannot_be_fetched_does_not_keep_the_others_back(
    tmp_path, monkeypatch, capsys
):
    specs = {"a": toy(url="http://127.0.0.1:9/"), "b": read_spec("ringnorm_drawn")}
    monkeypatch.setattr("dlmexp.common.catalogue.suites", lambda: {"both": ["a", "b"]})
    monkeypatch.setattr("dlmexp.data.dataset.read_spec", specs.get)
    assert main(["data", "fetch", "both", "--data-root", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "ringnorm_drawn: nothing to fetch" in output.out
    assert "127.0.0.1" in output.err


@pytest.mark.slow
def test_suite_is_fetched_whole_and_passes_its_checks(
    data_root: Path, tmp_path: Path, monkeypatch, capsys
):
    names = with_members(["uci_small"])
    specs = {name: read_spec(name) for name in names}
    files = [file.name for spec in specs.values() for file in spec.files]
    if not all((data_root / file).is_file() for file in files):
        pytest.skip(f"not all of uci_small is in {data_root}")
    with serving_folder(data_root) as url:
        for spec in specs.values():
            spec.files = [
                msgspec.structs.replace(file, url=f"{url}/{file.name}") for file in spec.files
            ]
        monkeypatch.setattr("dlmexp.data.dataset.read_spec", specs.get)
        assert main(["data", "fetch", "uci_small", "--data-root", str(tmp_path)]) == 0
    assert all_files(tmp_path) == sorted(files)
    assert main(["data", "check", "uci_small", "--data-root", str(tmp_path)]) == 0
    assert f"{len(names)} passed, 0 failed" in capsys.readouterr().out


def test_ringnorm_can_be_fetched_from_files_that_have_kept_their_decimal_points():
    groups = {file.group: file for file in read_spec("ringnorm").files if file.url}
    assert len(groups) == 2
    assert all(file.sha256 and "pmlb" not in str(file.url) for file in groups.values())


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_import_of_what_is_no_file_is_refused(tmp_path, kind):
    path = tmp_path / "toy.dat"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a plain file"):
        import_files(toy(sha256=SHA), tmp_path / "data", [path])


def test_fetch_removes_what_a_killed_one_left(tmp_path):
    """Not what another process is fetching just now, here or elsewhere."""
    for process in (f"{machine()}-999999999", this_process(), "elsewhere-77", "old"):
        (tmp_path / f".incoming-{process}.x").mkdir()
    day_ago = time.time() - 25 * 3600
    os.utime(tmp_path / ".incoming-old.x", (day_ago, day_ago))
    with serving(TABLE) as url:
        fetch(toy(url=url, sha256=SHA), tmp_path, SILENT)
    left = sorted(path.name for path in tmp_path.glob(".incoming-*"))
    assert left == sorted([f".incoming-{this_process()}.x", ".incoming-elsewhere-77.x"])
