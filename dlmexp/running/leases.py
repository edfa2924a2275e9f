"""Who trains which batch of a results folder: every batch in training has a lease there, and every process a file.

A lease is a file that is created with O_EXCL, touched every few seconds, and removed when its batch has ended. One that
has not been touched for a minute, or whose process has ended on this machine, is stale: it is renamed out of the way by
whoever wants its cells. Batches of two runs may overlap without being equal, so a lease is taken under a guard, a
second such file that is held for a moment. Ages are differences between dates that the folder's file system gives: the
clocks of hosts do not matter.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from dlmexp.atomic import alive, machine, owner, within, write_atomically
from dlmexp.errors import Unreadable
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.record import own_job

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # without a heartbeat for this long a process counts as dead; network disks delay some
GUARD_POLL_SECONDS = 0.02
LEASE, GUARD = ".lease", "guard.lease"


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


class ActiveProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a run: the content of its file, with the keys of the cells in its leases."""

    host: str
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    machine: str = ""  # that counts `pid`
    job: str | None = None  # SLURM job
    progress: RunProgress | None = None  # a few seconds ago
    name: str = ""
    keys: frozenset[str] = frozenset()

    @property
    def description(self) -> str:
        """Host, process id and SLURM job, for messages."""
        return f"{self.host} pid {self.pid}" + (f" job {self.job}" if self.job else "")

    @property
    def ended(self) -> bool:
        """Whether it is a process of this machine that does not run any more."""
        return self.machine == machine() and not alive(self.pid)


class LeaseLost(Exception):
    """Another process has taken over a lease that this one held."""


class Leases:
    """The file of this process and its leases, from entering to leaving the context. A thread touches them; where that
    fails, for whatever reason, `failed` is called with the error, in that thread."""

    def __init__(self, root: Path, failed: Callable[[BaseException], None]):
        self.folder = within(root, root / "running")
        name = f"{socket.gethostname()}-{owner()}-{uuid.uuid4().hex[:12]}"
        self.about = ActiveProcess(
            host=socket.gethostname(), pid=os.getpid(), machine=machine(), job=own_job(), name=name
        )
        self.path = self.folder / f"{name}.json"
        self._failed, self._held = failed, dict[Path, bytes]()
        self._progress: Callable[[], RunProgress] | None = None
        self._lock, self._stop = threading.Lock(), threading.Event()

    def __enter__(self) -> "Leases":
        write_atomically(self.path, msgspec.json.encode(self.about))
        self._stop.clear()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            for path in list(self._held):
                self._release(path)
        with contextlib.suppress(OSError):
            self.path.unlink()

    def follow(self, progress: Callable[[], RunProgress]) -> None:
        """Write from now on, with each heartbeat, what this function returns. It is called in another thread."""
        self._progress = progress

    def take(self, keys: Iterable[str], needed: Iterable[str] = ()) -> ActiveProcess | None:
        """Lease the batch of these cells: None. If another process trains some of them, or of those that are `needed`
        for them, nothing is leased, and that process is the answer."""
        keys = frozenset(keys)
        wanted, path = keys.union(needed), self.folder / f"{_name(keys)}{LEASE}"
        with guarded(self.folder, self.about):
            for other, process in read_leases(self.folder).items():
                if not process.keys & wanted:
                    continue
                if not is_stale(other, process, self._now()):
                    return process
                _take_away(other, process)
            about = msgspec.json.encode(msgspec.structs.replace(self.about, keys=keys), order="deterministic")
            if _create(path, about):
                with self._lock:
                    self._held[path] = about
                return None
        return _read(path) or self.about  # it is not readable, and not stale either

    def release(self, keys: Iterable[str]) -> None:
        """The batch of these cells is not trained here any more."""
        self._release(self.folder / f"{_name(frozenset(keys))}{LEASE}")

    def _release(self, path: Path) -> None:
        with self._lock:
            about = self._held.pop(path, None)
        with contextlib.suppress(FileNotFoundError):
            if about is not None and path.read_bytes() == about:
                path.unlink()

    def _now(self) -> float:
        os.utime(self.path)
        return self.path.stat().st_mtime

    def _heartbeat(self) -> None:
        try:
            while not self._stop.wait(HEARTBEAT_SECONDS):
                self._beat()
        except BaseException as error:  # silent leases would be taken over while this process trains on
            self._failed(error)

    def _beat(self) -> None:
        os.utime(self.path)
        with self._lock:
            for path, about in self._held.items():
                try:
                    os.utime(path)
                    lost = path.read_bytes() != about
                except FileNotFoundError:
                    lost = True
                if lost:
                    raise LeaseLost(f"another process has taken over what this one trains ('{path}')")
        progress = self._progress() if self._progress else None
        if progress != self.about.progress:
            self.about = msgspec.structs.replace(self.about, progress=progress)
            write_atomically(self.path, msgspec.json.encode(self.about))


def active_processes(root: Path) -> list[ActiveProcess]:
    """The live processes of a results folder with the keys of what they train."""
    folder, keys = root / "running", dict[str, frozenset[str]]()
    for lease in read_leases(folder).values():
        keys[lease.name] = keys.get(lease.name, frozenset()) | lease.keys
    paths = sorted(folder.glob("*.json"))
    now = disk_time(folder) if paths else 0.0
    live = [(path, process) for path in paths if (process := _read(path)) is not None]
    return [
        msgspec.structs.replace(process, name=path.stem, keys=keys.get(path.stem, frozenset()))
        for path, process in live
        if not is_stale(path, process, now)
    ]


def stale_files(root: Path, everywhere: bool) -> dict[Path, ActiveProcess | None]:
    """Files of processes that have ended on this machine, and their leases; `everywhere`: all that are stale."""
    folder = root / "running"
    paths = [*sorted(folder.glob("*.json")), *sorted(folder.glob(f"*{LEASE}"))]
    now = disk_time(folder) if paths else 0.0
    some = {path: _read(path) for path in paths}
    return {
        path: who
        for path, who in some.items()
        if (who is not None and who.ended) or (everywhere and is_stale(path, who, now))
    }


def remove_stale(root: Path, everywhere: bool = False) -> list[Path]:
    """Delete the stale files, under the guard; returns those that are gone."""
    if not stale_files(root, everywhere):
        return []
    with guarded(root / "running"):
        found = stale_files(root, everywhere).items()
        return [path for path, who in found if path.name != GUARD and _take_away(path, who)]


def read_leases(folder: Path) -> dict[Path, ActiveProcess]:
    """The readable leases of a folder: their processes, with the keys of the leased cells."""
    found = ((path, _read(path)) for path in sorted(folder.glob(f"*{LEASE}")) if path.name != GUARD)
    return {path: process for path, process in found if process is not None}


@contextlib.contextmanager
def guarded(folder: Path, who: ActiveProcess | None = None) -> Iterator[None]:
    """Within the context, no other process takes or removes leases in the folder."""
    path = within(folder.parent, folder / GUARD)
    who = who or ActiveProcess(host=socket.gethostname(), pid=os.getpid(), machine=machine())
    about = msgspec.json.encode(who)
    while not _create(path, about):
        holder = _read(path)
        if is_stale(path, holder, disk_time(folder)):
            _take_away(path, holder)
        else:
            time.sleep(GUARD_POLL_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def is_stale(path: Path, process: ActiveProcess | None, now: float) -> bool:
    """Whether nobody keeps a file fresh any more. A date in the future, from a clock that was wrong, does not help it:
    a live process corrects that with its next heartbeat."""
    return (process is not None and process.ended) or not is_fresh(path, now)


def is_fresh(path: Path, now: float, seconds: float = STALE_SECONDS) -> bool:
    """Whether a file was changed in the `seconds` before `now`, the `disk_time` of its folder."""
    try:
        return abs(now - path.stat().st_mtime) < seconds
    except OSError:
        return False


def disk_time(folder: Path) -> float:
    """The time by the clock that dates the files of a folder; that of this host where nothing can be written."""
    path = folder / f".now.{owner()}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError:
        return time.time()


def _name(keys: frozenset[str]) -> str:
    return hashlib.sha256("".join(sorted(keys)).encode()).hexdigest()[:20]


def _create(path: Path, about: bytes) -> bool:
    """Create a file, unless it is there."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, about)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)
    return True


def _take_away(path: Path, stale: ActiveProcess | None) -> bool:
    """Delete the file of a stale process, by renaming it first: of several processes that try, one succeeds. What
    another has created in its place since then is put back."""
    aside = path.with_name(f".{path.name}.{owner()}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    if (is_it := _read(aside) == stale) is False:
        with contextlib.suppress(OSError):
            os.link(aside, path)
    aside.unlink(missing_ok=True)
    return is_it


def _read(path: Path) -> ActiveProcess | None:
    """The process of a file; None if the file is damaged, or has just been removed."""
    try:
        return typed_json(content(path), ActiveProcess)
    except (OSError, Unreadable):
        return None
