"""An engine that trains the cells of a config in this process."""

from collections.abc import Collection, Sequence
from pathlib import Path

from dlmexp.experiment.plan.cell import Batch, Cell, batches
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.record import Record
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import training_queue
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.engine import Engine
from dlmexp.experiment.running.leases import Leases
from dlmexp.experiment.running.process import StopRequest, select_target
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder, Writer
from dlmexp.experiment.running.sweep import prepare_sweep

NEVER = 1e9  # seconds between checkpoints


class EngineRun:
    """The cells of some settings, and an engine for them."""

    def __init__(
        self,
        root: Path,
        words: Sequence[str],
        batch_size: int = 100,
        writer_in_thread: bool = False,
        again: Collection[Cell] = (),
    ):
        sweep = prepare_sweep(compose([*words, "keep=none"]))
        self.cells = sweep.cells
        self.store = Store(root)
        self.batch_size = batch_size
        self.stop = StopRequest()
        self.progress = Progress(Clock([]), self.stop)
        self.leases = Leases(root, self.stop.fail)
        (root / "running").mkdir(parents=True, exist_ok=True)
        self.recorder = Recorder(
            sweep, self.store, self.progress.note_record, "cpu", frozenset(again)
        )
        self.recorder.writer = Writer(writer_in_thread)
        self.engine = Engine(
            select_target("cpu", "float64"),
            self.recorder,
            self.progress,
            self.stop,
            self.leases,
            NEVER,
        )

    def pending_batches(self, retry_failed: bool = False) -> list[Batch]:
        """Return the batches of cells without a record."""
        done, failed = self.store.keys()
        skip = done if retry_failed else done | failed
        return batches(self.cells, skip, lambda _: self.batch_size)

    def train(self, pending: Sequence[Batch]) -> None:
        """Train batches, resumed ones first."""
        with self.leases:
            self.engine.run(training_queue(self.store, pending))

    def run(self, retry_failed: bool = False) -> dict[str, Record]:
        """Train what has no record, and return all records of the folder by their keys."""
        self.train(self.pending_batches(retry_failed))
        return {record.key: record for record in self.store.own_records()}
