"""Which processes train in a results folder: each has a small file there that names its cells, and keeps it fresh."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlmexp.records.files import write_atomically
from dlmexp.records.provenance import own_job

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # a process without a heartbeat for this long counts as dead; network disks delay some


@dataclass(frozen=True)
class ActiveProcess:
    """A live process and the keys of the cells that it trains at the moment."""

    name: str
    host: str
    pid: int
    keys: dict[str, int]  # and when they were announced, in nanoseconds since the epoch
    job: str | None = None  # SLURM job

    @property
    def description(self) -> str:
        """Host, process id and SLURM job, for messages."""
        return f"{self.host} pid {self.pid}" + (f" job {self.job}" if self.job else "")


class Presence:
    """The file of this process, from entering to leaving the context; a thread updates its time of modification."""

    def __init__(self, root: Path):
        self.folder = root / "running"
        host, pid = socket.gethostname(), os.getpid()
        self.name = f"{host}-{pid}-{time.time_ns()}"
        self.path = self.folder / f"{self.name}.json"
        self._about = {"host": host, "pid": pid, "job": own_job()}
        self._keys: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)

    def __enter__(self) -> "Presence":
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def announce(self, keys: Iterable[str]) -> None:
        """Write that this process trains these cells as well from now on."""
        moment = time.time_ns()
        self._keys = dict.fromkeys(keys, moment) | self._keys
        self._write()

    def withdraw(self, keys: Iterable[str]) -> None:
        """Write that it does not train these cells any more."""
        for key in keys:
            self._keys.pop(key, None)
        self._write()

    def announced_earlier(self, keys: Iterable[str]) -> list[ActiveProcess]:
        """Other live processes that announced some of these cells before this one did (names settle a tie)."""
        wanted, moment = frozenset(keys), time.time_ns()
        return [
            process
            for process in active_processes(self.folder.parent)
            if process.name != self.name
            and any(
                (process.keys[key], process.name) < (self._keys.get(key, moment), self.name)
                for key in process.keys.keys() & wanted
            )
        ]

    def _write(self) -> None:
        write_atomically(self.path, json.dumps({**self._about, "keys": self._keys}).encode())

    def _heartbeat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self.path)


def active_processes(root: Path) -> list[ActiveProcess]:
    """The live processes of a results folder. Files of processes that have died on this host are removed."""
    found = []
    for path in sorted((root / "running").glob("*.json")):
        try:
            age = time.time() - path.stat().st_mtime
            about = json.loads(path.read_bytes())
            keys = {key: int(moment) for key, moment in about["keys"].items()}
            process = ActiveProcess(path.stem, about["host"], about["pid"], keys, about["job"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if process.host == socket.gethostname() and not _alive(process.pid):
            with contextlib.suppress(OSError):
                path.unlink()
        elif age < STALE_SECONDS:
            found.append(process)
    return found


def _alive(pid: int) -> bool:
    """Whether a process of this host runs. A zombie (ended, but its parent has not waited for it) does not; in
    containers zombies may stay for good."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc here
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
