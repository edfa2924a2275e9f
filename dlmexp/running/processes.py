"""Extra processes of a run (`workers=`): the same command again, each training batches that no other process has.

On a CPU they share the cores. On GPUs there is one process for each: a single one fills a GPU with several batches at
once, and further ones would take turns with it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.cores import cores
from dlmexp.plan.batches import Plan
from dlmexp.running.cost import is_short
from dlmexp.running.threads import GIVEN

EXTRA_PROCESS = "DLMEXP_EXTRA_PROCESS"  # set in the environment of extra processes


MOST_PROCESSES = 8  # that are started unasked: each takes some 400 MB of memory


def processes_that_pay(plan: Plan, device: str, environment: Mapping[str, str] = os.environ) -> int:
    """One, but on a CPU one for every two batches and at most one per core: the threads of a process wait for one
    another in small steps. Whoever sets the number of threads has chosen how many cores this run takes."""
    if device != "cpu" or is_short(plan) or any(environment.get(name) for name in GIVEN):
        return 1
    return max(1, min(cores(), (len(plan.batches) + 1) // 2, MOST_PROCESSES))


def cores_each(workers: int) -> int:
    """Threads for each of `workers` processes, so that together they use every core once."""
    return max(1, cores() // workers)


def visible_gpus(count: int) -> list[str]:
    """The visible GPUs as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


class ExtraProcesses:
    """`number` processes of `dlmexp run` with the given arguments, which run while the context is entered. Their output
    goes to `running/process-2.log` and so on; this process is the first."""

    def __init__(self, number: int, arguments: Sequence[str], root: Path, gpus: Sequence[str] = ()):
        """`gpus`: as CUDA names the visible ones; the i-th process trains on the i-th of them."""
        self.gpus = gpus
        self.arguments = [argument for argument in arguments if not argument.startswith("workers=")]
        self.logs = [within(root, root / "running" / f"process-{i + 2}.log") for i in range(max(0, number))]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "ExtraProcesses":
        threads = str(cores_each(len(self.logs) + 1))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, EXTRA_PROCESS: "1"}
        command = [sys.executable, "-m", "dlmexp", "run", *self.arguments, "workers=1"]
        for i, log in enumerate(self.logs, start=1):
            own = {"CUDA_VISIBLE_DEVICES": self.gpus[i]} if self.gpus else {}
            log.unlink(missing_ok=True)
            with open(log, "xb") as file:
                self._processes.append(subprocess.Popen(command, stdout=file, stderr=file, env=environment | own))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the processes, which end when no batch is left or the budget is spent. After an exception (a signal,
        say) they are asked to save and leave."""
        if kind is not None:
            for process in self._processes:
                process.terminate()
        for process in self._processes:
            process.wait()
