"""Atomic files, files that stay in their folder, and the processes in the names of files."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlmexp.common import atomic
from dlmexp.common.atomic import (
    check_output,
    is_dead,
    is_running,
    is_writable,
    machine,
    path_inside,
    replacing,
    this_process,
    write_atomically,
    writer_of,
)
from dlmexp.common.errors import UserError


def test_file_appears_under_its_name_at_the_end(tmp_path):
    path = tmp_path / "new" / "file.csv"
    write_atomically(path, b"old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_unfinished_file_names_its_writer(tmp_path):
    with replacing(tmp_path / "file.csv") as temporary:
        assert temporary.parent == tmp_path
        assert writer_of(temporary) == this_process()
        temporary.touch()


@pytest.mark.parametrize(
    "name",
    ["file.csv", "file.csv.abc-1.0123.tmp", ".file.csv.abc-1.0123", ".1.tmp", ".tmp"],
)
def test_other_files_have_no_writer(name):
    assert writer_of(Path(name)) is None


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("durable", "count"), [(True, 2), (False, 0)])
def test_durable_file_and_its_folder_are_flushed_to_disk(tmp_path, monkeypatch, durable, count):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(descriptor))
    write_atomically(tmp_path / "file", b"content", durable)
    assert len(flushed) == count


def test_folder_that_can_not_be_flushed_is_no_error(tmp_path, monkeypatch):
    plain_open = os.open

    def refuse(path, *arguments, **options):
        if path == tmp_path:
            raise OSError(22, "Invalid argument")
        return plain_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_path_through_a_link_to_a_folder_is_refused(tmp_path):
    root = tmp_path / "root"
    (root / "plain").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    for path in (root / "link", root / "link" / "file", root / "link" / "deep" / "file"):
        with pytest.raises(OSError, match="symbolic link"):
            path_inside(root, path)
    assert path_inside(root, root / "plain" / "file") == root / "plain" / "file"


def test_root_itself_may_be_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    root = tmp_path / "root"
    root.symlink_to(tmp_path / "elsewhere")
    assert path_inside(root, root / "file") == root / "file"


def test_path_outside_the_root_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not in the subpath"):
        path_inside(tmp_path / "root", tmp_path / "file")


def test_folder_without_write_bits_is_not_writable(tmp_path):
    assert is_writable(tmp_path / "not" / "there")
    tmp_path.chmod(0o555)
    try:
        assert not is_writable(tmp_path)
        assert not is_writable(tmp_path / "not" / "there")
    finally:
        tmp_path.chmod(0o755)


def test_file_is_no_writable_folder(tmp_path):
    (tmp_path / "file").touch()
    assert not is_writable(tmp_path / "file")


def test_output_needs_one_of_its_endings(tmp_path):
    check_output(tmp_path / "out.csv", "--out out.csv", (".csv", ".txt"))
    check_output(tmp_path / "out", "--out out")
    with pytest.raises(UserError, match=r"--out x.pdf: name a file that ends in .csv or .txt"):
        check_output(tmp_path / "x.pdf", "--out x.pdf", (".csv", ".txt"))


@pytest.mark.parametrize("path", [".", "not-there/out.csv", "file/out.csv"])
def test_output_in_a_folder_that_can_not_be_written_is_refused(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--out: can't write there"):
        check_output(tmp_path / path, "--out")


def test_output_in_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(UserError, match="can't write there"):
            check_output(tmp_path / "out.csv", "--out")
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        ("{machine}-999999999", True),
        ("elsewhere-1", None),
        ("{machine}-", None),
        ("{machine}-x", None),
        ("{machine}-١", None),  # a digit, but not of ASCII
        ("{machine}-1000000000", None),  # no process id is so large
    ],
)
def test_process_is_dead_if_this_machine_says_so(process, expected):
    assert is_dead(process.format(machine=machine())) is expected


def test_this_process_is_not_dead():
    assert is_dead(this_process()) is False


def test_processes_of_another_boot_are_of_another_machine(monkeypatch):
    here = machine()
    monkeypatch.setattr(Path, "read_text", lambda self: "another boot")
    assert atomic.machine.__wrapped__() != here


@pytest.mark.processes
def test_zombie_is_not_alive():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert is_running(process.pid)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped
    assert not is_running(process.pid)
    process.wait()


def test_process_of_another_user_is_alive(monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert is_running(1)


@pytest.mark.parametrize("kind", ["device", "pipe", "link to a device"])
def test_output_that_is_there_and_no_plain_file_is_refused(tmp_path, kind):
    """As root, the device would be replaced by a file."""
    path = tmp_path / "out.html"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    else:
        path = Path("/dev/null")
    with pytest.raises(UserError, match="not a plain file"):
        check_output(path, f"--out {path}")


def test_error_of_a_write_names_the_file(tmp_path, monkeypatch):
    """That of a write to a full disk has no name."""

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "table.csv"
    with pytest.raises(OSError, match="No space left") as failure:
        write_atomically(path, b"content")
    assert failure.value.filename == str(path)
