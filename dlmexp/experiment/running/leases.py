"""Leases: which process trains which batch of a results folder.

The folder has a lease for every batch in training, and a file for every process. A lease is a file
under a name that is used once, created with O_EXCL, touched every few seconds, and removed when its
batch has ended. A process trains only cells that it holds a lease on, and it looks for other leases
after it has created its own. So if two processes want the same cells at the same moment, at least
one of them sees the lease of the other.

A lease is stale if it has not been touched for a minute, or if its process has ended on this
machine. Another process that wants these cells removes it. Ages are differences between dates that
the folder's file system gives, so the clocks of hosts do not matter.
"""

import contextlib
import os
import random
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dlmexp.common.atomic import (
    is_dead,
    machine,
    path_inside,
    this_process,
    write_atomically,
    writer_of,
)
from dlmexp.common.errors import Unreadable
from dlmexp.common.process_table import has_open, is_python, start_time
from dlmexp.common.provenance import slurm_job_id
from dlmexp.common.reading.files import json_value, read_content

HEARTBEAT_SECONDS = 5.0
# A process without a heartbeat for this long counts as dead. It is many heartbeats, as some network
# disks delay them.
STALE_SECONDS = 60.0
# A temporary file of another machine that has not changed for this long counts as abandoned.
QUIET_SECONDS = 600.0
# The longest pause before a process that gave way to another one tries again.
MAX_RETRY_SECONDS = 0.1


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch in training is."""

    what: str  # a description of the batch
    cells: int  # number of cells
    live: int  # number of cells that have not stopped yet
    iteration: int
    limit: int  # the iteration at which cells stop that have not converged
    rate: float  # iterations per second
    objective: float | None  # mean over the live cells; None if it is not known

    @property
    def description(self) -> str:
        """Iteration, cells, speed and objective, for messages."""
        speed = f"{self.rate:.0f}" if self.rate >= 10 else f"{self.rate:.2g}"
        text = f"iteration {self.iteration} of {self.limit}, {self.live} live, {speed} it/s"
        if self.objective is not None:
            text += f", objective {self.objective:.4f}"
        return text


class ActiveProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a run: the content of its file and of each of its leases.

    In a lease, `keys` are the keys of the leased cells, and the fields from `settled` on are not
    set. In the file of the process, `keys` is empty, and these fields say how far the run was at
    the last heartbeat.
    """

    host: str
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    machine: str = ""  # the machine on which `pid` is valid
    started: int | None = None  # `start_time` of the process; None if it is not known
    job: str | None = None  # id of the SLURM job; None outside of jobs
    keys: frozenset[str] = frozenset()
    settled: int = 0  # cells of the run with a record
    total: int = 0  # cells of the run
    failed: int = 0  # cells of the run that failed
    seconds_left: float | None = None  # at the speed so far; None if it is not known
    batches: tuple[BatchProgress, ...] = ()  # in training

    @property
    def description(self) -> str:
        """Host, process id and SLURM job, for messages."""
        text = f"{self.host} pid {self.pid}"
        if self.job:
            text += f" job {self.job}"
        return text


class FolderRemovedError(RuntimeError):
    """A results folder was removed while a run used it."""


class Leases:
    """The file and the leases of this process, as a context: at its end they are removed.

    Every few seconds a thread touches the leases, and writes the fields that `progress` returns
    into the file of the process. If that fails, for whatever reason, the thread calls `on_failure`
    with the error. Inside the context the process keeps the folder of leases open, so that other
    processes can see that it belongs to this folder (`is_run_of`).
    """

    def __init__(
        self,
        root: Path,
        on_failure: Callable[[BaseException], None],
        progress: Callable[[], dict[str, Any]] = dict,
    ):
        self.folder = path_inside(root, root / "running")
        self.process = ActiveProcess(
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=machine(),
            started=start_time(os.getpid()),
            job=slurm_job_id(),
        )
        self.path = self.folder / f"{this_process()}.{_unique()}.json"
        self.progress = progress
        self._on_failure = on_failure
        self._held: dict[frozenset[str], Path] = {}  # leases by the keys of their cells
        self._lock = threading.Lock()  # for `_held` and the lease files
        self._descriptor: int | None = None  # of the folder, which stays open
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, daemon=True)

    def __enter__(self) -> "Leases":
        self._beat()
        self._descriptor = os.open(self.folder, os.O_RDONLY)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for path in (*self._held.values(), self.path):
            with contextlib.suppress(OSError):
                path.unlink()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def take(self, keys: Iterable[str], needed: Iterable[str] = ()) -> ActiveProcess | None:
        """Lease the batch of these cells, unless another process trains some of them.

        Args:
            keys: The keys of the cells.
            needed: The keys of base fits. While another process trains one of them, the batch is
                not leased.

        Returns:
            None if the batch is leased, else the process that trains one of the cells or base fits.
        """
        keys = frozenset(keys)
        wanted = keys.union(needed)
        while True:
            # 1. Another process may have a lease on some of the cells.
            holder = self._holder(wanted)
            if holder is not None:
                return holder
            # 2. Create the lease, and look again after that: two processes that both found the
            #    cells free cannot both miss the lease of the other.
            path = self._create_lease(keys)
            if self._holder(wanted, except_lease=path) is None:
                return None
            # 3. Another process wants the cells at the same moment. Give way, and try again after a
            #    random pause, so that the two do not collide for ever.
            self.release(keys)
            time.sleep(random.uniform(0, MAX_RETRY_SECONDS))

    def _create_lease(self, keys: frozenset[str]) -> Path:
        path = self.path.with_suffix(f".{_unique()}.lease")
        lease = msgspec.structs.replace(self.process, keys=keys)
        with self._lock:
            self._held[keys] = path
            with open(path, "xb", buffering=0) as file:
                file.write(msgspec.json.encode(lease))
        return path

    def _holder(
        self, wanted: frozenset[str], except_lease: Path | None = None
    ) -> ActiveProcess | None:
        """Return a process that has a lease on some of the wanted cells; remove stale leases."""
        for path, process in _read_processes(self.folder, "*.lease").items():
            if path == except_lease or not process.keys & wanted:
                continue
            if not is_stale(path, disk_time(self.folder)):
                return process
            path.unlink(missing_ok=True)
        return None

    def release(self, keys: Iterable[str]) -> None:
        """Remove the lease of the batch of these cells."""
        with self._lock:
            path = self._held.pop(frozenset(keys))
            path.unlink(missing_ok=True)

    def _heartbeat(self) -> None:
        # Report errors of any kind: without a heartbeat, other processes would take over the leases
        # while this one trains on.
        try:
            while not self._stop.wait(HEARTBEAT_SECONDS):
                self._beat()
        except BaseException as error:
            self._on_failure(error)

    def _check_folder(self) -> None:
        """Raise `FolderRemovedError` if the folder was removed, even if it exists again."""
        if self._descriptor is None:
            return
        try:
            is_same = os.path.samestat(os.fstat(self._descriptor), os.stat(self.folder))
        except FileNotFoundError:
            is_same = False
        if not is_same:
            # The run prints "stopped by" before this text.
            raise FolderRemovedError(f"the removal of '{self.folder}'")

    def _beat(self) -> None:
        """Touch all leases, and write how far the run is into the file of the process."""
        self._check_folder()
        with self._lock:
            for path in self._held.values():
                try:
                    os.utime(path)
                except FileNotFoundError:
                    raise RuntimeError(
                        f"another process has taken over what this one trains ('{path}')"
                    ) from None
        process = msgspec.structs.replace(self.process, **self.progress())
        write_atomically(self.path, msgspec.json.encode(process), durable=False)


def _unique() -> str:
    return uuid.uuid4().hex[:12]


def active_processes(root: Path) -> list[ActiveProcess]:
    """Return the live processes of a results folder with the keys of the cells that they train."""
    folder = root / "running"
    processes = _read_processes(folder, "*.json")
    leases = _read_processes(folder, "*.lease")
    now = disk_time(folder) if processes else 0.0
    active: list[ActiveProcess] = []
    for path, process in processes.items():
        if is_stale(path, now):
            continue
        # The leases of a process begin with the name of its file (`Leases._create_lease`).
        prefix = f"{path.stem}."
        keys: set[str] = set()
        for lease_path, lease in leases.items():
            if lease_path.name.startswith(prefix):
                keys |= lease.keys
        active.append(msgspec.structs.replace(process, keys=frozenset(keys)))
    return active


def is_run_of(process: ActiveProcess, root: Path) -> bool:
    """Return whether a process runs on this machine and trains for a results folder.

    The file of a process is no proof, since anybody who can write into the folder can name any
    process there. So the operating system must confirm that the process is a Python process, that
    it started when the file says, and that it has the folder of leases open.
    """
    return (
        process.machine == machine()
        and process.started is not None
        and start_time(process.pid) == process.started
        and is_python(process.pid)
        and has_open(process.pid, root / "running")
    )


def remove_leftovers(root: Path) -> list[Path]:
    """Delete files of dead processes in a results folder, and return the deleted files.

    Deleted are the files and leases of the processes in `running`, and unfinished files under
    temporary names. A temporary file of another machine is deleted when it has not changed for a
    while. Checkpoints stay, as the next run goes on from them.
    """
    now = disk_time(root)
    leftovers = [*_stale_files(root, now), *_abandoned_files(root, now)]
    removed: list[Path] = []
    for path in leftovers:
        with contextlib.suppress(OSError):  # it belongs to another user, or was removed just now
            path_inside(root, path).unlink()
            removed.append(path)
    return sorted(removed)


def _stale_files(root: Path, now: float) -> list[Path]:
    """Return the files and leases of dead processes."""
    folder = root / "running"
    paths = [*folder.glob("*.json"), *folder.glob("*.lease")]
    return [path for path in paths if is_stale(path, now)]


def _abandoned_files(root: Path, now: float) -> Iterator[Path]:
    """Yield temporary files that no process writes any more."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            writer = writer_of(path)
            # `is_dead` is None for a process of another machine. A file that a live process of this
            # machine writes stays, however old it is.
            if not writer or is_dead(writer) is False:
                continue
            if is_stale(path, now, writer, QUIET_SECONDS):
                yield path


def _read_processes(folder: Path, pattern: str) -> dict[Path, ActiveProcess]:
    """Return the processes in the files that match a pattern, by path.

    Files that are damaged, or that were removed just now, are left out.
    """
    processes: dict[Path, ActiveProcess] = {}
    for path in sorted(folder.glob(pattern)):
        with contextlib.suppress(OSError, Unreadable):
            processes[path] = json_value(read_content(path), ActiveProcess)
    return processes


def is_stale(path: Path, now: float, owner: str = "", seconds: float = STALE_SECONDS) -> bool:
    """Return whether a file belongs to a process that has ended.

    This is known of processes on this machine. Any process counts as ended if it has not touched
    the file for a while. A date far in the future, from a clock that was wrong, counts as stale
    too: a live process corrects it with its next heartbeat.

    Args:
        path: the file.
        now: the `disk_time` of its folder.
        owner: the process of the file as `MACHINE-PID`; '': the one in the name of the file.
        seconds: the longest time between two touches of a live process.
    """
    try:
        is_silent = abs(now - path.stat().st_mtime) >= seconds
    except OSError:  # it was removed, or can't be accessed
        is_silent = True
    owner = owner or path.name.partition(".")[0]
    return is_silent or bool(is_dead(owner))


def disk_time(folder: Path) -> float:
    """Return the time by the clock of the folder's file system, which dates its files.

    Without permission to write into the folder, return the time of this host.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()
