"""The data of a batch of cells: the rows of its splits, and the minibatch of each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass
class BatchData:
    """Training, validation and test rows of S splits, and the split that each cell belongs to.

    Attributes:
        X: Training inputs.
        y: Training targets.
        parts: Inputs and targets of "validation" and "test", where there are such rows.
        row_counts: By part, the number of rows of each split. It has only parts whose splits differ
            in their number of rows. The tensors of these parts are padded to the largest number;
            `keep` cuts off padding that no split needs any more.
        is_fold: Whether the validation rows are a fold of cross-validation. The result of their
            cell then has their profile, which is their NLL at each candidate of the recalibration
            factor (`recalibration.loss_profile`). The sum of the profiles of all folds gives the
            factor for the fit to all rows.
        leave_one_out: Whether the validation rows are the training rows, each predicted from all
            others (`Objective.row_noise`).
        recalibration_factor: The factor that recalibrates each cell, where it is known before
            training; NaN for cells without such a factor. None: no cell has one.
        seed_of: The seed of each split, which fixes its minibatches and its random draws.
        split_of: The split of each cell.
        seeds: `seed_of` as a tensor on the device.
        split_index: `split_of` as a tensor on the device.
    """

    X: Float[Tensor, "S N D"]
    y: Float[Tensor, "S N"]
    parts: dict[str, tuple[Float[Tensor, "S T D"], Float[Tensor, "S T"]]]
    seed_of: list[int]
    split_of: list[int]
    row_counts: dict[str, list[int]] = field(default_factory=dict)
    is_fold: bool = False
    recalibration_factor: Float[Tensor, "B"] | None = None
    leave_one_out: bool = False
    seeds: Int[Tensor, "S"] = field(init=False)
    split_index: Int[Tensor, "B"] = field(init=False)

    def __post_init__(self) -> None:
        device = self.X.device
        self.seeds = torch.tensor(self.seed_of, dtype=torch.int64, device=device)
        self.split_index = torch.tensor(self.split_of, dtype=torch.int64, device=device)

    def inputs_by_cell(self) -> Float[Tensor, "B N D"]:
        """Return the training inputs of every cell.

        On a GPU they lie in memory feature by feature, the order in which kernels read them.
        """
        if not self.X.is_cuda:
            return self.X[self.split_index]
        return self.X.mT[self.split_index].contiguous().mT

    def splits_of(self, cells: Sequence[int]) -> list[int]:
        """Return the splits that these cells belong to, in order."""
        return sorted({self.split_of[cell] for cell in cells})

    def keep(self, cells: Sequence[int]) -> "BatchData":
        """Return the data of these cells, without splits that none of them belongs to."""
        splits = self.splits_of(cells)
        # The splits that are kept are numbered anew.
        split_of = [splits.index(self.split_of[cell]) for cell in cells]
        factor = self.recalibration_factor
        if factor is not None:
            factor = factor[list(cells)]
        if len(splits) == len(self.seed_of):
            return replace(self, split_of=split_of, recalibration_factor=factor)
        parts = {}
        row_counts = {}
        for name, (X, y) in self.parts.items():
            counts = [self.row_count(name, split) for split in splits]
            if len(set(counts)) > 1:
                row_counts[name] = counts
            # Rows beyond the largest count are padding of splits that are dropped.
            rows = slice(max(counts))
            parts[name] = (X[splits][:, rows], y[splits][:, rows])
        return BatchData(
            X=self.X[splits],
            y=self.y[splits],
            parts=parts,
            seed_of=[self.seed_of[split] for split in splits],
            split_of=split_of,
            row_counts=row_counts,
            is_fold=self.is_fold,
            recalibration_factor=factor,
            leave_one_out=self.leave_one_out,
        )

    def row_count(self, part: str, split: int) -> int:
        """Return the number of rows of a part in a split, without padding."""
        if part in self.row_counts:
            return self.row_counts[part][split]
        X, _ = self.parts[part]
        return X.shape[1]

    def cells_by_rows(self) -> list[list[int]]:
        """Return the cells in groups whose splits have the same numbers of rows in every part."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for cell, split in enumerate(self.split_of):
            # Parts that are not in `row_counts` have equally many rows in all splits.
            counts = [by_split[split] for by_split in self.row_counts.values()]
            groups.setdefault(tuple(counts), []).append(cell)
        return list(groups.values())


@dataclass(frozen=True)
class Minibatches:
    """How the training rows of a step are chosen.

    Attributes:
        size: The number of rows of a step.
        resample_each_step: Whether each step draws its rows from all rows, without replacement.
            Otherwise steps go through a permutation of the rows, a new one in every epoch.
    """

    size: int
    resample_each_step: bool = False


class RowSampler:
    """Chooses the minibatch of each step, from the seeds and the iteration alone.

    Attributes:
        data: The rows of the splits.
        minibatches: How rows are chosen.
        loaded: The numbers of the rows of the current step; None before the first `load`.
    """

    def __init__(self, data: BatchData, minibatches: Minibatches):
        self.data = data
        self.minibatches = minibatches
        self.loaded: Int[Tensor, "S b"] | None = None
        self._epoch = -1
        # The order of the rows in the current epoch [S, n]; empty before the first epoch.
        self._order = torch.empty(0, dtype=torch.int64)

    def row_numbers(self, iteration: int) -> Int[Tensor, "S b"]:
        """Return the numbers of the rows that a step sees, one line per split.

        Every epoch has its own order of the rows, and its steps take consecutive rows of it. The
        last n % size rows are not used. With `resample_each_step` every step is an epoch.
        """
        n = self.data.X.shape[1]
        size = self.minibatches.size
        if self.minibatches.resample_each_step:
            epoch = iteration
            step = 0
        else:
            epoch, step = divmod(iteration, n // size)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = shuffled_order(self.data.seed_of, epoch, n, self.data.X.device)
        return self._order[:, step * size : (step + 1) * size]

    def load(self, iteration: int) -> None:
        """Choose the rows of this iteration, which `rows` then returns."""
        numbers = self.row_numbers(iteration)
        if self.loaded is None:
            self.loaded = numbers.clone()
        else:  # in place: a captured graph reads this tensor
            self.loaded.copy_(numbers)

    def rows(self) -> tuple[Float[Tensor, "S b D"], Float[Tensor, "S b"]]:
        """Return inputs and targets of the iteration that was loaded, by split."""
        assert self.loaded is not None, "`load` must be called first"
        splits = torch.arange(len(self.loaded), device=self.loaded.device)[:, None]
        return self.data.X[splits, self.loaded], self.data.y[splits, self.loaded]


def shuffled_order(
    seeds: Sequence[int], epoch: int, n: int, device: torch.device | str = "cpu"
) -> Int[Tensor, "S n"]:
    """Return the order of n rows in an epoch, one line per seed.

    Each row gets a raw word of a bit generator, and the rows are sorted by their words: numpy
    promises never to change these words. They are sorted on the device, since sorting on a CPU took
    longer than the steps of a GPU.
    """
    words = []
    for seed in seeds:
        stream = np.random.SeedSequence([seed, epoch])
        words.append(np.random.PCG64(stream).random_raw(n))
    # torch can not sort unsigned words. If their first bit is flipped and they are read as signed
    # integers, their order is the same.
    signed = (np.stack(words) ^ np.uint64(1 << 63)).view(np.int64)
    return torch.from_numpy(signed).to(device).argsort(dim=-1, stable=True)
