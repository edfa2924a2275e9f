"""Training, validation and test rows, and their normalisation.

For each seed, the rows are permuted and cut into test rows, validation rows and a training pool. A
training set of n rows is the first n rows of the pool. So smaller training sets are parts of larger
ones, and test and validation rows do not depend on n.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest
from dlmexp.core.folds import OWN_ROWS, folds_of, row_order

SPLIT_VERSION = 1
"""Part of the key of every cell. Increase it if a change moves a row to another part of a split, or
changes a value."""
MINIMUM_ROWS = 20
VALIDATION_PERCENT = {
    "regression": Fraction(8),
    "counts": Fraction(10),
    "airline": Fraction(0),
    "tenth": Fraction(10),
    "published": Fraction(10),
}
"""Validation rows in per cent, by kind of split: of all rows, or of all rows but test rows for the
kinds in `TENTH_KINDS`."""
POOL_PERCENT = Fraction(67)
"""Training pool of a regression split, in per cent of all rows."""
MAX_TEST_ROWS = {"counts": 1000, "airline": 100_000}
"""The largest number of test rows, by kind of split."""
TENTH_KINDS = ("tenth", "published")
"""Kinds of split with 10 % test rows, and 10 % of the other rows for validation."""
TENTH_PERCENT = Fraction(10)
SIZE = re.compile(r"\d{1,15}|\d{1,3}(\.\d{1,15})?%", re.ASCII)
MIN_INDUCING = 20
MAX_INDUCING = 200
ROWS_OF_MAX_INDUCING = 2000
"""Training rows of a user's own data from which on it has `MAX_INDUCING` inducing inputs."""


@dataclass(frozen=True)
class Arrangement:
    """How a user wants the rows divided.

    Attributes:
        kind: random; time (the pool has the earliest rows, the test rows are the latest ones);
            group (no group is in two parts); or published.
        by: The time of every row, or the number of its group.
        column: The name of the column `by`, for messages.
        test: The number of the user's own test rows, which are the last rows of the dataset.
        published: The test rows of every published split. Repetition k uses split k.
        tag: Selects the random stream that orders the rows; None: the stream of the seed alone.
        test_share: The share of the rows that are test rows; None: the kind of split decides.
        validation_share: The share of the rows that are for validation; None: the kind of split
            decides.
    """

    kind: Literal["random", "time", "group", "published"] = "random"
    by: Float[np.ndarray, " N"] | None = None
    column: str = ""
    test: int = 0
    published: Bool[np.ndarray, "K N"] | None = None
    tag: int | None = None
    test_share: float | None = None
    validation_share: float | None = None

    @property
    def label(self) -> str:
        """The part of a cell's key that depends on the arrangement."""
        # The key has the kind of split already, and "published" is one.
        kind = "" if self.kind in ("random", "published") else f"-{self.kind}"
        test = f"-test{self.test}" if self.test else ""
        return kind + test

    def sizes(self, n_rows: int, kind: str) -> "SplitSizes":
        """Return the numbers of rows in the three parts of a split that is not published.

        Raises:
            UserError: too few rows would be left for training.
        """
        sizes_of_kind = split_sizes(n_rows, kind, user_test_rows=self.test)
        if self.test_share is None and self.validation_share is None:
            return sizes_of_kind
        rows = n_rows - self.test
        test = sizes_of_kind.test
        validation = sizes_of_kind.validation
        if self.test_share is not None:
            test = max(1, round(self.test_share * rows))
        if self.validation_share is not None:
            validation = max(1, round(self.validation_share * rows))
        train = rows - validation
        if not self.test:  # test rows are among these rows
            train -= test
        if train < MINIMUM_ROWS:
            remaining = counted(max(train, 0), "row")
            raise UserError(
                f"csv.test_size and csv.validation_size leave {remaining} for training: "
                f"at least {MINIMUM_ROWS} are needed"
            )
        return SplitSizes(train=train, validation=validation, test=test)

    def parts(self, order: Int[np.ndarray, " R"], pool: int, validation: int) -> "Split":
        """Return a split in which no group is in two parts.

        The rows, sorted by group, are cut into pool, validation rows and test rows. If a cut goes
        through a group, the rows after the cut are in no part.

        Args:
            order: The rows that are not the user's own test rows, in a random order.
            pool: The number of rows in the pool.
            validation: The number of rows for validation.

        Raises:
            UserError: there are too few groups, or too large ones, for these sizes.
        """
        rows, groups = self._sorted_groups(order)
        validation_start = _next_group(groups, pool)
        validation_end = validation_start + validation
        test_start = _next_group(groups, validation_end)
        parts = Split(
            train=rows[:pool],
            validation=rows[validation_start:validation_end],
            test=rows[test_start:],
        )
        lacks_rows = len(parts.train) < pool or len(parts.validation) < validation
        lacks_test_rows = len(parts.test) == 0 and self.test == 0
        if lacks_rows or lacks_test_rows:
            n_groups = len(np.unique(self._by))
            raise UserError(
                f"csv.by={self.column}: its {n_groups} groups are too few or too large to keep "
                "validation and test rows in groups of their own: use csv.split=random without "
                "csv.by, or a finer column"
            )
        return parts

    @property
    def _by(self) -> Float[np.ndarray, " N"]:
        """The column `by`, which a division by time or group always has."""
        assert self.by is not None
        return self.by

    def _sorted_groups(
        self, order: Int[np.ndarray, " R"]
    ) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
        """Return the rows sorted by time or group, and the number of each row's group, ascending.

        In a division by time, every row is a group of its own.
        """
        if self.kind == "time":
            times = self._by[: len(order)]
            return np.argsort(times, kind="stable"), np.arange(len(order))
        # A group comes as early as its first row in the random order: so their order is random.
        _, first_rows, codes = np.unique(self._by[order], return_index=True, return_inverse=True)
        rank_of_group = np.argsort(np.argsort(first_rows))
        groups = rank_of_group[codes]
        by_group = np.argsort(groups, kind="stable")
        return order[by_group], groups[by_group]


def _next_group(groups: Int[np.ndarray, " R"], cut: int) -> int:
    """Return the first position at or after `cut` where a group begins."""
    if not 0 < cut < len(groups):
        return cut
    return int(np.searchsorted(groups, groups[cut - 1], side="right"))


RANDOM = Arrangement()


class Split(NamedTuple):
    """The rows of the three parts of a dataset, as numbers of rows; no row is in two parts."""

    train: Int[np.ndarray, " P"]  # the pool; a training set of n rows is its first n rows
    validation: Int[np.ndarray, " V"]
    test: Int[np.ndarray, " T"]


class SplitSizes(NamedTuple):
    """Numbers of rows in the three parts of a split."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Normalisation:
    """The linear map of every column: `normalised = (raw - mean) / std`.

    A constant column has std 1 and becomes 0 everywhere. A missing value (NaN) also becomes 0,
    which is the mean of the training rows in which it is known.
    """

    mean: Float[np.ndarray, " D"]
    std: Float[np.ndarray, " D"]
    constant: Bool[np.ndarray, " D"]

    def apply(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """Normalise `X` in place and return it."""
        X -= self.mean
        X /= self.std
        X[:, self.constant] = 0.0
        X[np.isnan(X)] = 0.0
        return X


@dataclass(frozen=True)
class Prepared:
    """Normalised data to train and evaluate a cell.

    Targets in their original units are `y * y_std + y_mean`. `features` is the normalisation of the
    inputs, also for further rows.
    """

    X_train: Float[np.ndarray, "n D"]
    y_train: Float[np.ndarray, " n"]
    X_val: Float[np.ndarray, "V D"]
    y_val: Float[np.ndarray, " V"]
    X_test: Float[np.ndarray, "T D"]
    y_test: Float[np.ndarray, " T"]
    y_mean: float
    y_std: float
    features: Normalisation


def permutation(n_rows: int, seed: int, tag: int | None = None) -> Int[np.ndarray, " N"]:
    """Return a permutation of the rows: the order that sorts 64-bit random integers.

    The integers are the raw output of PCG64(seed), or of the stream that `tag` selects.
    """
    return row_order(n_rows, seed, tag)


def split(
    n_rows: int,
    kind: str,
    seed: int,
    test_cap: int | None = None,
    arrangement: Arrangement = RANDOM,
) -> Split:
    """Divide the rows of a dataset (docs/SPEC.md, section 5).

    Args:
        n_rows: The number of rows.
        kind: The kind of split, which decides the sizes of the parts (`split_sizes`).
        seed: The seed of the permutation of the rows.
        test_cap: The largest number of test rows; further ones are in no part.
        arrangement: How a user wants the rows divided. A division by group may have fewer test
            rows. If the user has separate test rows, all other rows are for pool and validation.
    """
    if arrangement.published is not None:
        return published_split(
            arrangement.published,
            seed,
            test_cap=test_cap,
            groups=arrangement.by,
            tag=arrangement.tag,
        )
    if kind == "published":
        raise UserError("split=published: this dataset has no published splits; use split=tenth")
    rows = n_rows - arrangement.test
    sizes = arrangement.sizes(n_rows, kind)
    order = permutation(rows, seed, arrangement.tag)
    if arrangement.by is None:
        pool_start = rows - sizes.train
        validation_start = pool_start - sizes.validation
        test, validation, pool = np.split(order, [validation_start, pool_start])
    else:
        pool, validation, test = arrangement.parts(order, sizes.train, sizes.validation)
        # The first n rows of the pool are a training set, which has to be a random part of it.
        pool = pool[permutation(sizes.train, seed, arrangement.tag)]
    if arrangement.test:
        test = np.arange(rows, n_rows)
    return Split(train=pool, validation=validation, test=test[:test_cap])


def published_split(
    is_test: Bool[np.ndarray, "K N"],
    seed: int,
    test_cap: int | None = None,
    groups: Float[np.ndarray, " N"] | None = None,
    tag: int | None = None,
) -> Split:
    """Return published split number `seed`, its training rows divided into validation and pool.

    Test rows are in the order of the file. Training rows are permuted by the seed: the first tenth
    is for validation, the others are the pool. The sizes of published splits often differ by a
    single row. So that repetitions can be compared, all use as many training rows as the split with
    the fewest.

    Args:
        is_test: The test rows of every split.
        seed: The number of the split.
        test_cap: The largest number of test rows; further ones are in no part.
        groups: The number of every row's group, if no group may be in two parts; else None.
        tag: Selects the random stream that orders the training rows (`Arrangement`).

    Raises:
        UserError: there is no such split, or it has too few rows.
    """
    if seed >= len(is_test):
        count = counted(len(is_test), "published split")
        raise UserError(f"seed {seed}: there are {count}; give seeds={len(is_test)} or fewer")
    n_train = int((~is_test).sum(axis=1).min())
    if n_train < MINIMUM_ROWS:
        raise UserError(
            f"a published split has {counted(n_train, 'training row')}: "
            f"at least {MINIMUM_ROWS} are needed"
        )
    train = np.flatnonzero(~is_test[seed])
    order = train[permutation(len(train), seed, tag)][:n_train]
    n_validation = _percent(n_train, VALIDATION_PERCENT["published"])
    if groups is None:
        validation, pool = np.split(order, [n_validation])
    else:
        validation, pool = _grouped_parts(groups, order, n_validation, tag)
    test = np.flatnonzero(is_test[seed])
    return Split(train=pool, validation=validation, test=test[:test_cap])


def _grouped_parts(
    groups: Float[np.ndarray, " N"],
    order: Int[np.ndarray, " n"],
    n_validation: int,
    tag: int | None,
) -> tuple[Int[np.ndarray, " V"], Int[np.ndarray, " P"]]:
    """Return rows for validation and the pool, which have no group in common.

    Rows are sorted by group. Between validation rows and pool, as many rows as the largest group
    has are left out. So no group is in both parts, and the sizes are the same in all repetitions.
    """
    _, sizes = np.unique(groups, return_counts=True)
    largest_size = int(sizes.max())
    _, first_rows, codes = np.unique(groups[order], return_index=True, return_inverse=True)
    # A group comes as early as its first row in the random order: so their order is random.
    by_group = order[np.argsort(first_rows[codes], kind="stable")]
    validation = by_group[:n_validation]
    pool = by_group[n_validation + largest_size :]
    if len(pool) < MINIMUM_ROWS:
        raise UserError(
            f"the groups are too large: {counted(len(pool), 'row')} would be left for training"
        )
    return validation, pool[permutation(len(pool), 0, tag)]


def folds_of_groups(groups: Int[np.ndarray, " N"], folds: int) -> Int[np.ndarray, " N"]:
    """Return the fold of every row; all rows of a group are in the same fold.

    Groups are added to folds one after the other, large groups first, groups of the same size in a
    random order. Each is added to the fold that has the fewest rows so far.
    """
    sizes = np.bincount(groups)
    shuffled = permutation(len(sizes), 0, OWN_ROWS)
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    fold_of_group = np.zeros(len(sizes), dtype=np.int64)
    fold_sizes = np.zeros(folds, dtype=np.int64)
    for group in order:
        smallest = int(fold_sizes.argmin())
        fold_of_group[group] = smallest
        fold_sizes[smallest] += sizes[group]
    return fold_of_group[groups]


def split_sizes(
    n_rows: int, kind: str, test_cap: int | None = None, user_test_rows: int = 0
) -> SplitSizes:
    """Return how many of `n_rows` rows are for training, validation and test.

    - regression: 67 % pool, 8 % validation, 25 % test rows.
    - counts (also for binary data): 10 % validation, 1000 test rows.
    - airline: 100 000 test rows, no validation rows.
    - tenth: 10 % test rows, and 10 % of the other rows for validation.
    - published: the sizes of tenth, which published splits usually have.

    If a dataset is small, counts and airline have as many test rows as pool rows. A division by
    group may have fewer test rows.

    Args:
        n_rows: The number of rows of the dataset, a user's own test rows included.
        kind: The kind of split: regression, counts, airline, tenth or published.
        test_cap: The largest number of test rows (song: 10 000); further ones are in no part.
        user_test_rows: The number of the user's own test rows (`Arrangement.test`).

    Raises:
        UserError: there is no such kind of split, or there are too few rows.
    """
    if kind not in VALIDATION_PERCENT:
        raise UserError(f"unknown split '{kind}': {nearest(kind, list(VALIDATION_PERCENT))}")
    rows = n_rows - user_test_rows
    if rows < MINIMUM_ROWS:
        raise UserError(f"{rows} rows are too few to split: at least {MINIMUM_ROWS} are needed")
    if user_test_rows:
        sizes = _sizes_with_user_test_rows(rows, kind, user_test_rows)
    else:
        sizes = _sizes_of_kind(rows, kind)
    if test_cap is None:
        return sizes
    return sizes._replace(test=min(sizes.test, test_cap))


def _sizes_of_kind(rows: int, kind: str) -> SplitSizes:
    """Return how many rows the parts of a kind of split have."""
    validation = _percent(rows, VALIDATION_PERCENT[kind])
    if kind == "regression":
        train = _percent(rows, POOL_PERCENT)
        return SplitSizes(train=train, validation=validation, test=rows - validation - train)
    if kind in TENTH_KINDS:
        test = _percent(rows, TENTH_PERCENT)
        validation = _percent(rows - test, VALIDATION_PERCENT[kind])
    else:
        test = min(MAX_TEST_ROWS[kind], (rows - validation) // 2)
    return SplitSizes(train=rows - validation - test, validation=validation, test=test)


def _sizes_with_user_test_rows(rows: int, kind: str, user_test_rows: int) -> SplitSizes:
    """Return how many rows the parts have if the user has test rows besides these `rows`."""
    percent = VALIDATION_PERCENT[kind]
    if kind == "regression":
        # Validation rows and pool have the usual ratio, 8 to 67.
        percent = 100 * percent / (percent + POOL_PERCENT)
    validation = _percent(rows, percent)
    return SplitSizes(train=rows - validation, validation=validation, test=user_test_rows)


def resolve_size(size: int | str, pool: int) -> int:
    """Return the number of training rows for a size in the config.

    Half a row rounds up: 5 % and 80 % of cadata's pool of 13829 are the paper's 691 and 11063.

    Args:
        size: A number of rows, or a percentage of the pool such as '2.5%'. A number larger than
            the pool stands for the whole pool.
        pool: The number of rows in the training pool.

    Raises:
        UserError: the size is not written in one of these ways, is 0 rows or is more than 100 %.
    """
    text = str(size).strip()
    if not SIZE.fullmatch(text):
        raise UserError(
            f"size '{text[:40]}' is neither a number of rows nor a percentage such as '5%'"
        )
    if text.endswith("%"):
        rows = _percent(pool, Fraction(text.removesuffix("%")))
    else:
        rows = min(int(text), pool)
    if not 1 <= rows <= pool:
        count = f"size '{size}' is {counted(rows, 'row')}"
        raise UserError(f"{count}, the training pool has {pool}: choose 1 to {pool}")
    return rows


def normalisation(X: Float[np.ndarray, "n D"]) -> Normalisation:
    """Return the normalisation by mean and standard deviation of the training rows.

    The variance is the mean square, without Bessel's correction. Missing values are left out.
    """
    if np.isnan(X).any():
        return _normalisation_by_column(X)
    mean = X.mean(axis=0)
    centred = X - mean
    std = np.sqrt(np.einsum("nd,nd->d", centred, centred) / len(X))
    # A constant column may have a std above 0, because its mean has a rounding error (as with 0.1).
    # And a column of tiny values may have a std of 0, by underflow.
    constant = (X.max(axis=0) == X.min(axis=0)) | (std == 0.0)
    return Normalisation(mean, np.where(constant, 1.0, std), constant)


def _normalisation_by_column(X: Float[np.ndarray, "n D"]) -> Normalisation:
    """Return the normalisation of columns with missing values; an empty column is constant."""
    columns = []
    for column in X.T:
        present = column[~np.isnan(column)]
        if not len(present):
            present = np.zeros(1)
        columns.append(normalisation(present[:, None]))
    return Normalisation(
        np.concatenate([column.mean for column in columns]),
        np.concatenate([column.std for column in columns]),
        np.concatenate([column.constant for column in columns]),
    )


def _without_indicators(features: Normalisation, indicators: int) -> Normalisation:
    """Return a normalisation that leaves the last features as they are."""
    mean = features.mean.copy()
    std = features.std.copy()
    constant = features.constant.copy()
    mean[-indicators:] = 0.0
    std[-indicators:] = 1.0
    constant[-indicators:] = False
    return Normalisation(mean, std, constant)


class Fold(NamedTuple):
    """A fold of the training rows: its number, from 0, and the setting `cv` that defines folds."""

    number: int
    cv: str


def prepare(dataset: Any, spec: Any, seed: int, n: int | str, fold: Fold | None = None) -> Prepared:
    """Return training, validation and test rows of one repetition, normalised.

    Args:
        dataset: A `Dataset`, or another object with `X`, `y`, `task` and `arrangement`.
        spec: A `DatasetConfig`, or another object with `split`, `test_cap` and `validation`, which
            says what the validation rows are for. train: they are training rows, too; tenth: only
            the first n / 10 of them are used; pool: they are the last rows of the pool.
        seed: The seed of the repetition.
        n: The size of the training set (`resolve_size`).
        fold: The part of the training set to hold out, for cross-validation. It becomes the
            validation rows, and there are no test rows.
    """
    parts = split(len(dataset.y), spec.split, seed, spec.test_cap, dataset.arrangement)
    if spec.validation == "pool":
        parts = with_validation_in_pool(parts)
    size = resolve_size(n, len(parts.train))
    train = parts.train[:size]
    validation = parts.validation
    if spec.validation == "train":
        train = np.concatenate([train, validation])
    elif spec.validation == "tenth":
        tenth = max(1, len(train) // 10)
        validation = validation[:tenth]
    rows = Split(train=train, validation=validation, test=parts.test)
    if fold is not None:
        folds = folds_of(size, fold.cv)
        rows = Split(
            train=train[folds.train[fold.number]],
            validation=train[folds.held_out[fold.number]],
            test=parts.test[:0],
        )
    indicators = getattr(dataset, "indicators", 0)
    return normalise_split(dataset.X, dataset.y, dataset.task, rows, indicators)


def with_validation_in_pool(parts: Split) -> Split:
    """Return the split with its validation rows moved to the end of the pool."""
    train = np.concatenate([parts.train, parts.validation])
    no_rows = parts.validation[:0]
    return Split(train=train, validation=no_rows, test=parts.test)


def normalise_split(
    X: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, " N"],
    task: str,
    rows: Split,
    indicators: int = 0,
) -> Prepared:
    """Return the rows of a split, normalised by mean and deviation of the training rows.

    Features are normalised, and for regression also targets. The last `indicators` features, which
    belong to categories, stay 0 and 1: scaled to variance 1, the indicator of a rare level would be
    large, and the level far away from all others.
    """
    features = normalisation(X[rows.train])
    if indicators:
        features = _without_indicators(features, indicators)
    y_mean = 0.0
    y_std = 1.0
    if task == "regression":
        target = normalisation(y[rows.train][:, None])
        y_mean = float(target.mean[0])
        y_std = float(target.std[0])
        y = target.apply(y[:, None].copy())[:, 0]
    return Prepared(
        X_train=features.apply(X[rows.train]),
        y_train=y[rows.train],
        X_val=features.apply(X[rows.validation]),
        y_val=y[rows.validation],
        X_test=features.apply(X[rows.test]),
        y_test=y[rows.test],
        y_mean=y_mean,
        y_std=y_std,
        features=features,
    )


def default_inducing_count(n_rows: int) -> int:
    """Return the number of inducing inputs for `M: null`.

    It is a hundredth of the rows, as for most datasets of the paper, but at least 20 and at most
    200.
    """
    return min(max(n_rows // 100, MIN_INDUCING), MAX_INDUCING)


def inducing_count_of_user_table(n: int) -> int:
    """Return the default number of inducing inputs for n training rows of a user's own data.

    It is 200, or n if that is less. From 400 to 2000 rows it is larger: as large as takes the time
    of 200 for 2000 rows in a step of ELBO, n M^2, but at most n / 2.
    """
    affordable = math.isqrt(ROWS_OF_MAX_INDUCING * MAX_INDUCING**2 // n)
    return min(max(min(affordable, n // 2), MAX_INDUCING), n)


def _percent(rows: int, percent: Fraction) -> int:
    """Return `percent` of `rows` in exact arithmetic; half a row rounds up."""
    return int(rows * percent / 100 + Fraction(1, 2))
