"""Who is at work in a results folder: one small file per process, touched while it lives."""

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

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # network disks and busy nodes may delay a beat; after this long the process counts as gone


@dataclass(frozen=True)
class Worker:
    """A process and the cells it trains at the moment."""

    name: str
    host: str
    pid: int
    announced: int
    keys: frozenset[str]
    job: str | None = None  # of a cluster's scheduler

    @property
    def who(self) -> str:
        return f"{self.host} pid {self.pid}" + (f" job {self.job}" if self.job else "")


class Presence:
    """This process's own file: announce cells, keep it fresh, take it away at the end."""

    def __init__(self, root: Path):
        self.folder = root / "running"
        host, pid = socket.gethostname(), os.getpid()
        self.name = f"{host}-{pid}-{time.time_ns()}"
        self.path = self.folder / f"{self.name}.json"
        self._about = {"host": host, "pid": pid, "job": own_job()}
        self._announced = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Presence":
        self.announce(())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def announce(self, keys: Iterable[str]) -> None:
        """Tell the others which cells are being trained here now."""
        self._announced = time.time_ns()
        about = {**self._about, "announced": self._announced, "keys": sorted(keys)}
        write_atomically(self.path, json.dumps(about).encode())

    def earlier(self, keys: Iterable[str]) -> list[Worker]:
        """Live processes that announced some of these cells before this one did (names settle a tie)."""
        wanted, mine = frozenset(keys), (self._announced, self.name)
        return [
            worker
            for worker in workers(self.folder.parent)
            if worker.name != self.name and worker.keys & wanted and (worker.announced, worker.name) < mine
        ]

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self.path)


def workers(root: Path) -> list[Worker]:
    """The live processes of a results folder; files of dead ones are ignored (and removed where that can be known)."""
    found = []
    for path in sorted((root / "running").glob("*.json")):
        try:
            age = time.time() - path.stat().st_mtime
            about = json.loads(path.read_bytes())
            keys = frozenset(about["keys"])
            worker = Worker(path.stem, about["host"], about["pid"], about["announced"], keys, about["job"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if worker.host == socket.gethostname() and not _alive(worker.pid):
            with contextlib.suppress(OSError):
                path.unlink()
        elif age < STALE_SECONDS:
            found.append(worker)
    return found


def _alive(pid: int) -> bool:
    """Whether the process runs. A killed one that nobody has waited for (in a container, often nobody ever does) is
    dead, though it still has its number."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc here
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
