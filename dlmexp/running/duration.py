"""How long a run will take, in words: before it starts, and with `plan=true` what that is made of."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.table import Table

from dlmexp.config import DatasetConfig
from dlmexp.console import counted, duration, wide_console
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import split
from dlmexp.plan.batches import Plan
from dlmexp.records.record import Record
from dlmexp.records.store import Store
from dlmexp.running.cost import Costs, Rows, is_short
from dlmexp.running.forecast import BUSY, Estimate, Forecast
from dlmexp.running.iterations import Iterations
from dlmexp.running.pace import Measured, learn, measured_pace
from dlmexp.running.processes import EXTRA_PROCESS
from dlmexp.running.schedule import Capacity, course
from dlmexp.running.sweep import Sweep

MOST_RECORDS = 3000  # of the results folder that are read for their iterations


class Prediction:
    """The forecast of a plan, and the pace that it is made with."""

    def __init__(self, plan: Plan, sweep: Sweep, store: Store, device: str, workers: int):
        self.plan, self.workers = plan, workers
        iterations = Iterations(_records(plan, store))
        rows = {data.name: _rows(spec, data) for spec, data in sweep.datasets.values()}

        def expected(costs: Costs) -> Iterable[float]:
            return [course(batch, costs, iterations, device).alone for batch in plan.batches]

        self.measured: Measured = measured_pace(plan.batches, expected, rows, device)
        self.forecast = Forecast(
            plan.batches, Costs(self.measured.pace, rows), iterations, device, _capacity(device), workers,
            self.measured.covered, self.measured.load,
        )  # fmt: skip
        self.estimate: Estimate = self.forecast.estimate()

    @property
    def sentence(self) -> str:
        """How long it will take."""
        likely, low, high, longest = self.estimate
        what = f"{counted(self.plan.pending, 'cell')} in {counted(len(self.plan.batches), 'batch')}"
        what += f", {self.workers} processes" if self.workers > 1 else ""
        busy = (
            f", on a machine that others slow down {self.measured.load:.1f} times" if self.measured.load > BUSY else ""
        )
        said = f"{what}: about {duration(likely)} ({duration(low)} to {duration(high)}){busy}"
        return said if longest < 1.1 * high else f"{said}; {duration(longest)} if no cell converges before its limit"

    @contextmanager
    def compared(self) -> Iterator[None]:
        """Around the run: what it takes corrects what is remembered of the device, also if it is stopped."""
        self.forecast.start()
        try:
            yield
        finally:
            learn(self.measured.key, self.forecast.lessons())

    @property
    def basis(self) -> str:
        """What it is made of, in a sentence."""
        one = self.measured
        how = "remembered and checked just now" if one.remembered else "of a trial just now"
        pace = f"pace {how} (steps that make {one.covered:.0%} of the time were timed)"
        sources = ", ".join(f"{share:.0%} {source}" for source, share in self.forecast.sources().items())
        return f"{pace}; iterations from: {sources}"

    def show(self) -> None:
        """A table by method and size: cells, iterations, and the time of all of them."""
        table = Table("dataset", "n", "variant", "objective", "cells", "iterations", "ms/model-step", "time")
        found: dict[tuple, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for one in self.forecast.planned.values():
            cell = one.cell
            sums = found[cell.dataset, cell.n, cell.variant, f"{cell.objective} {cell.estimator_label}"]
            sums[0], sums[1] = sums[0] + 1, sums[1] + one.iterations
            sums[2] += one.iterations * one.seconds
        for (dataset, n, variant, objective), (cells, iterations, seconds) in found.items():
            table.add_row(
                dataset, str(n), variant, objective, f"{cells:.0f}", f"{iterations / cells:.0f}",
                f"{1e3 * seconds / iterations:.3g}", duration(seconds),
            )  # fmt: skip
        wide_console().print(table)


def predicted(plan: Plan, sweep: Sweep, store: Store, device: str, workers: int) -> Prediction | None:
    """None for a short plan, and in an extra process of a run."""
    if os.environ.get(EXTRA_PROCESS) or is_short(plan):
        return None
    return Prediction(plan, sweep, store, device, workers)


def _records(plan: Plan, store: Store) -> Iterable[Record]:
    """Fits of this plan that are done, of all kinds."""
    done = [cell for cell in plan.cells if cell.key in plan.done and cell.kind == "fit" and cell.has_stopping_rule]
    every = max(1, len(done) // MOST_RECORDS)
    found = (store.find(cell.dataset, cell.key) for cell in done[::every])
    return [record for record in found if record is not None]


def _rows(spec: DatasetConfig, data: Dataset) -> Rows:
    parts = split(len(data.y), spec.split, 0, spec.test_cap, data.arrangement)
    return Rows(data.X.shape[1], len(parts.validation), len(parts.test))


def _capacity(device: str) -> Capacity:
    import torch

    from dlmexp.running.lanes import capacity

    return capacity(torch.device(device))
