"""Where a run trains: the device, its number type and free memory, and extra processes (`workers=`), which are the same
command again, each training batches that no other process has.

On a CPU they share the cores. On GPUs there is one process for each: a single one fills a GPU with batches at once, and
further ones would take turns with it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import dlmexp
from dlmexp.atomic import within
from dlmexp.config import RunConfig
from dlmexp.errors import UserError
from dlmexp.paths import cores, environment
from dlmexp.plan.checks import check_limits

EXTRA_PROCESS = "DLMEXP_EXTRA_PROCESS"  # set in the environment of extra processes
MOST_PROCESSES = 8  # that are started unasked: each takes some 400 MB of memory
# The package is imported from where it was imported here; nothing is imported from the current folder (-P).
COMMAND = "import sys; sys.path.append(sys.argv.pop(1)); from dlmexp.cli import main; sys.exit(main())"
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

    CUDA starts with as many queues to a GPU as it can have, one for each stream: with the default of 8, what a batch
    waits for can be queued behind the steps of another. It reads the number from the environment when it starts.
    """
    check_limits("device", device, RunConfig.__dataclass_fields__["device"].metadata)
    if device != "cpu" and torch.cuda.is_available():
        with environment(**{QUEUES: os.environ.get(QUEUES, "32")}):
            torch.zeros(1, device="cuda")  # starts CUDA
        device = "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={device}: there is no CUDA device here; use device=cpu or leave it out")
    return Target(torch.device("cpu" if device == "auto" else device), getattr(torch, dtype))


def is_out_of_memory(error: Exception) -> bool:
    """Whether it says that memory ran out: a GPU's, NumPy's, or torch's on a CPU, which has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def is_extra() -> bool:
    """Whether this process was started by another one of the same run."""
    return bool(os.environ.get(EXTRA_PROCESS))


def threads_given() -> bool:
    """Whether somebody has chosen how many cores a run takes."""
    return any(map(os.environ.get, ("OMP_NUM_THREADS", "MKL_NUM_THREADS")))


def processes_that_pay(batches: int, device: str) -> int:
    """One, but on a CPU one for every two batches and at most one per core: the threads of a process wait for one
    another in small steps."""
    if device != "cpu" or threads_given():
        return 1
    return max(1, min(cores(), (batches + 1) // 2, MOST_PROCESSES))


def threads_each(workers: int, is_short: bool = False) -> int:
    """Threads for each of `workers` processes, which together use every core once; one in a short run. Whoever has set
    the number for a single process has chosen."""
    if workers == 1 and (threads_given() or not is_short):
        return torch.get_num_threads()
    return 1 if is_short else max(1, cores() // workers)


def gpus_for(workers: int, device: str) -> list[str]:
    """The GPUs of so many processes, as CUDA_VISIBLE_DEVICES names them; none on a CPU. `UserError` if there are
    fewer."""
    if device != "cuda":
        return []
    count = torch.cuda.device_count()
    if workers > max(1, count):
        raise UserError(f"workers={workers}: a single process fills a GPU; give {count} at most, one for each GPU here")
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


class ExtraProcesses:
    """`number` processes of `dlmexp run` with the given arguments, which run while the context is entered. Their output
    goes to `running/process-2.log` and so on; this process is the first. The i-th trains on the i-th of `gpus`."""

    def __init__(self, number: int, arguments: Sequence[str], root: Path, gpus: Sequence[str] = ()):
        self.gpus = gpus
        self.arguments = [argument for argument in arguments if not argument.startswith("workers=")]
        self.logs = [root / "running" / f"process-{i + 2}.log" for i in range(number)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "ExtraProcesses":
        variables = {"OMP_NUM_THREADS": str(threads_each(len(self.logs) + 1)), **os.environ, EXTRA_PROCESS: "1"}
        package = str(Path(dlmexp.__file__).parents[1])
        command = [sys.executable, "-P", "-c", COMMAND, package, "run", *self.arguments, "workers=1"]
        try:
            for i, log in enumerate(self.logs, start=1):
                own = {"CUDA_VISIBLE_DEVICES": self.gpus[i]} if self.gpus else {}
                log.unlink(missing_ok=True)
                with open(within(log.parents[1], log), "xb") as file:
                    self._processes.append(subprocess.Popen(command, stdout=file, stderr=file, env=variables | own))
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the processes, which end when no batch is left or the budget is spent. After an exception (a signal,
        say) they are asked to save and leave."""
        for process in self._processes if kind else ():
            process.terminate()
        for process in self._processes:
            process.wait()

    def ended_otherwise(self, code: int) -> dict[Path, int]:
        """The exit codes of the processes that ended neither with 0 nor as this one with `code`, by their logs."""
        codes = {log: process.returncode for log, process in zip(self.logs, self._processes, strict=False)}
        return {log: other for log, other in codes.items() if other not in (0, code)}
