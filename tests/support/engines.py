"""A small job with an engine of its own, in this process."""

from dlmexp.plan.cell import plan
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running.engine import Engine
from dlmexp.running.leases import Leases
from dlmexp.running.process import StopRequest, select_target
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder, Writer, resumed_first
from dlmexp.running.sweep import prepare_sweep


class Watched(Progress):
    """Keeps its messages."""

    def __init__(self):
        super().__init__([], StopRequest())
        self.lines: list[str] = []

    def say(self, line, style=None):
        self.lines.append(line)


class Sweep:
    """A job and an engine for it."""

    def __init__(self, root, words, size=100, beside=False, stop=None, again=()):
        found = prepare_sweep(compose([*words, "keep=none"]))
        self.candidates, self.cells = found.candidates, found.cells
        self.store, self.progress, self.size = Store(root), Watched(), size
        self.stop, self.prepared = stop or StopRequest(), []
        self.leases = Leases(self.store.root, self.stop.fail)
        (self.store.root / "running").mkdir(parents=True, exist_ok=True)
        recorder = Recorder(found, self.store, self.progress.finished, "cpu", frozenset(again))
        recorder.writer, plain = Writer(beside), recorder.prepared

        def split(cell):
            self.prepared.append(cell.seed)
            return plain(cell)

        recorder.prepared = split
        self.engine = Engine(select_target("cpu", "float64"), recorder, self.progress, self.stop, self.leases, 1e9)

    def plan(self, retry_failed=False):
        done, failed = self.store.keys()
        return plan(self.cells, done, failed, lambda _: self.size, retry_failed)

    def train(self, batches):
        with self.leases:
            self.engine.run(resumed_first(self.store, batches))

    def run(self, **how):
        self.train(self.plan(**how).batches)
        return {record.key: record for record in self.store.own()}
