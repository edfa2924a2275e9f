"""For the scenarios on a real cluster: a results folder, commands on it, and a small block to train."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT_SECONDS = 900  # for any one event; on busy cores some take minutes

# Two cells that never converge and pause at each step: a block takes a hundredth of a second per iteration, hardly more
# on a busy machine.
BLOCK = [
    "plugins=[tests.support.paused]", "estimator=paused",
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=300", "dataset.ringnorm_drawn.M=10", "sizes=[40]",
    "seeds=[0]", "method=joint_log_dlm", "beta=list", "beta.values=[1,0.1]", "training.binary.tolerance=0",
    "checkpoint_seconds=1", "device=cpu",
]  # fmt: skip
ITERATIONS = 1000


@dataclass
class Folder:
    """A results folder, and the command and environment of a user who works in it."""

    root: Path
    env: dict[str, str]
    command: Sequence[str] = (sys.executable, "-m", "dlmexp")
    user: str = "root"
    started: int = 0

    @property
    def output_file(self) -> Path:
        """Where the command that was started last prints to."""
        return self.root.with_name(f"{self.root.name}-{self.user}-{self.started}.txt")

    def start(self, *words: str, launcher: str = "slurm") -> "subprocess.Popen[bytes]":
        through = ["-m", f"hydra/launcher={launcher}"] if launcher else []
        command = [*self.command, "run", *through, f"results={self.root}", *words]
        self.started += 1
        with self.output_file.open("w") as file:
            return subprocess.Popen(command, env=self.env, cwd=self.root.parent, stdout=file, stderr=file)

    def end(self, process: "subprocess.Popen[bytes]") -> int:
        with process:
            try:
                return process.wait(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"timed out; it printed: {self.output}") from None

    def run(self, *words: str, launcher: str = "slurm") -> int:
        return self.end(self.start(*words, launcher=launcher))

    @property
    def output(self) -> str:
        """What the command that was started last has printed so far."""
        return self.output_file.read_text()

    def status(self) -> dict[str, Any]:
        words = [*self.command, "status", "--json", "--results", str(self.root)]
        return json.loads(subprocess.run(words, env=self.env, capture_output=True, text=True, check=True).stdout)

    def counts(self) -> tuple[int, int]:
        """Cells done, and cells without any record, whether queued, running or missing."""
        found = self.status()["experiments"]
        return sum(e["done"] for e in found), sum(e["missing"] + e["queued"] + e["running"] for e in found)

    def slurm(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=True, timeout=60).stdout

    def jobs(self) -> list[str]:
        """Every job that was ever submitted for this folder."""
        return sorted(path.parent.name for path in self.root.glob("multirun/*/jobs/*/submitted.json"))

    def log(self, job: str) -> str:
        return next(self.root.glob(f"multirun/*/jobs/{job}/*_log.out")).read_text()

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.root.glob("multirun/*/jobs/*/*_log.out"))

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.root.glob("records/*/*.json")]

    def results(self) -> dict[str, Any]:
        """The results and array names of all records by key, without the time they took."""
        found = {}
        for record in self.records():
            assert record["status"] == "done", record
            found[record["key"]] = ({**record["result"], "seconds": None}, record["arrays"])
        return found

    def trained(self, description: str) -> int:
        """How often a job started to train such a batch (rather than find it done, or resume it)."""
        started = [line for line in re.split(r"\nbatch ", self.logs()) if re.match(rf"\S+\s+{description}", line)]
        return sum("resumes at" not in line for line in started)

    def reached(self) -> int:
        """The largest iteration of a checkpoint; 0 where there is none."""
        found = 0
        for path in self.root.glob("checkpoints/*.npz"):
            try:
                with np.load(path, allow_pickle=False) as content:
                    found = max(found, json.loads(content["about"].tobytes()).get("iteration", 0))
            except (OSError, ValueError):
                continue  # replaced just now
        return found


def wait_until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.3)


def resumed_at(log: str) -> list[int]:
    return [int(number) for number in re.findall(r"resumes at iteration (\d+)", log)]
