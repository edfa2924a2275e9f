"""The process of a run: where it trains, what asks it to stop (a signal, a spent budget, a
failure), and extra processes (`workers=`), which are the same command again, each training batches
that no other process has.

On a CPU they share the cores. On GPUs there is one process for each: a single one fills a GPU with
batches at once, and further ones would take turns with it."""

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
from dlmexp.common.atomic import within
from dlmexp.common.environment import environment
from dlmexp.common.errors import UserError
from dlmexp.common.limits import Device, converted
from dlmexp.common.processes import available_cores

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
FAILURE = 1  # exit codes
BUDGET_SPENT = 3
STOPPED = 128  # from here on: this, plus the signal that asked the process to stop
SIGPIPE = 13  # whoever reads the output has gone
EXTRA_PROCESS = "DLMEXP_EXTRA_PROCESS"  # set in the environment of extra processes
MOST_PROCESSES = 8  # that are started unasked: each takes some 400 MB of memory
# The package is imported from where it was imported here; nothing is imported from the current
# folder (-P).
COMMAND = (
    "import sys; sys.path.append(sys.argv.pop(1)); from dlmexp.cli import main; sys.exit(main())"
)
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


@dataclass(frozen=True)
class Target:
    """The device of a run, and the type of its rows (`gp.precision`)."""

    device: torch.device
    dtype: torch.dtype

    @property
    def free_memory(self) -> float | None:
        """The free bytes of a GPU; None for the CPU."""
        return None if self.device.type == "cpu" else float(torch.cuda.mem_get_info(self.device)[0])


def select_target(device: str, dtype: str) -> Target:
    """The named device and dtype; `auto` is a GPU where there is one, else the CPU.

    CUDA starts with as many queues to a GPU as it can have, one for each stream: with the default
    of 8, what a batch waits for can be queued behind the steps of another. It reads the number from
    the environment when it starts."""
    converted("device", device, Device)
    if device != "cpu" and torch.cuda.is_available():
        with environment(**{QUEUES: os.environ.get(QUEUES, "32")}):
            torch.zeros(1, device="cuda")  # starts CUDA
        device = "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device={device}: there is no CUDA device here; use device=cpu or leave it out"
        )
    return Target(torch.device("cpu" if device == "auto" else device), getattr(torch, dtype))


def is_out_of_memory(error: Exception) -> bool:
    """Whether it says that memory ran out: a GPU's, NumPy's, or torch's on a CPU, which has no
    class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def is_extra() -> bool:
    """Whether this process was started by another one of the same run."""
    return bool(os.environ.get(EXTRA_PROCESS))


def threads_given() -> bool:
    """Whether somebody has chosen how many cores a run takes."""
    return any(map(os.environ.get, ("OMP_NUM_THREADS", "MKL_NUM_THREADS")))


def processes_that_pay(batches: int, device: str) -> int:
    """One, but on a CPU one for every two batches and at most one per core: the threads of a
    process wait for one another in small steps."""
    if device != "cpu" or threads_given():
        return 1
    return max(1, min(available_cores(), (batches + 1) // 2, MOST_PROCESSES))


def threads_each(workers: int, is_short: bool = False) -> int:
    """Threads for each of `workers` processes, which together use every core once; one in a short
    run. Whoever has set the number for a single process has chosen."""
    if workers == 1 and (threads_given() or not is_short):
        return torch.get_num_threads()
    return 1 if is_short else max(1, available_cores() // workers)


def gpus_for(workers: int, device: str) -> list[str]:
    """The GPUs of so many processes, as CUDA_VISIBLE_DEVICES names them; none on a CPU. UserError
    for too many."""
    if device != "cuda":
        return []
    count = torch.cuda.device_count()
    if workers > max(1, count):
        raise UserError(
            f"workers={workers}: a single process fills a GPU; give {count} at most, one for each GPU here"
        )
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


@contextmanager
def extra_processes(
    number: int, arguments: Sequence[str], root: Path, device: str
) -> Iterator[dict[Path, "subprocess.Popen[bytes]"]]:
    """So many processes of `dlmexp run` with these arguments, by their logs,
    `running/process-2.log` and so on; this process is the first. Each has a GPU of its own. On exit
    they are waited for: they end when no batch is left or the budget is spent. After an exception
    (a signal, say) they are asked to save and leave."""
    words = [word for word in arguments if not word.startswith("workers=")]
    command = [
        sys.executable,
        "-P",
        "-c",
        COMMAND,
        str(Path(dlmexp.__file__).parents[1]),
        "run",
        *words,
        "workers=1",
    ]
    variables = {"OMP_NUM_THREADS": str(threads_each(number + 1)), **os.environ, EXTRA_PROCESS: "1"}
    gpus = gpus_for(number + 1, device)
    started: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        for i in range(1, number + 1):
            own = {"CUDA_VISIBLE_DEVICES": gpus[i]} if gpus else {}
            log = root / "running" / f"process-{i + 1}.log"
            log.unlink(missing_ok=True)
            with open(within(root, log), "xb") as file:
                started[log] = subprocess.Popen(
                    command, stdout=file, stderr=file, env=variables | own
                )
        yield started
    except BaseException:
        for process in started.values():
            process.terminate()
        raise
    finally:
        for process in started.values():
            process.wait()


class Stop(Exception):
    """Ends a run whose state is saved, for this reason and with this exit code."""

    def __init__(self, reason: str, code: int):
        super().__init__(reason)
        self.code = code


class StopRequest:
    """In its context, a signal only sets `stop`. A second Ctrl-C raises `KeyboardInterrupt` at
    once, further ones do nothing: a process that leaves is not interrupted again.

    `stop` is set too when `seconds` have passed since the creation. Outside the main thread no
    signal is noted, since Python calls handlers in the main thread only."""

    def __init__(self, seconds: float | None = None) -> None:
        self.interrupted_twice = False
        self._stop: Stop | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if not (self.interrupted_twice and number == signal.SIGINT):
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def stop(self) -> Stop | None:
        """What has been asked for first; a failure replaces it."""
        if self._stop is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._stop = Stop("the budget's end", BUDGET_SPENT)
        return self._stop

    def request(self, number: int) -> None:
        """Ask to stop as that signal would."""
        self._stop = self._stop or Stop(signal.Signals(number).name, STOPPED + number)

    def fail(self, failure: BaseException) -> None:
        """Ask to stop because of this. May be called in another thread."""
        self._stop = Stop(str(failure), FAILURE)

    def raise_if_requested(self) -> None:
        if self.stop is not None:
            raise self.stop

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None or number != signal.SIGINT:
            self.request(number)
        elif not self.interrupted_twice:
            self.interrupted_twice = True
            raise KeyboardInterrupt
