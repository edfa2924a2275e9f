"""Rows of a split: how much of the data repetitions share, and how many rows are for validation."""

from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import dataset_names, read_spec
from dlmexp.data.splits import split_sizes

# A split in per cents of the rows has the same shares at any number of rows.
WHOLE_PER_CENTS = 100


def split_overlap(dataset: str, task: str, largest: int) -> float:
    """Return the number of test rows of a repetition over that of all other rows.

    The sizes are those of the dataset's own split. Where its number of rows is not known, it is
    estimated from the largest training set.

    Args:
        dataset: Name of the dataset.
        task: Its task, for a dataset that has no settings here.
        largest: Rows of the largest training set that was run.
    """
    spec = _spec(dataset, task)
    rows = _row_count(spec, largest)
    sizes = split_sizes(rows, spec.split, spec.test_cap)
    return sizes.test / (rows - sizes.test)


def validation_rows(dataset: str, task: str) -> int:
    """Return the number of rows for validation; 0 where the number of all rows is not known."""
    spec = _spec(dataset, task)
    if spec.rows is None:
        return 0
    return split_sizes(spec.rows, spec.split, spec.test_cap).validation


def _spec(dataset: str, task: str) -> DatasetConfig:
    if dataset in dataset_names():
        return read_spec(dataset)
    kind = "regression" if task == "regression" else "counts"
    return DatasetConfig(name=dataset, task=task, split=kind)


def _row_count(spec: DatasetConfig, largest: int) -> int:
    if spec.split == "regression" and spec.test_cap is None:
        return WHOLE_PER_CENTS
    if spec.rows is not None:
        return spec.rows
    if spec.split == "airline":
        # Everything but the test rows is trained on; the latter are at most half of all.
        return largest + split_sizes(2 * largest, "airline").test
    return 2 * largest
