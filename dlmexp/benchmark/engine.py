"""Speed of a whole run: a sweep compared with GPyTorch models one after another, the overhead of everything that is not
training, planning, status, and the memory for the largest datasets."""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlmexp.benchmark.measure import Measurement, print_all

GPYTORCH_SAMPLE = 4  # models trained with GPyTorch; the rest is extrapolated
LARGE = {
    "song_like": ["sizes=['100%']", "method=[elbo,joint_log_dlm]", "training.regression.max_iterations=3"],
    "airline_like": ["method=[joint_log_dlm]", "training.large.epochs=1"],
}


class Seconds(NamedTuple):
    """Wall-clock time, and CPU time of all cores together."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Seconds":
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> "Seconds":
        now = Seconds.now()
        return Seconds(now.wall - self.wall, now.cpu - self.cpu)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark engine", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--skip-memory", action="store_true", help="skip the full-size datasets (some minutes)")
    parser.add_argument(
        "--iterations", type=int, default=200, help="iterations of the sweep and of GPyTorch (default: 200)"
    )
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    import torch

    print(f"torch {torch.__version__}, cpu ({torch.get_num_threads()} threads), float64")
    parts = args.parts or [part for part in PARTS if part != "memory" or not args.skip_memory]
    return 0 if print_all(one for part in parts for one in PARTS[part](args)) else 1


def sweep(args: argparse.Namespace) -> list[Measurement]:
    """Time to run joint log-DLM (beta grid x 5 seeds, ringnorm n=1000), compared with GPyTorch models one by one."""
    import torch

    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.data.splits import prepare
    from dlmexp.plan.compose import compose
    from dlmexp.running.sweep import prepare_sweep

    overrides = ["dataset=ringnorm_drawn", "sizes=[1000]", "method=[joint_log_dlm]", "device=cpu"]
    overrides += [f"training.binary.max_iterations={args.iterations}", "training.binary.tolerance=0.0"]
    found = prepare_sweep(compose(overrides))
    spec, data = found.datasets["ringnorm_drawn"]
    cells = [cell for cell in found.cells if cell.objective == "log_dlm"]

    def gpytorch_seconds(cell: Any) -> Seconds:
        rows = prepare(data, spec, cell.seed, cell.n)
        step = gpytorch_step(torch.tensor(rows.X_train), torch.tensor(rows.y_train), cell.M, "log_dlm")
        start = Seconds.now()
        for _ in range(args.iterations):
            step()
        return start.since()

    # Half of the sample before and half after our run, so that a slow phase of the machine affects both.
    sample = cells[:: max(1, len(cells) // GPYTORCH_SAMPLE)][:GPYTORCH_SAMPLE]
    theirs = [gpytorch_seconds(cell) for cell in sample[::2]]
    ours = _run(overrides)
    theirs += [gpytorch_seconds(cell) for cell in sample[1::2]]
    wall, cpu = (sum(part) / len(theirs) * len(cells) for part in zip(*theirs, strict=True))
    label = f"{len(cells)} models (betas x seeds), n=1000, {args.iterations} iterations"
    return [
        Measurement(f"{label}: the whole run", ours.wall, "s"),
        Measurement(f"GPyTorch one after another (extrapolated from {len(theirs)} models)", wall, "s"),
        Measurement("times faster than GPyTorch one after another", wall / ours.wall, "x", 3.5, at_least=True),
        Measurement("the same in CPU time (less affected by other programs)", cpu / ours.cpu, "x"),
    ]


def overhead(args: argparse.Namespace) -> list[Measurement]:
    """The time of the default job as a command; and, in one process, the time of it that is neither a training step nor
    an evaluation nor the set-up of a batch."""
    import dlmexp.running.programs as build
    import dlmexp.running.trainer as trainer
    import dlmexp.training.train as train

    timer = _FunctionTimer()
    parts = ((train, "evaluate"), (train, "evaluate_finally"), (trainer, "program"), (build, "_stack"))
    with contextlib.ExitStack() as timed:
        timed.enter_context(timer.on_what(train, "stepper"))
        for module, name in parts:
            timed.enter_context(timer.on(module, name))
        total = _run(["experiment=default", "device=cpu"]).wall
    training = timer.seconds
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dlmexp", "run", "device=cpu", f"results={folder}"]
        whole = _seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    return [
        Measurement("default job, as a command", whole, "s", 60.0),
        Measurement("default job in one process, modules loaded", total, "s"),
        Measurement("  planning, records, progress, in % of training", 100 * (total - training) / training, "%", 5.0),
    ]


def planning(args: argparse.Namespace) -> list[Measurement]:
    """Time to plan about 10 000 cells: from config overrides to batches."""
    from dlmexp.plan.compose import compose
    from dlmexp.records.store import Store
    from dlmexp.running.sweep import plan_sweep, prepare_sweep

    with tempfile.TemporaryDirectory() as folder:
        seeds = ",".join(map(str, range(45)))
        start = time.perf_counter()
        found = prepare_sweep(compose(["dataset=ringnorm_drawn", f"seeds=[{seeds}]", "device=cpu"]))
        count = len(plan_sweep(found, Store(folder), "cpu", None).cells)
        seconds = time.perf_counter() - start
    return [Measurement(f"planning {count} cells", seconds, "s", 5.0)]


def status(args: argparse.Namespace) -> list[Measurement]:
    """Time of the command `dlmexp status` with about 20 000 records."""
    import msgspec

    from dlmexp.plan.compose import compose
    from dlmexp.records.files import sealed
    from dlmexp.records.manifest import manifest, write_manifest
    from dlmexp.records.record import FORMAT, Made, Record, Result
    from dlmexp.running.sweep import prepare_sweep

    seeds = ",".join(map(str, range(81)))
    candidates = prepare_sweep(compose(["dataset=ringnorm_drawn", f"seeds=[{seeds}]", "device=cpu"])).candidates
    cells = {cell.key: cell for some in candidates for cell in some.cells}
    with tempfile.TemporaryDirectory() as folder:
        write_manifest(Path(folder), manifest("empty-records", candidates))
        (Path(folder) / "records" / "ringnorm_drawn").mkdir(parents=True)
        for key, cell in cells.items():
            record = Record(key=key, status="done", cell=cell, result=Result(), made=Made(), format=FORMAT)
            path = Path(folder) / "records" / cell.dataset / f"{key}.json"
            path.write_bytes(sealed(msgspec.json.encode(record)))
        command = [sys.executable, "-m", "dlmexp", "status", "--results", folder]
        best = min(_seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) for _ in range(3))
    return [Measurement(f"status of {len(cells)} records, as a command", best, "s", 2.0)]


def memory(args: argparse.Namespace) -> list[Measurement]:
    """Peak memory of a process that trains on the largest datasets: 5 seeds at once, a few iterations."""
    lines = []
    for dataset, overrides in LARGE.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "dlmexp", "run", f"dataset={dataset}", *overrides, "device=cpu"]
            command += ["beta=list", "beta.values=[1]", f"results={folder}"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, code, used = os.wait4(process.pid, 0)
        assert os.waitstatus_to_exitcode(code) == 0, f"'{' '.join(command)}' failed"
        lines.append(Measurement(f"{dataset}, full size, 5 seeds: peak memory", used.ru_maxrss / 2**20, "GiB", 4.0))
    return lines


PARTS: dict[str, Callable[[argparse.Namespace], list[Measurement]]] = {
    "planning": planning,
    "status": status,
    "overhead": overhead,
    "sweep": sweep,
    "memory": memory,
}


def _run(overrides: Sequence[str]) -> Seconds:
    """Time of `dlmexp run` in this process, with results in a temporary folder."""
    from dlmexp.plan.compose import compose
    from dlmexp.running.run import execute

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        start = Seconds.now()
        code = execute(compose([*overrides, f"results={folder}"]))
        assert code == 0, f"exit code {code}"
        return start.since()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _FunctionTimer:
    """Measures the total time in some functions, including the functions that they call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return function(*args, **kwargs)
            self._running, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start
                self._running = False

        return timed

    @contextlib.contextmanager
    def on(self, module: Any, name: str) -> Iterator[None]:
        with _replaced(module, name, self.timed(getattr(module, name))):
            yield

    @contextlib.contextmanager
    def on_what(self, module: Any, name: str) -> Iterator[None]:
        """Of the functions that this one returns."""
        function = getattr(module, name)
        with _replaced(module, name, lambda *args, **kwargs: self.timed(function(*args, **kwargs))):
            yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, by: Callable[..., Any]) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, by)
    try:
        yield
    finally:
        setattr(module, name, before)


if __name__ == "__main__":
    raise SystemExit(main())
