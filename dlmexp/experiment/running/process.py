"""The process of a run: its device, requests to stop it, and extra processes.

A run is asked to stop by a signal, a spent budget or a failure. An extra process (`workers=`) runs
the same command once more; each process trains batches that no other process trains. On a CPU the
processes share the cores. On GPUs there is one process for each GPU: it fills the GPU by training
many batches at the same time, and a second process would only take turns with it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

import dlmexp
from dlmexp.common.atomic import path_inside
from dlmexp.common.environment import environment
from dlmexp.common.errors import UserError
from dlmexp.common.limits import Device, converted
from dlmexp.common.processes import available_cores

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
# Exit codes
FAILURE = 1
BUDGET_SPENT = 3
STOPPED = 128  # plus the number of the signal that asked the process to stop
SIGPIPE = 13  # the signal for a run whose output nobody reads any more
EXTRA_PROCESS = "DLMEXP_EXTRA_PROCESS"  # set in the environment of extra processes
MAX_DEFAULT_WORKERS = 8  # not more, as each takes some 400 MB of memory
# The program of an extra process. Its first argument is the folder from which this process imported
# the package. Python is started with -P, so that nothing is imported from the current folder.
COMMAND = (
    "import sys; sys.path.append(sys.argv.pop(1)); from dlmexp.cli import main; sys.exit(main())"
)
# The environment variable with the number of hardware queues to a GPU, and its largest value.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
MAX_QUEUES = "32"


@dataclass(frozen=True)
class Target:
    """The device of a run, and the floating-point type of its rows (`gp.precision`)."""

    device: torch.device
    dtype: torch.dtype

    @property
    def free_memory(self) -> float | None:
        """The free bytes of a GPU; None for the CPU."""
        if self.device.type == "cpu":
            return None
        free_bytes, _ = torch.cuda.mem_get_info(self.device)
        return float(free_bytes)


def select_target(device: str, dtype: str) -> Target:
    """Return the device and the floating-point type with these names.

    CUDA is started with as many queues to a GPU as it can have, one for each stream. With the
    default of 8, operations of one batch can be queued behind the steps of another. CUDA reads the
    number from the environment when it starts.

    Args:
        device: "cpu", "cuda", or "auto" for a GPU if there is one, else the CPU.
        dtype: The name of a type of torch.

    Raises:
        UserError: there is no such device.
    """
    converted("device", device, Device)  # raises if it is another word
    if device != "cpu" and torch.cuda.is_available():
        with environment(**{QUEUES: os.environ.get(QUEUES, MAX_QUEUES)}):
            torch.zeros(1, device="cuda")  # starts CUDA
        device = "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device={device}: there is no CUDA device here; use device=cpu or leave it out"
        )
    name = "cpu" if device == "auto" else device
    return Target(torch.device(name), getattr(torch, dtype))


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory ran out, on a GPU or on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # On a CPU, torch raises a plain RuntimeError.
    return "DefaultCPUAllocator" in str(error)


def is_extra() -> bool:
    """Return whether this is an extra process, which another process of the run has started."""
    return bool(os.environ.get(EXTRA_PROCESS))


def threads_are_set() -> bool:
    """Return whether the environment sets the number of threads of a process."""
    return bool(os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"))


def default_worker_count(batches: int, device: str) -> int:
    """Return how many processes a run has by default.

    There is one on a GPU, or if the environment sets the number of threads. Otherwise there is one
    for every two batches, and at most one per core. Several processes are faster than several
    threads of one process, which would wait for one another in every small step.
    """
    if device != "cpu" or threads_are_set():
        return 1
    pairs_of_batches = (batches + 1) // 2
    return max(1, min(available_cores(), pairs_of_batches, MAX_DEFAULT_WORKERS))


def threads_per_process(workers: int, is_short: bool = False) -> int:
    """Return the number of threads of each of `workers` processes.

    Several processes have one thread per core together. A single one has the threads that torch
    takes by itself, from the environment or one per core. In a short run each process has one
    thread, except that a single process keeps the number in the environment.
    """
    if workers == 1 and (threads_are_set() or not is_short):
        return torch.get_num_threads()
    if is_short:
        return 1
    return max(1, available_cores() // workers)


def gpus_for(workers: int, device: str) -> list[str]:
    """Return the GPUs for `workers` processes, as CUDA_VISIBLE_DEVICES names them; none on a CPU.

    Raises:
        UserError: there are fewer GPUs than processes.
    """
    if device != "cuda":
        return []
    count = torch.cuda.device_count()
    if workers > max(1, count):
        raise UserError(
            f"workers={workers}: a single process fills a GPU; "
            f"give {count} at most, one for each GPU here"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")[:count]
    return [str(i) for i in range(count)]


@contextmanager
def extra_processes(
    number: int, arguments: Sequence[str], root: Path, device: str
) -> Iterator[dict[Path, "subprocess.Popen[bytes]"]]:
    """Start extra processes of `dlmexp run`, and yield them by the paths of their logs.

    This process is the first, so the logs are `running/process-2.log` and so on. On GPUs, each
    process has its own. The end of the context waits for the processes, which end when no batch is
    left or the budget is spent. After an exception in the context (a request to stop, for instance)
    they are asked to save their state and end.

    Args:
        number: The number of extra processes.
        arguments: The words after `dlmexp run`.
        root: The results folder.
        device: "cpu" or "cuda".
    """
    command = _command(arguments)
    threads = str(threads_per_process(number + 1))
    # If the environment has a number of threads, it replaces ours.
    variables = {"OMP_NUM_THREADS": threads, **os.environ, EXTRA_PROCESS: "1"}
    gpus = gpus_for(number + 1, device)
    started: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        for i in range(1, number + 1):
            gpu_variable = {"CUDA_VISIBLE_DEVICES": gpus[i]} if gpus else {}
            log = root / "running" / f"process-{i + 1}.log"
            log.unlink(missing_ok=True)
            with open(path_inside(root, log), "xb") as file:
                started[log] = subprocess.Popen(
                    command, stdout=file, stderr=file, env=variables | gpu_variable
                )
        yield started
    except BaseException:
        for process in started.values():
            process.terminate()
        raise
    finally:
        for process in started.values():
            process.wait()


def _command(arguments: Sequence[str]) -> list[str]:
    """Return the command of an extra process."""
    import_folder = str(Path(dlmexp.__file__).parents[1])
    settings = [word for word in arguments if not word.startswith("workers=")]
    interpreter = [sys.executable, "-P", "-c", COMMAND, import_folder]
    return [*interpreter, "run", *settings, "workers=1"]


class Stop(Exception):  # noqa: N818 -- it is raised on request, not in error
    """Ends a run whose state is saved.

    Attributes:
        code: The exit code of the run.
    """

    def __init__(self, reason: str, code: int):
        """Set the reason, which the run prints after the words "stopped by"."""
        super().__init__(reason)
        self.code = code


class StopRequest:
    """Remembers signals and the end of the budget, so that a run saves its state before it stops.

    In its context a signal only sets `requested`. A second Ctrl-C raises `KeyboardInterrupt` at
    once. Further ones do nothing, so that a process that is ending is not interrupted again.
    Outside the main thread signals are not handled, because Python can set handlers in the main
    thread only.

    The budget of `seconds` begins when the object is created. When it is spent, `requested` is set.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.interrupted_twice = False
        self._requested: Stop | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._handlers_before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in STOP_SIGNALS:
            # A signal that was ignored stays so: nohup makes a process ignore SIGHUP.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers_before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            # After a second Ctrl-C our handler stays, which ignores further ones.
            if number == signal.SIGINT and self.interrupted_twice:
                continue
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def requested(self) -> Stop | None:
        """The first request to stop, or a failure after it; None if there was none."""
        if self._requested is None and self._budget_is_spent():
            self._requested = Stop("the budget's end", BUDGET_SPENT)
        return self._requested

    def _budget_is_spent(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def request(self, signal_number: int) -> None:
        """Ask to stop, as a signal with this number would."""
        if self._requested is None:
            name = signal.Signals(signal_number).name
            self._requested = Stop(name, STOPPED + signal_number)

    def fail(self, failure: BaseException) -> None:
        """Ask to stop because of a failure. May be called in another thread."""
        request = Stop(str(failure), FAILURE)
        request.__cause__ = failure
        self._requested = request

    def raise_if_requested(self) -> None:
        """Raise `Stop` if the run was asked to stop."""
        request = self.requested
        if request is not None:
            raise request

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Ask to stop, or raise KeyboardInterrupt at the second Ctrl-C."""
        if self._requested is None or number != signal.SIGINT:
            self.request(number)
        elif not self.interrupted_twice:
            self.interrupted_twice = True
            raise KeyboardInterrupt
