"""Rows of regression data: as many training rows as asked for, and others to test on."""

from dlmexp.common.paths import data_root
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import Prepared, Split, normalise_split, permutation


def drawn_rows(name: str, n: int, seed: int, most_tests: int | None = None) -> Prepared:
    """Return n training rows of a dataset, drawn by a seed, and test rows from the others.

    Features and targets are normalised by the training rows.

    Args:
        name: Of a dataset for regression in `conf/dataset`.
        n: The number of training rows.
        seed: Orders all rows.
        most_tests: The number of test rows at most; None: all others.
    """
    data = load(read_spec(name), data_root())
    order = permutation(len(data.y), seed)
    train = order[:n]
    test = order[n:][:most_tests]
    return normalise_split(data.X, data.y, "regression", Split(train, order[:0], test))
