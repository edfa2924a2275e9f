"""Choose M where a run says `M=auto` (docs/SPEC.md, section 2)."""

from pathlib import Path

import torch

from dlmexp.core.training.automatic import chosen_inducing_count
from dlmexp.core.training.model import AutoM
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import prepare
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.records.inducing_counts import (
    ChosenInducingCount,
    recorded_inducing_count,
    source_of,
)
from dlmexp.experiment.running import process, programs


class InducingCounts:
    """The numbers of inducing inputs on one dataset.

    Args:
        root: The results folder, whose choices are taken again.
        data: The rows of the dataset.
        new: New choices are added to it; they are written once the whole run has been checked.
    """

    def __init__(self, root: Path, data: Dataset, new: list[ChosenInducingCount]):
        self.root = root
        self.data = data
        self.new = new

    def choose(self, cell: Cell, spec: DatasetConfig, tolerance: float) -> int:
        """Return the M of cells like this one, whose M is the most that they may have.

        Args:
            cell: A cell on the split that M is chosen from.
            spec: The dataset, divided as for the cell.
            tolerance: What a larger M may gain at most, in nats per row.

        Raises:
            UserError: The likelihood is not Gaussian.
        """
        source = source_of(cell, tolerance)
        recorded = recorded_inducing_count(self.root, cell.dataset, source)
        if recorded is not None:
            return recorded
        for chosen in self.new:
            if chosen.source == source:
                return chosen.M
        if not process.is_extra():
            print(f"{cell.dataset}: choosing M with n = {cell.n} (M=auto) ...", flush=True)
        rows = prepare(self.data, spec, cell.seed, cell.n)
        X = torch.from_numpy(rows.X_train)
        y = torch.from_numpy(rows.y_train)
        auto = AutoM(tolerance, cell.M)
        M = chosen_inducing_count(programs.model(cell), X, y, auto, cell.seed)
        self.new.append(ChosenInducingCount(cell.dataset, source, M))
        return M
