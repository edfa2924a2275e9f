"""`dlmexp results fetch` against a server of this machine."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from rich.progress import Progress

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.data.releases import fetch_packs

PACKS = {"paper/records-paper.parquet": b"first pack", "more/records.parquet": b"second pack"}
SILENT = Progress(disable=True)


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *_: object) -> None: ...


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server of the files in a folder."""
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


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with the files of a release."""
    folder = tmp_path / "release"
    folder.mkdir()
    lines = [f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in PACKS.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    for name, body in PACKS.items():
        (folder / name.replace("/", "-")).write_bytes(body)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_packs_are_fetched_once_and_again_where_they_are_damaged(release, tmp_path):
    root = tmp_path / "results"
    with serving(release) as url:
        assert len(fetch_packs(url, root, SILENT)) == 2
        assert files(root) == PACKS
        assert fetch_packs(url, root, SILENT) == []
        (root / "more" / "records.parquet").write_bytes(b"damaged")
        assert fetch_packs(url, root, SILENT) == [root / "more" / "records.parquet"]
    assert files(root) == PACKS


def test_a_pack_with_another_checksum_is_refused_and_what_was_there_stays(release, tmp_path):
    root = tmp_path / "results"
    with serving(release) as url:
        fetch_packs(url, root, SILENT)
        (root / "more" / "records.parquet").write_bytes(b"mine")
        (release / "more-records.parquet").write_bytes(b"other")
        with pytest.raises(UserError, match=r"more-records\.parquet.*hash"):
            fetch_packs(url, root, SILENT)
    assert files(root) == PACKS | {"more/records.parquet": b"mine"}


@pytest.mark.parametrize(
    "line", ["../x.parquet", "/etc/x.parquet", "paper/../../x.parquet", "paper/x.py", "x.parquet"]
)
def test_a_list_that_names_anything_but_packs_is_refused(release, tmp_path, line):
    (release / "SHA256SUMS").write_text(f"{'0' * 64}  {line}\n")
    with serving(release) as url, pytest.raises(UserError, match="is no list of packs"):
        fetch_packs(url, tmp_path / "results", SILENT)
    assert files(tmp_path / "results") == {}


def test_without_an_address_the_command_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DLMEXP_RESULTS_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["results", "fetch"]) == 2
    message = capsys.readouterr().err
    assert "--url or DLMEXP_RESULTS_URL" in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_address_may_stand_in_the_environment(release, tmp_path, monkeypatch, capsys):
    with serving(release) as url:
        monkeypatch.setenv("DLMEXP_RESULTS_URL", f"{url}/")
        assert main(["results", "fetch", "--out", str(tmp_path / "results")]) == 0
    assert "records-paper.parquet" in capsys.readouterr().out
    assert files(tmp_path / "results") == PACKS
