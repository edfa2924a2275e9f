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
    """Chooses the number of inducing inputs on one dataset.

    Args:
        root: The results folder, which may have records of earlier choices.
        data: The rows of the dataset.
        new_choices: A list to which new choices are added. They are written after the whole run has
            been checked.
    """

    def __init__(self, root: Path, data: Dataset, new_choices: list[ChosenInducingCount]):
        self.root = root
        self.data = data
        self.new_choices = new_choices

    def choose(self, cell: Cell, spec: DatasetConfig, tolerance: float) -> int:
        """Return M for cells like this one.

        Args:
            cell: A cell on the split from which M is chosen. Its own M is the largest that can be
                chosen.
            spec: The settings of the dataset.
            tolerance: The most that a larger M may gain, in nats per row.

        Raises:
            UserError: The likelihood is not Gaussian.
        """
        source = source_of(cell, tolerance)
        recorded_M = recorded_inducing_count(self.root, cell.dataset, source)
        if recorded_M is not None:
            return recorded_M
        for choice in self.new_choices:
            if choice.source == source:
                return choice.M
        if not process.is_extra():
            print(f"{cell.dataset}: choosing M with n = {cell.n} (M=auto) ...", flush=True)
        rows = prepare(self.data, spec, cell.seed, cell.n)
        X = torch.from_numpy(rows.X_train)
        y = torch.from_numpy(rows.y_train)
        auto = AutoM(tolerance=tolerance, most=cell.M)
        M = chosen_inducing_count(programs.model(cell), X, y, auto, cell.seed)
        self.new_choices.append(ChosenInducingCount(cell.dataset, source, M))
        return M
