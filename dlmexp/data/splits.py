"""Training, validation and test rows, and their normalisation: pure functions of (rows, kind of
split, seed, n). The rows are permuted once per seed and cut into test, validation and training
pool; a training set of n rows is the first n of the pool. So a smaller set is nested in a larger
one, and test and validation rows depend on the seed alone."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest

SPLIT_VERSION = 1
"""Part of every cell's key. Increase it with every change that moves a row to another part or changes a value."""

MINIMUM_ROWS = 20
VALIDATION = {
    "regression": Fraction(8),
    "counts": Fraction(10),
    "airline": Fraction(0),
}  # per cent, by kind of split
MAX_TEST_ROWS = {"counts": 1000, "airline": 100_000}  # by kind of split
SIZE = re.compile(r"\d{1,15}|\d{1,3}(\.\d{1,15})?%", re.ASCII)


@dataclass(frozen=True)
class Arrangement:
    """`by`: a time, or the number of a group, for every row. The last `test` rows are the user's
    own test rows."""

    kind: Literal["random", "time", "group"] = "random"
    by: Float[np.ndarray, " N"] | None = None
    column: str = ""  # the name of `by`, for messages
    test: int = 0

    @property
    def label(self) -> str:
        """What a cell's key says of it, besides the data."""
        return ("" if self.kind == "random" else f"-{self.kind}") + (
            f"-test{self.test}" if self.test else ""
        )

    def parts(
        self, order: Int[np.ndarray, " R"], pool: int, validation: int
    ) -> tuple[np.ndarray, ...]:
        """Training pool, validation and the remaining rows, out of rows in a random `order`. time:
        the earliest rows are the pool, the latest come last. group: no group is in two parts, and
        rows of a group that would be are not used."""
        by = self.by
        assert by is not None
        if self.kind == "time":
            rows, ranks = np.argsort(by[: len(order)], kind="stable"), np.arange(len(order))
        else:
            _, first_seen, code = np.unique(by[order], return_index=True, return_inverse=True)
            ranks = np.argsort(np.argsort(first_seen))[
                code
            ]  # groups in the order of their first row: a random one
            rows, ranks = order[np.argsort(ranks, kind="stable")], np.sort(ranks)
        start = _next_group(ranks, pool)
        end = start + validation
        kept = rows[:pool], rows[start:end], rows[_next_group(ranks, end) :]
        if len(kept[0]) < pool or len(kept[1]) < validation or (not self.test and not len(kept[2])):
            few = f"its {len(np.unique(by))} groups are too few or too large for validation and test rows in others"
            raise UserError(
                f"csv.by={self.column}: {few}: use csv.split=random without csv.by, or a finer column"
            )
        return kept


def _next_group(ranks: np.ndarray, cut: int) -> int:
    """The first row at or after `cut` that begins a group."""
    return (
        int(np.searchsorted(ranks, ranks[cut - 1], side="right")) if 0 < cut < len(ranks) else cut
    )


RANDOM = Arrangement()


class Split(NamedTuple):
    """Row numbers into the dataset; the three parts are disjoint."""

    train: Int[np.ndarray, " P"]  # the pool: a training set of n rows is its first n
    validation: Int[np.ndarray, " V"]
    test: Int[np.ndarray, " T"]


class SplitSizes(NamedTuple):
    """Numbers of rows in the three parts of a split."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Normalisation:
    """`normalised = (raw - mean) / std`; a constant column has std 1 and is set to 0 everywhere, as
    is a missing value (NaN): the mean of the training rows that have one."""

    mean: Float[np.ndarray, " D"]
    std: Float[np.ndarray, " D"]
    constant: np.ndarray

    def apply(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """Normalises `X` in place and returns it."""
        X -= self.mean
        X /= self.std
        X[:, self.constant] = 0.0
        X[np.isnan(X)] = 0.0
        return X


@dataclass(frozen=True)
class Prepared:
    """Normalised data to train and evaluate a cell; `y * y_std + y_mean` are the targets before
    normalisation, and `features` is what was done to the inputs."""

    X_train: Float[np.ndarray, "n D"]
    y_train: Float[np.ndarray, " n"]
    X_val: Float[np.ndarray, "V D"]
    y_val: Float[np.ndarray, " V"]
    X_test: Float[np.ndarray, "T D"]
    y_test: Float[np.ndarray, " T"]
    y_mean: float
    y_std: float
    features: Normalisation


def permutation(n_rows: int, seed: int) -> Int[np.ndarray, " N"]:
    """The order that sorts `n_rows` raw 64-bit integers of PCG64(seed), a stream that numpy
    guarantees never to change, unlike `Generator.permutation`."""
    integers = np.random.PCG64(seed).random_raw(n_rows)
    return np.argsort(integers, kind="stable").astype(np.int64, copy=False)


def split(
    n_rows: int,
    kind: str,
    seed: int,
    test_cap: int | None = None,
    arrangement: Arrangement = RANDOM,
) -> Split:
    """Divides a permutation of the rows into test, validation and training pool (docs/SPEC.md,
    section 5).

    regression: 67 / 8 / 25 % pool / validation / test. counts (and binary): 10 % validation, 1000
    test rows. airline: 100 000 test rows, no validation. `test_cap` limits the test rows (song: 10
    000). Counts and airline use at most half of the rows that are not for validation as test rows,
    so that small data can be used too. An `arrangement` keeps these shares, of all rows or of those
    that are not the user's own test rows."""
    rows = n_rows - arrangement.test
    sizes = split_sizes(n_rows, kind, user_test_rows=arrangement.test)
    order = permutation(rows, seed)
    if arrangement.by is None:
        held_out = rows - sizes.train
        test, validation, pool = np.split(order, [held_out - sizes.validation, held_out])
    else:
        pool, validation, test = arrangement.parts(order, sizes.train, sizes.validation)
        pool = pool[permutation(sizes.train, seed)]  # so that training sets are random rows of it
    test = np.arange(rows, n_rows) if arrangement.test else test
    return Split(pool, validation, test[:test_cap])


def split_sizes(
    n_rows: int, kind: str, test_cap: int | None = None, user_test_rows: int = 0
) -> SplitSizes:
    """Return how many of `n_rows` rows are for training, validation and test.

    Args:
        n_rows: Rows of the dataset, a user's own test rows included.
        kind: Kind of the split: regression, counts or airline.
        test_cap: At most so many test rows; the rows beyond it are in no part.
        user_test_rows: Number of the user's own test rows (`Arrangement.test`).

    Under `csv.split=group` the test rows are fewer where groups are kept together.

    Raises:
        UserError: There is no such kind of split, or there are too few rows.
    """
    if kind not in VALIDATION:
        raise UserError(f"unknown split '{kind}': {nearest(kind, list(VALIDATION))}")
    rows = n_rows - user_test_rows
    if rows < MINIMUM_ROWS:
        raise UserError(f"{rows} rows are too few to split: at least {MINIMUM_ROWS} are needed")
    validation = _percent(rows, VALIDATION[kind])
    if user_test_rows:
        if kind == "regression":
            validation = _percent(rows, Fraction(800, 75))  # 8 of 8 + 67
        train = rows - validation
        test = user_test_rows
    elif kind == "regression":
        train = _percent(rows, Fraction(67))
        test = rows - validation - train
    else:
        test = min(MAX_TEST_ROWS[kind], (rows - validation) // 2)
        train = rows - validation - test
    if test_cap is not None:
        test = min(test, test_cap)
    return SplitSizes(train, validation, test)


def resolve_size(size: int | str, pool: int) -> int:
    """The number of training rows for a size in the config: a number, at most that of the pool, or
    a percentage of the pool such as '2.5%'. Half a row rounds up: 5 % and 80 % of cadata's pool of
    13829 are the paper's 691 and 11063."""
    text = str(size).strip()
    if not SIZE.fullmatch(text):
        raise UserError(
            f"size '{text[:40]}' is neither a number of rows nor a percentage such as '5%'"
        )
    rows = _percent(pool, Fraction(text[:-1])) if text.endswith("%") else min(int(text), pool)
    if not 1 <= rows <= pool:
        raise UserError(
            f"size '{size}' is {counted(rows, 'row')}, the training pool has {pool}: choose 1 to {pool}"
        )
    return rows


def normalisation(X: Float[np.ndarray, "n D"]) -> Normalisation:
    """Mean and standard deviation (divided by n, not n - 1) of the training rows; missing values do
    not count."""
    if np.isnan(X).any():
        known = [column[~np.isnan(column)] for column in X.T]
        each = [
            normalisation(column[:, None] if len(column) else np.zeros((1, 1))) for column in known
        ]
        return Normalisation(
            *map(np.concatenate, zip(*((c.mean, c.std, c.constant) for c in each), strict=True))
        )
    mean = X.mean(axis=0)
    centred = X - mean
    std = np.sqrt(np.einsum("nd,nd->d", centred, centred) / len(X))
    # max == min catches constants such as 0.1, whose mean has a rounding error; std == 0 catches
    # underflow.
    constant = (X.max(axis=0) == X.min(axis=0)) | (std == 0.0)
    return Normalisation(mean, np.where(constant, 1.0, std), constant)


def prepare(dataset: Any, spec: Any, seed: int, n: int | str) -> Prepared:
    """Training, validation and test rows of one repetition; with `validation=train` those for
    validation are trained on too. `dataset` is a `Dataset` or has its arrays; `spec` needs `split`,
    `test_cap` and `validation`."""
    parts = split(len(dataset.y), spec.split, seed, spec.test_cap, dataset.arrangement)
    rows, validation = parts.train[: resolve_size(n, len(parts.train))], parts.validation
    if spec.validation == "train":
        rows = np.concatenate([rows, validation])
    elif spec.validation == "tenth":
        validation = validation[: max(1, len(rows) // 10)]
    return normalised(dataset.X, dataset.y, dataset.task, Split(rows, validation, parts.test))


def normalised(
    X: Float[np.ndarray, "N D"], y: Float[np.ndarray, " N"], task: str, rows: Split
) -> Prepared:
    """All rows of the split. Features, and y in regression, are normalised by the training rows
    alone."""
    features, mean, std = normalisation(X[rows.train]), 0.0, 1.0
    if task == "regression":
        target = normalisation(y[rows.train][:, None])
        mean, std, y = (
            float(target.mean[0]),
            float(target.std[0]),
            target.apply(y[:, None].copy())[:, 0],
        )
    X_train, X_val, X_test = (features.apply(X[part]) for part in rows)
    return Prepared(
        X_train, y[rows.train], X_val, y[rows.validation], X_test, y[rows.test], mean, std, features
    )


def inducing_points(n_rows: int) -> int:
    """Number of inducing points for `M: null`: rows / 100, as in most of the paper's table, but 20
    to 200."""
    return min(max(n_rows // 100, 20), 200)


def _percent(rows: int, percent: Fraction) -> int:
    """`percent` of `rows` in exact arithmetic; half a row rounds up."""
    return int(rows * percent / 100 + Fraction(1, 2))
