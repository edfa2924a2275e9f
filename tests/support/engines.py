"""A small job with an engine of its own, in this process."""

from dataclasses import dataclass, field

from dlmexp.plan.batches import plan
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running.device import select_target
from dlmexp.running.engine import Engine
from dlmexp.running.presence import Presence
from dlmexp.running.progress import Progress
from dlmexp.running.signals import StopRequest
from dlmexp.running.sweep import prepare_sweep, prepared_splits


@dataclass
class Watched(Progress):
    """Keeps its messages."""

    lines: list[str] = field(default_factory=list)

    def __init__(self):
        super().__init__(0, 0)
        self.lines = []

    def show(self, line=None):
        if line is not None:
            self.lines.append(line)


class Sweep:
    """A job and an engine for it."""

    def __init__(self, root, words, size=100):
        found = prepare_sweep(compose(words))
        self.candidates, self.cells = found.candidates, found.cells
        self.store, self.progress, self.size = Store(root), Watched(), size
        self.presence, self.stop = Presence(self.store.root), StopRequest()
        self.engine = Engine(
            self.store, select_target("cpu", "float64"),
            prepared_splits(found),
            self.progress, self.stop, self.presence, "test", 1e9,
        )  # fmt: skip

    def plan(self, retry_failed=False):
        done, failed = self.store.keys()
        return plan(self.cells, done, failed, lambda _: self.size, retry_failed)

    def run(self, **how):
        self.engine.run(self.plan(**how).batches)
        return {record.key: record for record in self.store.all()}
