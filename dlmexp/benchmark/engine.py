"""How fast the sweep engine is, side by side in one run: a sweep against GPyTorch's models one by one, what the engine
spends beside training, planning, status, and the memory of the largest datasets."""

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

from dlmexp.benchmark.core import Line

GPYTORCH_SAMPLE = 4  # models trained with GPyTorch; the rest is extrapolated
LARGE = {
    "song_like": ["sizes=['100%']", "method=[elbo,joint_log_dlm]", "training.regression.max_iterations=3"],
    "airline_like": ["method=[joint_log_dlm]", "training.large.epochs=1"],
}


class Spent(NamedTuple):
    """Seconds on the clock, and of all cores together."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Spent":
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> "Spent":
        now = Spent.now()
        return Spent(now.wall - self.wall, now.cpu - self.cpu)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per quantity; exit code 1 if one is not what was promised."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark engine", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--skip-memory", action="store_true", help="leave out the full-size datasets (some minutes)")
    parser.add_argument("--iterations", type=int, default=200, help="of the sweep against GPyTorch (default: 200)")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    import torch

    print(f"torch {torch.__version__}, cpu ({torch.get_num_threads()} threads), float64")
    kept = True
    for part in args.parts or [part for part in PARTS if part != "memory" or not args.skip_memory]:
        for line in PARTS[part](args):
            print(line, flush=True)
            kept &= line.kept
    return 0 if kept else 1


def sweep(args: argparse.Namespace) -> list[Line]:
    """The beta grid of joint log-DLM x 5 seeds, ringnorm n=1000, against GPyTorch models trained one after another."""
    import torch

    from dlmexp.benchmark.rival import gpytorch_step
    from dlmexp.data.splits import prepare
    from dlmexp.plan.compose import compose
    from dlmexp.running.sweep import prepare_sweep

    words = ["dataset=ringnorm_drawn", "sizes=[1000]", "method=[joint_log_dlm]", "device=cpu"]
    words += [f"training.binary.max_iterations={args.iterations}", "training.binary.tolerance=0.0"]
    found = prepare_sweep(compose(words))
    spec, data = found.datasets["ringnorm_drawn"]
    cells = [cell for cell in found.cells if cell.objective == "log_dlm"]

    def alone(cell: Any) -> Spent:
        rows = prepare(data, spec, cell.seed, cell.n)
        step = gpytorch_step(torch.tensor(rows.X_train), torch.tensor(rows.y_train), cell.M, "log_dlm")
        began = Spent.now()
        for _ in range(args.iterations):
            step()
        return began.since()

    # Half of the sample before and half after our own run, so that a slow minute does not fall on one side alone.
    sample = cells[:: max(1, len(cells) // GPYTORCH_SAMPLE)][:GPYTORCH_SAMPLE]
    theirs = [alone(cell) for cell in sample[::2]]
    ours = _run(words)
    theirs += [alone(cell) for cell in sample[1::2]]
    wall, cpu = (sum(part) / len(theirs) * len(cells) for part in zip(*theirs, strict=True))
    what = f"{len(cells)} models (betas x seeds), n=1000, {args.iterations} iterations"
    return [
        Line(f"{what}: the whole run", ours.wall, "s"),
        Line(f"GPyTorch one by one (extrapolated from {len(theirs)} models)", wall, "s"),
        Line("times faster than GPyTorch one by one", wall / ours.wall, "x", 3.5, at_least=True),
        Line("the same in CPU time, which a busy machine distorts less", cpu / ours.cpu, "x"),
    ]


def overhead(args: argparse.Namespace) -> list[Line]:
    """The default job: everything that is neither a training step nor an evaluation nor the set-up of a batch."""
    import dlmexp.running.engine as engine
    import dlmexp.running.programs as build
    import dlmexp.training.graph as graph
    import dlmexp.training.train as train

    watch = _Watch()
    with watch.on(graph, "step"), watch.on(train, "evaluate"), watch.on(engine, "program"), watch.on(build, "_stack"):
        total = _run(["experiment=default", "device=cpu"]).wall
    training = watch.seconds
    return [
        Line("default job, modules loaded", total, "s", 90.0),
        Line(
            "default job: planning, records, progress, in % of training", 100 * (total - training) / training, "%", 5.0
        ),
    ]


def planning(args: argparse.Namespace) -> list[Line]:
    """From words to the batches of about 10 000 cells."""
    from dlmexp.plan.compose import compose
    from dlmexp.records.store import Store
    from dlmexp.running.sweep import plan_sweep, prepare_sweep

    with tempfile.TemporaryDirectory() as folder:
        seeds = ",".join(map(str, range(45)))
        began = time.perf_counter()
        found = prepare_sweep(compose(["dataset=ringnorm_drawn", f"seeds=[{seeds}]", "device=cpu"]))
        count = len(plan_sweep(found, Store(folder), "cpu", None).cells)
        seconds = time.perf_counter() - began
    return [Line(f"planning {count} cells", seconds, "s", 5.0)]


def status(args: argparse.Namespace) -> list[Line]:
    """`dlmexp status` as a command of its own, on about 20 000 records."""
    import msgspec

    from dlmexp.plan.compose import compose
    from dlmexp.records.files import sealed
    from dlmexp.records.manifest import manifest, write_manifest
    from dlmexp.records.schema import FORMAT, Made, Record, Result
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
    return [Line(f"status of {len(cells)} records, as a command", best, "s", 2.0)]


def memory(args: argparse.Namespace) -> list[Line]:
    """The most memory of a process that trains on the largest datasets: 5 seeds at once, a few iterations."""
    lines = []
    for dataset, words in LARGE.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "dlmexp", "run", f"dataset={dataset}", *words, "device=cpu"]
            command += ["beta=list", "beta.values=[1]", f"results={folder}"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, code, used = os.wait4(process.pid, 0)
        assert os.waitstatus_to_exitcode(code) == 0, f"'{' '.join(command)}' failed"
        lines.append(Line(f"{dataset}, full size, 5 seeds: peak memory", used.ru_maxrss / 2**20, "GiB", 4.0))
    return lines


PARTS: dict[str, Callable[[argparse.Namespace], list[Line]]] = {
    "planning": planning,
    "status": status,
    "overhead": overhead,
    "sweep": sweep,
    "memory": memory,
}


def _run(words: Sequence[str]) -> Spent:
    """`dlmexp run` in this process, into a folder that goes away."""
    from dlmexp.plan.compose import compose
    from dlmexp.running.run import execute

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        began = Spent.now()
        code = execute(compose([*words, f"results={folder}"]))
        assert code == 0, f"exit code {code}"
        return began.since()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class _Watch:
    """Time spent in some functions, those they call included."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._within = False

    @contextlib.contextmanager
    def on(self, module: Any, name: str) -> Iterator[None]:
        plain = getattr(module, name)

        def timed(*given: Any, **named: Any) -> Any:
            if self._within:
                return plain(*given, **named)
            self._within, began = True, time.perf_counter()
            try:
                return plain(*given, **named)
            finally:
                self.seconds += time.perf_counter() - began
                self._within = False

        setattr(module, name, timed)
        try:
            yield
        finally:
            setattr(module, name, plain)


if __name__ == "__main__":
    raise SystemExit(main())
