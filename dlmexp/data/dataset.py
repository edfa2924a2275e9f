"""A dataset: its specification, the loaders, and the arrays.

The specification is what `conf/dataset/NAME.yaml` says. Loaders make arrays of raw files or draw
them. The arrays are checked against the specification.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError, nearest, shortened
from dlmexp.common.limits import converted
from dlmexp.common.plugin_errors import plugin_errors_as_user_errors
from dlmexp.common.registry import Registry
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.splits import RANDOM, Arrangement

if TYPE_CHECKING:
    from dlmexp.data.schema import Schema

Task = Literal["regression", "binary", "count"]
Checks = dict[Literal["positives", "y_mean", "x_mean", "x_std"], float | list[float]]
"""The `options.checks` of a spec, which tell the data from any other.

`positives` is a number of rows, `y_mean` the mean of the targets; `x_mean` and `x_std` are of all
columns."""

USER_TABLE = "csv"
"""The dataset that is a user's own file. Its spec is complete only inside a composed config."""
MAX_ABS_VALUE = 1e100
"""The squares of larger values would overflow in the normalisation."""
MOMENT_TOLERANCE = 1e-3
"""In deviations: means and deviations of features that differ by less are of the same data."""
TARGET_TOLERANCE = 1e-6
"""As a share of the value: the same for targets."""


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A raw file of a dataset.

    Attributes:
        name: Its path in the data root, or a pattern such as `flights/*.npz` (all matches).
        url: Where it is downloaded from.
        mirrors: Addresses that are tried after the url.
        page: A web page where a user can get it.
        sha256: Its checksum.
        git_blob: Its checksum as git computes it.
        group: Files of a group are read together; the first complete group is read.
        pinned: Whether it must have this checksum; if not, only a download must.
        package: The installed Python package that it is part of.
    """

    name: str
    url: str | None = None
    mirrors: tuple[str, ...] = ()
    page: str | None = None
    sha256: str | None = None
    git_blob: str | None = None
    group: str = "raw"
    pinned: bool = True
    package: str | None = None


def as_spec(node: DatasetConfig | dict[str, Any]) -> DatasetConfig:
    """Return a dataset of a composed config or of a YAML file, with its files as `FileSpec`.

    Unknown keys are ignored.

    Raises:
        UserError: a value has another type, or is beyond its limits.
    """
    values = node if isinstance(node, dict) else vars(node)
    name = f"dataset.{values.get('name')}"
    entries = values.get("files", [])
    files = [converted(f"{name}.files", entry, FileSpec) for entry in entries]
    spec = converted(name, values | {"files": files}, DatasetConfig)
    converted(f"{name}.options.checks", spec.options.get("checks") or {}, Checks)
    return spec


def is_drawn(spec: DatasetConfig) -> bool:
    """Return whether a dataset is drawn from its definition, not read from files."""
    return not spec.files and spec.loader != "table"


def dataset_names() -> list[str]:
    """Return every dataset with a YAML file, except `csv` (a user's own table)."""
    return sorted(name for name in catalogue.entries("dataset") if name != USER_TABLE)


def read_spec(name: str, csv: CsvConfig | None = None) -> DatasetConfig:
    """Return the spec of a dataset by name, without Hydra.

    That of a user's table depends on the settings `csv`.
    """
    if name not in dataset_names() and csv is None:
        raise UserError(f"unknown dataset '{name}': {nearest(name, dataset_names())}")
    entry = catalogue.entries("dataset")[name]
    if "${" in repr(entry):
        entry = _resolved(name, entry, csv)
    return as_spec(deepcopy(entry))


def _resolved(name: str, entry: dict[str, Any], csv: CsvConfig | None) -> dict[str, Any]:
    """Return the content of a dataset's file with its interpolations resolved."""
    from omegaconf import OmegaConf

    config = OmegaConf.create({"csv": csv, "dataset": {name: entry}})
    values: Any = OmegaConf.to_container(config.dataset[name], resolve=True)
    return values


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation.

    A loader gives the arrays and the facts. `dlmexp.data.raw_files.load` checks the arrays, makes
    them read-only, and adds the rest.

    Attributes:
        X: The features.
        y: The targets, one for each row.
        facts: What there is to show: names of features, parts that were read.
        arrangement: How a user wants the rows divided.
        name: The name of the dataset.
        task: regression, binary or count.
        checksum: A hash of the values, whatever the file format, or of the definition they are
            drawn from.
    """

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement = RANDOM
    name: str = ""
    task: str = ""
    checksum: str = ""

    @property
    def schema(self) -> "Schema":
        """Its columns by name; x1, x2, ... and y where the files name none."""
        # The schema needs pandas, which takes a while to import; the list of datasets does not.
        from dlmexp.data.schema import Schema

        schema = self.facts.get("schema")
        if schema is not None:
            return schema
        return Schema.plain(self.facts.get("features") or self.X.shape[1], self.task)

    @property
    def indicators(self) -> int:
        """The number of its last features that are indicators of categories."""
        schema = self.facts.get("schema")
        return 0 if schema is None else sum(schema.categories)


MODULES = (
    "dlmexp.data.user_table",
    "dlmexp.data.published",
    "dlmexp.data.drawn",
    "dlmexp.data.published_splits",
)
LOADERS: Registry[Callable[[DatasetConfig, Mapping[str, Path]], Dataset]] = Registry(
    "loader", *MODULES
)
"""Functions of a spec and the paths of its raw files, by the `name` in the spec.

A dataset without files is drawn from the `options` of the spec."""


def parse(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Return the arrays of a dataset from its raw files, by name, checked.

    The checks: shape, finite values, targets that fit the task, then the `options.checks` of the
    spec.

    Raises:
        UserError: a check failed; the message names the first one.
    """
    parsed = _loaded(spec, files)
    for check in _checks(parsed, spec):
        if not check.passed:
            source = parsed.facts.get("file") or f"dataset '{spec.name}'"
            comparison = f"expected {check.expected}, found {check.actual}"
            raise UserError(f"{source}: check '{check.name}' failed: {comparison}")
    return parsed


def _loaded(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Return what the loader of a dataset returns.

    Raises:
        UserError: The loader is one of a plugin, and raised an exception.
    """
    loader = LOADERS[spec.loader]
    with plugin_errors_as_user_errors(f"dataset '{spec.name}' can't be read"):
        return loader(spec, files)


@dataclass(frozen=True)
class _Check:
    """The outcome of a check, with the values for a message."""

    name: str
    passed: Any  # a truth value
    expected: object
    actual: object


def _checks(data: Dataset, spec: DatasetConfig) -> Iterator[_Check]:
    """Yield the checks. Those that follow a failed one may not be possible."""
    X = data.X
    y = data.y
    has_shape = X.ndim == 2 and y.shape == X.shape[:1]
    shapes = f"{X.shape} and {y.shape}"
    yield _Check("shape", has_shape, "X [rows, features] and y [rows]", shapes)
    yield _count_check("rows", spec.rows, len(y))
    yield _count_check("features", spec.features, X.shape[1])
    names = (data.schema.target, *data.schema.features)
    n_names = len(names) - 1
    n_features = X.shape[1]
    yield _Check("names", n_names == n_features, f"those of {n_features} features", n_names)
    yield _finite_check(names[0], y)
    for name, values in zip(names[1:], X.T, strict=True):
        yield _finite_check(name, values, missing=data.schema.fill)
    if spec.task == "binary":
        is_label = (y == 0.0) | (y == 1.0)
        yield _target_check("labels", y, is_label, "0 and 1")
        has_both = y.min() < y.max()
        yield _Check("labels", has_both, "two classes", f"only {y[0]:g}")
    elif spec.task == "count":
        is_count = (y >= 0.0) & (y == np.floor(y))
        yield _target_check("counts", y, is_count, "integers >= 0")
    yield from _moment_checks(data, spec.options.get("checks") or {})


def _count_check(name: str, expected: int | None, actual: int) -> _Check:
    """Return the check that there are as many rows or features as the spec says, and some."""
    passed = actual > 0 and actual == (expected or actual)
    return _Check(name, passed, expected or "some", actual or "none")


def _finite_check(column: str, values: Float[np.ndarray, " rows"], missing: bool = False) -> _Check:
    """Return the check that values are finite and not too large; they may be `missing`."""
    # Comparisons with NaN are false: this also catches NaN and infinities.
    fine = np.abs(values) < MAX_ABS_VALUE
    if missing:
        fine |= np.isnan(values)
    row = int(np.argmin(fine))
    expected = f"numbers below {MAX_ABS_VALUE:g} (choose larger units)"
    actual = f"{values[row]} in row {row + 1}, column '{column}'"
    return _Check("finite", fine.all(), expected, actual)


def _target_check(
    name: str, y: Float[np.ndarray, " rows"], fine: Bool[np.ndarray, " rows"], expected: str
) -> _Check:
    """Return the check that all targets are fine."""
    row = int(np.argmin(fine))
    actual = f"{y[row]:g} in row {row + 1}"
    return _Check(name, fine.all(), expected, actual)


def _moment_checks(
    data: Dataset, expected: Mapping[str, float | Sequence[float]]
) -> Iterator[_Check]:
    """Yield the `options.checks` of a spec."""
    spread = data.X.std(axis=0)
    positives = data.y.sum()
    y_mean = data.y.mean()
    values_and_tolerances = {
        "positives": (positives, TARGET_TOLERANCE * positives),
        "y_mean": (y_mean, TARGET_TOLERANCE * abs(y_mean)),
        "x_mean": (data.X.mean(axis=0), MOMENT_TOLERANCE * spread),
        "x_std": (spread, MOMENT_TOLERANCE * spread),
    }
    for name, wanted in expected.items():
        actual, tolerance = values_and_tolerances[name]
        passed = False
        if np.shape(wanted) == np.shape(actual):
            difference = np.abs(actual - np.asarray(wanted))
            passed = (difference <= tolerance).all()
        yield _Check(name, passed, shortened(wanted), f"{shortened(actual)}: these are other data")
