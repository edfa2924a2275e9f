"""Training, validation and test rows, and their normalisation.

Pure functions of rows, kind of split, seed and n. The rows are permuted once per seed and cut into
test, validation and training pool; a training set of n rows is the first n of the pool. So a
smaller set is nested in a larger one, and test and validation rows depend on the seed alone.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest
from dlmexp.core.folds import folds_of

SPLIT_VERSION = 1
"""Part of every cell's key.

Increase it with every change that moves a row to another part or changes a value."""
MINIMUM_ROWS = 20
VALIDATION = {
    "regression": Fraction(8),
    "counts": Fraction(10),
    "airline": Fraction(0),
    "tenth": Fraction(10),
    "published": Fraction(10),
}
"""Validation rows in per cent, by kind of split: of all rows, or (`TENTH`) of all but test rows."""
POOL_PERCENT = Fraction(67)
"""Training pool of a regression split, in per cent."""
MAX_TEST_ROWS = {"counts": 1000, "airline": 100_000}
"""By kind of split."""
TENTH = ("tenth", "published")
"""Kinds of split with 10 % test rows, and 10 % of the other rows for validation."""
TENTH_PERCENT = Fraction(10)
SIZE = re.compile(r"\d{1,15}|\d{1,3}(\.\d{1,15})?%", re.ASCII)
MIN_INDUCING = 20
MAX_INDUCING = 200


@dataclass(frozen=True)
class Arrangement:
    """How a user wants the rows divided.

    Attributes:
        kind: At random; by time (the earliest rows are the pool, the latest are tested on); by
            group (no group is in two parts); or as published.
        by: The time, or the number of the group, of every row.
        column: The name of `by`, for messages.
        test: The number of the user's own test rows, which are the last ones.
        published: For every split that was published, which rows are its test rows. Repetition k
            is split k.
    """

    kind: Literal["random", "time", "group", "published"] = "random"
    by: Float[np.ndarray, " N"] | None = None
    column: str = ""
    test: int = 0
    published: Bool[np.ndarray, "K N"] | None = None

    @property
    def label(self) -> str:
        """What a cell's key says of it, besides the data."""
        # Published splits are the kind of split itself (`split_name`).
        kind = "" if self.kind in ("random", "published") else f"-{self.kind}"
        test = f"-test{self.test}" if self.test else ""
        return kind + test

    def parts(self, order: Int[np.ndarray, " R"], pool: int, validation: int) -> "Split":
        """Return training pool, validation and the remaining rows.

        Rows of a group that would be in two parts are not used.

        Args:
            order: The rows that are not the user's own test rows, in a random order.
            pool: The number of rows in the pool.
            validation: The number of rows for validation.

        Raises:
            UserError: groups are too few or too large.
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
        too_few = len(parts.train) < pool or len(parts.validation) < validation
        if too_few or (not self.test and not len(parts.test)):
            count = f"its {len(np.unique(self._by))} groups are too few or too large"
            problem = f"{count} for validation and test rows in others"
            advice = "use csv.split=random without csv.by, or a finer column"
            raise UserError(f"csv.by={self.column}: {problem}: {advice}")
        return parts

    @property
    def _by(self) -> Float[np.ndarray, " N"]:
        """`by`, which a random division does not have."""
        assert self.by is not None
        return self.by

    def _sorted_groups(
        self, order: Int[np.ndarray, " R"]
    ) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
        """Return the rows by time or by group, and the number of the group of each, ascending.

        By time, every row is a group of its own.
        """
        if self.kind == "time":
            times = self._by[: len(order)]
            return np.argsort(times, kind="stable"), np.arange(len(order))
        # Number the groups by their first row in the random order: they are then in random order.
        _, first_rows, codes = np.unique(self._by[order], return_index=True, return_inverse=True)
        ranks = np.argsort(np.argsort(first_rows))
        groups = ranks[codes]
        by_group = np.argsort(groups, kind="stable")
        return order[by_group], groups[by_group]


def _next_group(groups: Int[np.ndarray, " R"], cut: int) -> int:
    """Return the first row at or after `cut` that begins a group."""
    if not 0 < cut < len(groups):
        return cut
    return int(np.searchsorted(groups, groups[cut - 1], side="right"))


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
    """`normalised = (raw - mean) / std` of every column.

    A constant column has std 1 and is set to 0 everywhere. A missing value (NaN) is set to 0, too:
    the mean of the training rows that have one.
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

    `y * y_std + y_mean` are the targets before normalisation; `features` normalises inputs.
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


def permutation(n_rows: int, seed: int) -> Int[np.ndarray, " N"]:
    """Return the order that sorts `n_rows` raw 64-bit integers of PCG64(seed).

    NumPy guarantees that this stream never changes, unlike `Generator.permutation`.
    """
    integers = np.random.PCG64(seed).random_raw(n_rows)
    return np.argsort(integers, kind="stable").astype(np.int64, copy=False)


def split(
    n_rows: int,
    kind: str,
    seed: int,
    test_cap: int | None = None,
    arrangement: Arrangement = RANDOM,
) -> Split:
    """Divide a permutation of the rows (docs/SPEC.md, section 5; the sizes: `split_sizes`).

    An `arrangement` decides which rows are in a part, not how many (by group, test rows may be
    fewer). Where it has test rows of the user's own, the other rows make up pool and validation.
    """
    if arrangement.published is not None:
        return published_split(arrangement.published, seed, test_cap, arrangement.by)
    if kind == "published":
        raise UserError("split=published: this dataset has no published splits; use split=tenth")
    rows = n_rows - arrangement.test
    sizes = split_sizes(n_rows, kind, user_test_rows=arrangement.test)
    order = permutation(rows, seed)
    if arrangement.by is None:
        held_out = rows - sizes.train
        test, validation, pool = np.split(order, [held_out - sizes.validation, held_out])
    else:
        pool, validation, test = arrangement.parts(order, sizes.train, sizes.validation)
        # A training set is the first rows of the pool, and has to be a random part of it.
        pool = pool[permutation(sizes.train, seed)]
    if arrangement.test:
        test = np.arange(rows, n_rows)
    return Split(pool, validation, test[:test_cap])


def published_split(
    is_test: Bool[np.ndarray, "K N"],
    seed: int,
    test_cap: int | None = None,
    groups: Float[np.ndarray, " N"] | None = None,
) -> Split:
    """Return published split number `seed`, its training rows divided into validation and pool.

    Test rows are in the order of the file. Training rows are permuted by the seed: the first tenth
    is for validation, the others are the pool. All splits have as many training rows as the one
    with the fewest, so that repetitions can be compared; splits often differ by a single row.

    Args:
        is_test: The test rows of every split.
        seed: The number of the split.
        test_cap: The largest number of test rows; the others are in no part.
        groups: The number of the group of every row, if no group may be in two parts.

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
    order = train[permutation(len(train), seed)][:n_train]
    n_validation = _percent(n_train, VALIDATION["published"])
    if groups is None:
        validation, pool = np.split(order, [n_validation])
    else:
        validation, pool = _grouped_parts(groups, order, n_validation)
    return Split(pool, validation, np.flatnonzero(is_test[seed])[:test_cap])


def _grouped_parts(
    groups: Float[np.ndarray, " N"], order: Int[np.ndarray, " n"], n_validation: int
) -> tuple[Int[np.ndarray, " V"], Int[np.ndarray, " P"]]:
    """Return rows for validation and the pool, which have no group in common.

    Rows between them, fewer than two of the largest groups, are not used: the sizes are then the
    same in all repetitions.
    """
    _, sizes = np.unique(groups, return_counts=True)
    largest = int(sizes.max())
    _, first_rows, codes = np.unique(groups[order], return_index=True, return_inverse=True)
    # Groups in the order of their first rows, which is random.
    by_group = order[np.argsort(first_rows[codes], kind="stable")]
    validation = by_group[:n_validation]
    pool = by_group[n_validation + largest :]
    if len(pool) < MINIMUM_ROWS:
        raise UserError(
            f"the groups are too large: {counted(len(pool), 'row')} would be left for training"
        )
    return validation, pool[permutation(len(pool), 0)]


def folds_of_groups(groups: Int[np.ndarray, " N"], folds: int) -> Int[np.ndarray, " N"]:
    """Return the fold of every row; rows of a group are in the same one.

    Groups, the largest first and equal ones in a random order, go to the smallest fold so far.
    """
    sizes = np.bincount(groups)
    shuffled = permutation(len(sizes), 0)
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    fold_of_group = np.zeros(len(sizes), dtype=np.int64)
    rows = np.zeros(folds, dtype=np.int64)
    for group in order:
        smallest = int(rows.argmin())
        fold_of_group[group] = smallest
        rows[smallest] += sizes[group]
    return fold_of_group[groups]


def split_sizes(
    n_rows: int, kind: str, test_cap: int | None = None, user_test_rows: int = 0
) -> SplitSizes:
    """Return how many of `n_rows` rows are for training, validation and test.

    regression: 67 / 8 / 25 % pool / validation / test. counts (and binary): 10 % validation, 1000
    test rows. airline: 100 000 test rows, no validation. Counts and airline use at most half of the
    rows that are not for validation as test rows, so that small data can be used too. Under
    `csv.split=group` the test rows are fewer where groups are kept together. tenth: 10 % test rows,
    and 10 % of the others for validation. published: the same, as published splits usually are.

    Args:
        n_rows: Rows of the dataset, a user's own test rows included.
        kind: Kind of the split: regression, counts, airline, tenth or published.
        test_cap: The largest number of test rows (song: 10 000); the others are in no part.
        user_test_rows: Number of the user's own test rows (`Arrangement.test`).

    Raises:
        UserError: there is no such kind of split, or there are too few rows.
    """
    if kind not in VALIDATION:
        raise UserError(f"unknown split '{kind}': {nearest(kind, list(VALIDATION))}")
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
    """Return how all rows are divided."""
    validation = _percent(rows, VALIDATION[kind])
    if kind == "regression":
        train = _percent(rows, POOL_PERCENT)
        return SplitSizes(train, validation, rows - validation - train)
    if kind in TENTH:
        test = _percent(rows, TENTH_PERCENT)
        validation = _percent(rows - test, VALIDATION[kind])
    else:
        test = min(MAX_TEST_ROWS[kind], (rows - validation) // 2)
    return SplitSizes(rows - validation - test, validation, test)


def _sizes_with_user_test_rows(rows: int, kind: str, user_test_rows: int) -> SplitSizes:
    """Return how rows are divided into pool and validation, if the user has test rows."""
    percent = VALIDATION[kind]
    if kind == "regression":
        # Validation and pool are in the usual proportion.
        percent = 100 * percent / (percent + POOL_PERCENT)
    validation = _percent(rows, percent)
    return SplitSizes(rows - validation, validation, user_test_rows)


def resolve_size(size: int | str, pool: int) -> int:
    """Return the number of training rows for a size in the config.

    A size is a number, of which at most the pool is used, or a percentage of the pool such as
    '2.5%'. Half a row rounds up: 5 % and 80 % of cadata's pool of 13829 are the paper's 691 and
    11063.

    Raises:
        UserError: the size is no number, or 0 or more than the pool.
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
    """Return mean and standard deviation (divided by n, not n - 1) of the training rows.

    Missing values do not count.
    """
    if np.isnan(X).any():
        return _normalisation_by_column(X)
    mean = X.mean(axis=0)
    centred = X - mean
    std = np.sqrt(np.einsum("nd,nd->d", centred, centred) / len(X))
    # max == min catches constants such as 0.1, whose mean has a rounding error; std == 0 catches
    # underflow.
    constant = (X.max(axis=0) == X.min(axis=0)) | (std == 0.0)
    return Normalisation(mean, np.where(constant, 1.0, std), constant)


def _normalisation_by_column(X: Float[np.ndarray, "n D"]) -> Normalisation:
    """Return the normalisation of columns with missing values; an empty column is constant."""
    columns = []
    for column in X.T:
        known = column[~np.isnan(column)]
        if not len(known):
            known = np.zeros(1)
        columns.append(normalisation(known[:, None]))
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
    """A fold of the training rows: which one (from 0), and how rows are divided (`folds_of`)."""

    number: int
    cv: str


def prepare(dataset: Any, spec: Any, seed: int, n: int | str, fold: Fold | None = None) -> Prepared:
    """Return training, validation and test rows of one repetition, normalised.

    Args:
        dataset: A `Dataset`, or another object with `X`, `y`, `task` and `arrangement`.
        spec: A `DatasetConfig`, or another object with `split`, `test_cap` and `validation`. With
            `validation=train` the rows for validation are trained on too; with `tenth` only the
            first n / 10 of them are used. With `pool` they are the last rows of the pool.
        seed: The seed of the repetition.
        n: The size of the training set (`resolve_size`).
        fold: Held out of the training set, for validation; there are no test rows then.
    """
    parts = split(len(dataset.y), spec.split, seed, spec.test_cap, dataset.arrangement)
    if spec.validation == "pool":
        parts = pooled(parts)
    size = resolve_size(n, len(parts.train))
    train = parts.train[:size]
    validation = parts.validation
    if spec.validation == "train":
        train = np.concatenate([train, validation])
    elif spec.validation == "tenth":
        tenth = max(1, len(train) // 10)
        validation = validation[:tenth]
    rows = Split(train, validation, parts.test)
    if fold is not None:
        folds = folds_of(size, fold.cv)
        rows = Split(
            train=train[folds.train[fold.number]],
            validation=train[folds.held_out[fold.number]],
            test=parts.test[:0],
        )
    indicators = getattr(dataset, "indicators", 0)
    return normalised(dataset.X, dataset.y, dataset.task, rows, indicators)


def pooled(parts: Split) -> Split:
    """Return the split with the rows for validation at the end of the pool."""
    train = np.concatenate([parts.train, parts.validation])
    return Split(train, parts.validation[:0], parts.test)


def normalised(
    X: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, " N"],
    task: str,
    rows: Split,
    indicators: int = 0,
) -> Prepared:
    """Return all rows of the split.

    Features, and y in regression, are normalised by the training rows alone. The last `indicators`
    features, of categories, stay 0 and 1: scaled to variance 1, a rare level would lie far away
    from all others.
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


def inducing_points(n_rows: int) -> int:
    """Return the number of inducing points for `M: null`.

    It is rows / 100, as in most of the paper's table, but 20 to 200.
    """
    return min(max(n_rows // 100, MIN_INDUCING), MAX_INDUCING)


def most_inducing_inputs(n: int) -> int:
    """Return the number of inducing inputs of a model of a user's own n rows: 200, or all rows."""
    return min(MAX_INDUCING, n)


def _percent(rows: int, percent: Fraction) -> int:
    """Return `percent` of `rows` in exact arithmetic; half a row rounds up."""
    return int(rows * percent / 100 + Fraction(1, 2))
