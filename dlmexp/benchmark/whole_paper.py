"""The paper itself, run by its command from an empty folder for some minutes, and what it would take as a whole."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from dlmexp.benchmark.measure import give_back_memory
from dlmexp.benchmark.watts import watts_of
from dlmexp.console import duration
from dlmexp.errors import UserError

PAPER = ("experiment=paper",)
AIM_SECONDS = 600.0
LOG = "run.log"  # what the run printed, beside results that are kept


@dataclass(frozen=True)
class Ran:
    """A bounded run: its cells, and the share of the expected time of all that those done had."""

    done: int
    failed: int
    cells: int
    seconds: float  # by the clock, from the command to the last record
    share: float
    watts: str
    estimate: str  # what it said before it trained; empty: nothing

    @property
    def complete(self) -> bool:
        return self.done + self.failed == self.cells

    @property
    def whole(self) -> float:
        """Seconds of the whole: measured if it is complete, else extrapolated."""
        return self.seconds if self.complete else self.seconds / max(self.share, 1e-9)

    def lines(self) -> list[str]:
        found = [
            f"cells with a record: {self.done} done and {self.failed} failed of {self.cells}",
            f"wall clock, start and compilation included: {duration(self.seconds)}",
            f"estimate before the first step: {self.estimate or 'none'}",
            f"mean power draw: {self.watts} W",
        ]
        aim = f"aim {duration(AIM_SECONDS)}, {'met' if self.whole <= AIM_SECONDS else 'NOT MET'}"
        if self.complete:
            return [*found, f"the whole paper took {duration(self.seconds)} ({aim})"]
        return [
            *found,
            f"EXTRAPOLATED, not measured: the whole in {duration(self.whole)} ({aim}), as what is done is "
            f"{self.share:.1%} of the expected time of all",
        ]


def run_paper(
    device: str, minutes: float, cold: bool = False, kept: Path | None = None, words: Sequence[str] = PAPER
) -> Ran:
    """Run it in a process of its own, bounded by a budget. `cold`: with an empty cache of compiled kernels; `kept`: a
    new folder for the results, which are thrown away otherwise."""
    if kept is not None and kept.exists() and any(kept.iterdir()):
        raise UserError(f"--results {kept}: what is there would not be trained and timed; name a folder that is empty")
    give_back_memory(device)
    with tempfile.TemporaryDirectory() as folder:
        results = kept or Path(folder) / "results"
        environment = os.environ | ({"TRITON_CACHE_DIR": str(Path(folder) / "triton")} if cold else {})
        command = [sys.executable, "-m", "dlmexp", "run", *words, f"device={device}", f"results={results}"]
        began = perf_counter()
        with watts_of(device) as watts:
            code, said = _followed([*command, f"budget={60 * minutes:.0f}s"], environment, kept)
        seconds = perf_counter() - began
        if code not in (0, 1, 3):  # complete, some cells failed, the budget is spent
            raise UserError(f"'{' '.join(command)}' ended with exit code {code}: run it to see why")
        return _counted(words, device, results, seconds, str(watts), estimate_in(said))


def _followed(command: Sequence[str], environment: Mapping[str, str], kept: Path | None) -> tuple[int, str]:
    """The exit code of a run, and all that it printed. Its estimate and what it says about memory are shown as it says
    them; all of it is in a file in the folder `kept`."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    said = []
    with (
        open(kept / LOG if kept else os.devnull, "w", encoding="utf-8", buffering=1) as log,
        subprocess.Popen(
            command, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        for line in process.stdout or ():
            said.append(line)
            log.write(line)
            if "memory" in line or estimate_in(line):
                print(f"the run: {line.strip()}", flush=True)
    return process.returncode, "".join(said)


def estimate_in(printed: str) -> str:
    """What a run says before it trains of how long it will take; empty if it says nothing."""
    found = re.search(r"batch(?:es)?\b.*: (about .*)", printed)
    return found[1] if found else ""


def _counted(words: Sequence[str], device: str, results: Path, seconds: float, watts: str, estimate: str) -> Ran:
    import torch

    from dlmexp.plan.compose import compose
    from dlmexp.plan.shorthand import spelled_out
    from dlmexp.records.store import Store
    from dlmexp.running.device import device_and_free_memory
    from dlmexp.running.forecast import forecast_share
    from dlmexp.running.lanes import capacity
    from dlmexp.running.sweep import plan_sweep, prepare_sweep

    cfg = compose(spelled_out([*words, f"device={device}", f"results={results}"]))
    sweep, store = prepare_sweep(cfg), Store(results, read_only=True)
    _, free = device_and_free_memory(cfg)
    with tempfile.TemporaryDirectory() as empty:
        everything = plan_sweep(sweep, Store(empty, read_only=True), device, free)
    asked = {cell.key for cell in sweep.cells}
    records = [record for record in store.all() if record.key in asked]
    done = sum(record.done for record in records)
    share = forecast_share(everything.batches, records, device, capacity(torch.device(device)))
    return Ran(done, len(records) - done, len(sweep.cells), seconds, share, watts, estimate)
