"""Which processes train in a results folder: each has a small file there that names its cells and says how far they
are, and keeps it fresh."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from dlmexp.atomic import within
from dlmexp.errors import Unreadable
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import write_atomically
from dlmexp.records.owner import alive, machine
from dlmexp.records.provenance import own_job

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # a process without a heartbeat for this long counts as dead; network disks delay some


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch in training is."""

    what: str  # is trained, on what
    cells: int
    live: int  # of these cells: have not stopped yet
    iteration: int
    limit: int  # the iteration at which the last cell stops, if it does not converge before
    rate: float  # iterations per second
    objective: float | None  # mean over the live cells; None: not known

    @property
    def most_seconds_left(self) -> float | None:
        """At this speed, if not all of its cells converge before their limit; None before the speed is known."""
        return (self.limit - self.iteration) / self.rate if self.rate > 0 else None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a process is with its run: cells with a record, and the batches in training."""

    settled: int
    total: int
    failed: int
    seconds_left: float | None  # at the speed so far; None: not known
    batches: tuple[BatchProgress, ...]


class ActiveProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A live process and the keys of the cells that it trains at the moment: the content of its file."""

    host: str
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    keys: dict[str, int]  # and when they were announced, in nanoseconds since the epoch
    job: str | None = None  # SLURM job
    machine: str = ""  # that counts `pid`
    progress: RunProgress | None = None  # a few seconds ago
    name: str = ""  # of the file, without its suffix

    @property
    def description(self) -> str:
        """Host, process id and SLURM job, for messages."""
        return f"{self.host} pid {self.pid}" + (f" job {self.job}" if self.job else "")

    @property
    def ended(self) -> bool:
        """Whether it is a process of this machine that does not run any more."""
        return self.machine == machine() and not alive(self.pid)


class Presence:
    """The file of this process, from entering to leaving the context. A thread updates its time of modification and
    the progress in it."""

    def __init__(self, root: Path):
        self.folder = root / "running"
        self.name = f"{socket.gethostname()}-{machine()}-{os.getpid()}-{time.time_ns()}"
        self.path = self.folder / f"{self.name}.json"
        self._about = ActiveProcess(
            host=socket.gethostname(), pid=os.getpid(), keys={}, job=own_job(), machine=machine()
        )
        self._progress: Callable[[], RunProgress] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)

    def __enter__(self) -> "Presence":
        self._write({})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            within(self.folder.parent, self.path).unlink()

    def follow(self, progress: Callable[[], RunProgress]) -> None:
        """Write from now on, with each heartbeat, what this function returns. It is called in another thread."""
        self._progress = progress

    def announce(self, keys: Iterable[str]) -> None:
        """Write that this process trains these cells as well from now on."""
        moment = time.time_ns()
        with self._lock:
            self._write(dict.fromkeys(keys, moment) | self._about.keys)

    def withdraw(self, keys: Iterable[str]) -> None:
        """Write that it does not train these cells any more."""
        gone = frozenset(keys)
        with self._lock:
            self._write({key: moment for key, moment in self._about.keys.items() if key not in gone})

    def announced_earlier(self, keys: Iterable[str]) -> list[ActiveProcess]:
        """Other live processes that announced some of these cells before this one did (names settle a tie)."""
        wanted, moment, own = frozenset(keys), time.time_ns(), self._about.keys
        return [
            process
            for process in active_processes(self.folder.parent, self._now())
            if process.name != self.name
            and any(
                (process.keys[key], process.name) < (own.get(key, moment), self.name)
                for key in process.keys.keys() & wanted
            )
        ]

    def _write(self, keys: dict[str, int]) -> None:
        self._about = msgspec.structs.replace(self._about, keys=keys)
        self._write_about()

    def _write_about(self) -> None:
        write_atomically(within(self.folder.parent, self.path), msgspec.json.encode(self._about))

    def _now(self) -> float | None:
        """The time by the clock of the disk, which also dates the files of the others; that of this host may differ."""
        with contextlib.suppress(OSError):
            os.utime(self.path)
            return self.path.stat().st_mtime
        return None

    def _heartbeat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self.path)
                self._write_progress()

    def _write_progress(self) -> None:
        progress = self._progress() if self._progress else None
        with self._lock:
            if progress != self._about.progress:
                self._about = msgspec.structs.replace(self._about, progress=progress)
                self._write_about()


def active_processes(root: Path, now: float | None = None) -> list[ActiveProcess]:
    """The live processes of a results folder. Files of processes that have ended on this machine are removed."""
    found = []
    for path in sorted((root / "running").glob("*.json")):
        process = read_presence(path)
        if process is None:
            continue
        if process.ended:
            with contextlib.suppress(OSError):
                within(root, path).unlink()
        elif is_fresh(path, now):
            found.append(process)
    return found


def read_presence(path: Path) -> ActiveProcess | None:
    """The process of a presence file; None if the file is none, or has just been removed."""
    try:
        return msgspec.structs.replace(typed_json(content(path), ActiveProcess), name=path.stem)
    except (OSError, Unreadable):
        return None


def is_fresh(path: Path, now: float | None = None, seconds: float = STALE_SECONDS) -> bool:
    """Whether a file was changed in the last `seconds`. A date in the future, from a clock that was wrong, does not
    keep it fresh: a live process corrects that with its next heartbeat."""
    try:
        return abs((time.time() if now is None else now) - path.stat().st_mtime) < seconds
    except OSError:
        return False
