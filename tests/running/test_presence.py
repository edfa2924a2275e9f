"""Active processes: live ones are found, dead ones are not."""

import json
import os
import subprocess
import sys
import time

import pytest

from dlmexp.running import presence
from dlmexp.running.presence import Presence, active_processes


def _other(root, keys, host="elsewhere", pid=1, announced=0):
    folder = root / "running"
    folder.mkdir(exist_ok=True)
    path = folder / f"{host}-{pid}-1.json"
    about = {"host": host, "pid": pid, "job": None, "keys": dict.fromkeys(keys, announced)}
    path.write_text(json.dumps(about))
    return path


def test_announced_while_it_lives(tmp_path):
    with Presence(tmp_path) as mine:
        mine.announce(["b", "a"])
        (found,) = active_processes(tmp_path)
        assert found.keys.keys() == {"a", "b"}
        assert str(os.getpid()) in found.description
        mine.withdraw(["a", "b"])
        assert active_processes(tmp_path)[0].keys == {}
    assert active_processes(tmp_path) == []
    assert list((tmp_path / "running").iterdir()) == []


def test_who_was_first(tmp_path):
    with Presence(tmp_path) as mine:
        mine.announce(["a", "b"])
        _other(tmp_path, ["a"], announced=0)
        assert [process.host for process in mine.announced_earlier(["a", "b"])] == ["elsewhere"]
        assert mine.announced_earlier(["b"]) == []
        _other(tmp_path, ["a"], announced=time.time_ns() + 10**12)
        assert mine.announced_earlier(["a"]) == []


def test_a_process_that_was_killed_is_gone_at_once(tmp_path):
    import socket

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = _other(tmp_path, ["a"], host=socket.gethostname(), pid=ended.pid)
    assert active_processes(tmp_path) == []
    assert not path.exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc on this machine")
def test_so_is_one_that_nobody_waited_for(tmp_path):
    import socket

    unreaped = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert unreaped.stdout is not None
    unreaped.stdout.read()
    os.waitid(os.P_PID, unreaped.pid, os.WEXITED | os.WNOWAIT)
    _other(tmp_path, ["a"], host=socket.gethostname(), pid=unreaped.pid)
    assert active_processes(tmp_path) == []
    unreaped.wait()
    unreaped.stdout.close()


def test_a_silent_process_elsewhere_counts_as_gone(tmp_path):
    path = _other(tmp_path, ["a"])
    assert len(active_processes(tmp_path)) == 1
    old = time.time() - presence.STALE_SECONDS - 1
    os.utime(path, (old, old))
    assert active_processes(tmp_path) == []
    assert path.exists(), "another machine's file is not ours to remove"


def test_a_live_process_keeps_its_file_fresh(tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "HEARTBEAT_SECONDS", 0.01)
    with Presence(tmp_path) as mine:
        os.utime(mine.path, (0, 0))
        end = time.monotonic() + 10
        while not active_processes(tmp_path) and time.monotonic() < end:
            time.sleep(0.01)
        assert len(active_processes(tmp_path)) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_unreadable_files_are_nobody(tmp_path, content):
    (tmp_path / "running").mkdir()
    (tmp_path / "running" / "x.json").write_text(content)
    assert active_processes(tmp_path) == []
