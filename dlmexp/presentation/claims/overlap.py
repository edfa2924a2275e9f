"""Compute sizes of splits: the share of test rows, and the number of rows for validation."""

from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import dataset_names, read_spec
from dlmexp.data.splits import split_sizes

# A split by percentages has the same shares for any number of rows, so 100 rows represent all.
ROWS_OF_PERCENTAGES = 100


def split_overlap(dataset: str, task: str, largest: int) -> float:
    """Return the number of test rows of a repetition, divided by that of all its other rows.

    Repetitions share rows of the data, and this ratio corrects variances for it (Nadeau and Bengio
    2003). The sizes are those of the dataset's split. If the number of rows is not known, it is
    estimated from the largest training set.

    Args:
        dataset: The dataset.
        task: Its task, for a dataset that is not in the catalogue.
        largest: The number of rows of the largest training set that was run.
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
    """Return the settings of a dataset; outside of the catalogue, the usual ones of its task."""
    if dataset in dataset_names():
        return read_spec(dataset)
    kind = "regression" if task == "regression" else "counts"
    return DatasetConfig(name=dataset, task=task, split=kind)


def _row_count(spec: DatasetConfig, largest: int) -> int:
    """Return the number of rows of a dataset, estimated from the largest training set if unknown.

    Where the split has the same shares for any number of rows, return a number that has them.
    """
    if spec.split == "regression" and spec.test_cap is None:
        return ROWS_OF_PERCENTAGES
    if spec.rows is not None:
        return spec.rows
    if spec.split == "airline":
        # All rows but the test rows are trained on. Half of all rows are test rows, but at most
        # 100 000. Twice the training rows have as many test rows as the data.
        return largest + split_sizes(2 * largest, "airline").test
    # Of small data, nearly half of the rows are trained on (`split_sizes`).
    return 2 * largest
