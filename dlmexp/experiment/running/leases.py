"""Who trains which batch of a results folder: every batch in training has a lease there, and every
process a file.

A lease is a file under a name that is used once, created with O_EXCL, touched every few seconds,
and removed when its batch has ended. A process trains only what it holds a lease on, and has looked
for others after it created its own: of two that want the same cells at the same moment at least one
sees the other. A lease that has not been touched for a minute, or whose process has ended on this
machine, is stale, and whoever wants its cells removes it. Ages are differences between dates that
the folder's file system gives: the clocks of hosts do not matter."""

import contextlib
import os
import random
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from dlmexp.common.atomic import is_dead, machine, owner, within, write_atomically, writer_of
from dlmexp.common.errors import Unreadable
from dlmexp.common.provenance import own_job
from dlmexp.common.reading.files import content, json_value

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = (
    60.0  # without a heartbeat for this long a process counts as dead; network disks delay some
)
QUIET_SECONDS = (
    600.0  # a file that another machine has not changed for so long is not being written any more
)
RETRY_SECONDS = 0.1  # at most, until a process that gave way to another tries again


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
    def numbers(self) -> str:
        """Iteration, cells, speed and objective, for messages."""
        objective = "" if self.objective is None else f", objective {self.objective:.4f}"
        speed = f"{self.rate:.0f}" if self.rate >= 10 else f"{self.rate:.2g}"
        return (
            f"iteration {self.iteration} of {self.limit}, {self.live} live, {speed} it/s{objective}"
        )


class ActiveProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a run: the content of its file, and with the keys of their cells of its
    leases."""

    host: str
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    machine: str = ""  # that counts `pid`
    job: str | None = None  # SLURM job
    keys: frozenset[str] = frozenset()
    # How far it is with its run, a few seconds ago.
    settled: int = 0  # cells with a record
    total: int = 0
    failed: int = 0
    seconds_left: float | None = None  # at the speed so far; None: not known
    batches: tuple[BatchProgress, ...] = ()  # in training

    @property
    def description(self) -> str:
        """Host, process id and SLURM job, for messages."""
        return f"{self.host} pid {self.pid}" + (f" job {self.job}" if self.job else "")


class Leases:
    """The file of this process and its leases, from entering to leaving the context. A thread
    touches the leases and writes the `progress` into the file; where that fails, for whatever
    reason, `failed` is called with the error, in that thread."""

    def __init__(
        self,
        root: Path,
        failed: Callable[[BaseException], None],
        progress: Callable[[], dict] = dict,
    ):
        self.folder = within(root, root / "running")
        self.about = ActiveProcess(
            host=socket.gethostname(), pid=os.getpid(), machine=machine(), job=own_job()
        )
        self.path = self.folder / f"{owner()}.{uuid.uuid4().hex[:12]}.json"
        self.progress, self._failed, self._held = progress, failed, dict[frozenset[str], Path]()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)

    def __enter__(self) -> "Leases":
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for path in (*self._held.values(), self.path):
            with contextlib.suppress(OSError):
                path.unlink()

    def take(self, keys: Iterable[str], needed: Iterable[str] = ()) -> ActiveProcess | None:
        """Lease the batch of these cells: None. If a process trains some of them, or of those that
        are `needed` for them, nothing is leased, and that process is the answer."""
        keys = frozenset(keys)
        wanted = keys.union(needed)
        while (other := self._holder(wanted)) is None:
            path = self.path.with_suffix(f".{uuid.uuid4().hex[:12]}.lease")
            with self._lock:
                self._held[keys] = path
                with open(path, "xb", buffering=0) as file:
                    file.write(msgspec.json.encode(msgspec.structs.replace(self.about, keys=keys)))
            if self._holder(wanted, path) is None:
                return None
            self.release(keys)  # another one wants them at this moment
            time.sleep(random.uniform(0, RETRY_SECONDS))
        return other

    def _holder(self, wanted: frozenset[str], own: Path | None = None) -> ActiveProcess | None:
        """Who has a lease on some of the `wanted` cells, but for the lease `own`. Stale leases are
        removed."""
        for path, process in _read(self.folder, "*.lease").items():
            if path != own and process.keys & wanted:
                if not is_stale(path, disk_time(self.folder)):
                    return process
                path.unlink(missing_ok=True)
        return None

    def release(self, keys: Iterable[str]) -> None:
        """The batch of these cells is not trained here any more."""
        with self._lock:
            self._held.pop(frozenset(keys)).unlink(missing_ok=True)

    def _heartbeat(self) -> None:
        try:
            while not self._stop.wait(HEARTBEAT_SECONDS):
                self._beat()
        except (
            BaseException
        ) as error:  # silent leases would be taken over while this process trains on
            self._failed(error)

    def _beat(self) -> None:
        with self._lock:
            for path in self._held.values():
                try:
                    os.utime(path)
                except FileNotFoundError:
                    raise RuntimeError(
                        f"another process has taken over what this one trains ('{path}')"
                    ) from None
        about = msgspec.structs.replace(self.about, **self.progress())
        write_atomically(self.path, msgspec.json.encode(about), durable=False)


def active_processes(root: Path) -> list[ActiveProcess]:
    """The live processes of a results folder with the keys of what they train."""
    processes, leases = (_read(root / "running", pattern) for pattern in ("*.json", "*.lease"))
    now, active = disk_time(root / "running") if processes else 0.0, list[ActiveProcess]()
    for path, process in processes.items():
        if not is_stale(path, now):
            keys = [
                lease.keys
                for name, lease in leases.items()
                if name.name.startswith(f"{path.stem}.")
            ]
            active.append(msgspec.structs.replace(process, keys=frozenset().union(*keys)))
    return active


def remove_leftovers(root: Path) -> list[Path]:
    """Delete what dead processes left in a results folder: their files and leases, and unfinished
    files under temporary names. What other machines wrote goes when it has been quiet for a while.
    Checkpoints stay: the next run goes on from them. Returns what is gone."""
    now, removed = disk_time(root), list[Path]()
    unwanted = [
        path
        for name in ("*.json", "*.lease")
        for path in (root / "running").glob(name)
        if is_stale(path, now)
    ]
    for path in (
        Path(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.startswith(".")
    ):
        writer = writer_of(path)
        if writer and is_dead(writer) is not False and is_stale(path, now, writer, QUIET_SECONDS):
            unwanted.append(path)
    for path in unwanted:
        with contextlib.suppress(OSError):  # another user's, or removed just now
            within(root, path).unlink()
            removed.append(path)
    return sorted(removed)


def _read(folder: Path, pattern: str) -> dict[Path, ActiveProcess]:
    """Files with the process that each is of, but for those that are damaged or have just been
    removed."""
    read: dict[Path, ActiveProcess] = {}
    for path in sorted(folder.glob(pattern)):
        with contextlib.suppress(OSError, Unreadable):
            read[path] = json_value(content(path), ActiveProcess)
    return read


def is_stale(path: Path, now: float, process: str = "", seconds: float = STALE_SECONDS) -> bool:
    """Whether nobody changes a file any more: its process (that in its name) has ended on this
    machine, or has not touched it in the `seconds` before `now`, the `disk_time` of its folder. A
    date in the future, from a clock that was wrong, does not help it: a live process corrects that
    with its next heartbeat."""
    try:
        silent = abs(now - path.stat().st_mtime) >= seconds
    except OSError:
        silent = True
    return silent or bool(is_dead(process or path.name.partition(".")[0]))


def disk_time(folder: Path) -> float:
    """The time by the clock that dates the files of a folder; that of this host where nothing can
    be written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()
