"""Who is trained on, validated on and tested on: pure functions of (rows, kind of split, seed, n).

The rows are permuted once per seed and cut into test, validation and training pool; a training set of n rows is the
first n of the pool. So a smaller set is nested in a larger one, and test and validation rows depend on the seed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from dlmexp import catalogue
from dlmexp.errors import UserError, nearest

SPLIT_VERSION = 1
"""Part of every result's key: raise it whenever a change here moves a row or a normalised value."""

KINDS = ("regression", "counts", "airline")
MINIMUM_ROWS = 20


@dataclass(frozen=True)
class Split:
    """Row numbers into the dataset; the three parts are disjoint."""

    train_pool: Int[np.ndarray, " P"]
    validation: Int[np.ndarray, " V"]
    test: Int[np.ndarray, " T"]


@dataclass(frozen=True)
class Normalisation:
    """`normalised = (raw - mean) / std`; a constant column has std 1 and is set to 0 everywhere."""

    mean: Float[np.ndarray, " D"]
    std: Float[np.ndarray, " D"]
    constant: np.ndarray

    def apply(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """Normalises `X` in place and returns it."""
        X -= self.mean
        X /= self.std
        X[:, self.constant] = 0.0
        return X


@dataclass(frozen=True)
class Prepared:
    """What a cell is trained and judged on, normalised; `y * y_std + y_mean` undoes the target's scale."""

    X_train: Float[np.ndarray, "n D"]
    y_train: Float[np.ndarray, " n"]
    X_val: Float[np.ndarray, "V D"]
    y_val: Float[np.ndarray, " V"]
    X_test: Float[np.ndarray, "T D"]
    y_test: Float[np.ndarray, " T"]
    y_mean: float
    y_std: float


def permutation(n_rows: int, seed: int) -> Int[np.ndarray, " N"]:
    """The order of `n_rows` raw 64-bit words of PCG64(seed).

    numpy promises the raw words of a bit generator for good, but not what `Generator.permutation` makes of them.
    """
    words = np.random.PCG64(seed).random_raw(n_rows)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


def split(n_rows: int, kind: str, seed: int, test_cap: int | None = None) -> Split:
    """Cuts a permutation of the rows into test, validation and training pool (docs/SPEC.md, section 5).

    regression: 67 / 8 / 25 % pool / validation / test. counts (and binary): 10 % validation, 1000 test rows.
    airline: 100 000 test rows, no validation. `test_cap` bounds the test rows (song: 10 000); the last two kinds never
    take more than half of what is left for testing, so that small data can be trained on as well.
    """
    if kind not in KINDS:
        raise UserError(f"unknown split '{kind}': {nearest(kind, list(KINDS))}")
    if n_rows < MINIMUM_ROWS:
        raise UserError(f"{n_rows} rows are too few to split: at least {MINIMUM_ROWS} are needed")
    if kind == "regression":
        n_validation, n_pool = _percent(n_rows, Fraction(8)), _percent(n_rows, Fraction(67))
        n_test = n_rows - n_pool - n_validation
    else:
        n_validation, most = (_percent(n_rows, Fraction(10)), 1000) if kind == "counts" else (0, 100_000)
        n_test = min(most, (n_rows - n_validation) // 2)
    order = permutation(n_rows, seed)
    test, validation, pool = np.split(order, [n_test, n_test + n_validation])
    return Split(train_pool=pool, validation=validation, test=test[:test_cap])


def resolve_size(size: int | str, pool: int) -> int:
    """Rows that a size of the config means: a number, or a percentage of the pool such as '5%' or '2.5%'.

    Half a row rounds up: 5 % and 80 % of cadata's pool of 13829 are the paper's 691 and 11063. A number beyond the pool
    means the whole pool.
    """
    text = str(size).strip()
    try:
        rows = _percent(pool, Fraction(text[:-1])) if text.endswith("%") else min(int(text), pool)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"size '{size}' is neither a number of rows nor a percentage such as '5%'") from None
    if not 1 <= rows <= pool:
        raise UserError(f"size '{size}' means {rows} of the {pool} rows there are to train on: give 1 to {pool}")
    return rows


def resolve_sizes(sizes: Sequence[int | str], pool: int) -> list[int]:
    """The distinct training sizes in increasing order."""
    return sorted({resolve_size(size, pool) for size in sizes})


def training_rows(split: Split, size: int | str) -> Int[np.ndarray, " n"]:
    """The first rows of the training pool: nested, since they are a prefix."""
    return split.train_pool[: resolve_size(size, len(split.train_pool))]


def normalisation(X: Float[np.ndarray, "n D"]) -> Normalisation:
    """Mean and standard deviation (over n, not n - 1) of the rows trained on."""
    mean = X.mean(axis=0)
    centred = X - mean
    std = np.sqrt(np.einsum("nd,nd->d", centred, centred) / len(X))
    # max == min catches constants such as 0.1, whose mean is off by a rounding; std == 0 catches underflow.
    constant = (X.max(axis=0) == X.min(axis=0)) | (std == 0.0)
    return Normalisation(mean, np.where(constant, 1.0, std), constant)


@runtime_checkable
class Rows(Protocol):
    """What is split: features and targets of a task."""

    @property
    def X(self) -> Float[np.ndarray, "N D"]: ...
    @property
    def y(self) -> Float[np.ndarray, " N"]: ...
    @property
    def task(self) -> str: ...


def prepare(dataset: Rows, spec: Any, seed: int, n: int | str) -> Prepared:
    """Training, validation and test arrays of one repetition: features, and y in regression, normalised by the n
    training rows alone. `spec` needs `split` and `test_cap`."""
    parts = split(len(dataset.y), spec.split, seed, spec.test_cap)
    rows = training_rows(parts, n)
    X_train, y_train = dataset.X[rows], dataset.y[rows]
    features = normalisation(X_train)
    target = normalisation(y_train[:, None]) if dataset.task == "regression" else None

    def part(chosen: Int[np.ndarray, " R"]) -> tuple[np.ndarray, np.ndarray]:
        y = dataset.y[chosen]
        return features.apply(dataset.X[chosen]), y if target is None else target.apply(y[:, None])[:, 0]

    X_train = features.apply(X_train)
    y_train = y_train if target is None else target.apply(y_train[:, None])[:, 0]
    return Prepared(
        X_train,
        y_train,
        *part(parts.validation),
        *part(parts.test),
        y_mean=0.0 if target is None else float(target.mean[0]),
        y_std=1.0 if target is None else float(target.std[0]),
    )


def known_pool(dataset: str) -> int | None:
    """Rows there are to train on, where `conf/dataset` says how many rows the dataset has."""
    spec = catalogue.datasets().get(dataset, {})
    rows = spec.get("rows")
    return len(split(rows, spec["split"], seed=0).train_pool) if isinstance(rows, int) else None


def known_sizes(dataset: str) -> list[int]:
    """The sizes `conf/dataset` trains on, in rows; empty where that needs the data itself."""
    sizes, pool = catalogue.datasets().get(dataset, {}).get("sizes"), known_pool(dataset)
    if not isinstance(sizes, list):  # an interpolation that only a composed config can work out
        return []
    if not any(isinstance(size, str) for size in sizes):
        return [int(size) for size in sizes]
    return [resolve_size(size, pool) for size in sizes] if pool else []


def inducing_points(n_rows: int) -> int:
    """The rule behind `M: null`: a hundredth of the rows, as in most of the paper's table, between 20 and 200."""
    return min(max(n_rows // 100, 20), 200)


def _percent(rows: int, percent: Fraction) -> int:
    """`percent` of `rows` in exact arithmetic, half a row up."""
    return int(rows * percent / 100 + Fraction(1, 2))
