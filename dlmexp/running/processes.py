"""Several processes on one run: each takes the batches that nobody else has."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

COLLEAGUE = "DLMEXP_COLLEAGUE"  # set where a process helps another, which does the talking


def cores_each(workers: int) -> int:
    """Threads that each of so many processes may use: on a CPU, more would only wait for each other."""
    return max(1, (os.cpu_count() or 1) // workers)


class Colleagues:
    """Copies of this command, started and ended with it; what they say goes to `running/worker-N.log`."""

    def __init__(self, number: int, words: Sequence[str], root: Path):
        self.words = [word for word in words if not word.startswith("workers=")]
        self.logs = [root / "running" / f"worker-{i + 1}.log" for i in range(max(0, number))]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Colleagues":
        threads = str(cores_each(len(self.logs) + 1))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, COLLEAGUE: "1"}
        command = [sys.executable, "-m", "dlmexp", "run", *self.words, "workers=1"]
        for log in self.logs:
            with open(log, "wb") as file:
                self._processes.append(subprocess.Popen(command, stdout=file, stderr=file, env=environment))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """They have the same budget and end with the same work; on the way out for another reason they are told."""
        for process in self._processes:
            if kind is not None:
                process.terminate()
            process.wait()
