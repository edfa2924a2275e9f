"""A dataset: its specification ("spec"), the loaders, and the arrays.

The spec is the content of `conf/dataset/NAME.yaml`. Loaders read arrays from raw files, or draw
them at random. The arrays are checked against the spec.
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
"""The `options.checks` of a spec: statistics that expose other data of the same shape.

`positives` is the number of rows of class 1, and `y_mean` the mean of the targets. `x_mean` and
`x_std` have a value for each feature."""

USER_TABLE = "csv"
"""The dataset that is a user's own file. Its spec is complete only inside a composed config."""
MAX_ABS_VALUE = 1e100
"""The squares of larger values would overflow in the normalisation."""
MOMENT_TOLERANCE = 1e-3
"""The mean and deviation of a feature may differ from the check by this many deviations."""
TARGET_TOLERANCE = 1e-6
"""A statistic of the targets may differ from the check by this share of its value."""


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A raw file of a dataset.

    Attributes:
        name: Its path in the data root, or a pattern such as `flights/*.npz`, for all files that
            match.
        url: Where it is downloaded from.
        mirrors: Addresses that are tried after the url.
        page: A web page where a user can get it.
        sha256: Its checksum.
        git_blob: Its checksum as git computes it.
        group: The group of files that it belongs to. Groups are alternatives: the files of the
            first complete group are read together.
        pinned: Whether the file must have the checksum wherever it comes from. If not, the checksum
            is verified only after a download.
        package: The installed Python package that contains it.
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
    """Return the checked spec of a dataset, with its files as `FileSpec`; ignore unknown keys.

    Args:
        node: The dataset in a composed config, or the content of its YAML file.

    Raises:
        UserError: a value has another type, or is beyond its limits.
    """
    values = node if isinstance(node, dict) else vars(node)
    name = f"dataset.{values.get('name')}"
    entries = values.get("files", [])
    files = [converted(f"{name}.files", entry, FileSpec) for entry in entries]
    spec = converted(name, values | {"files": files}, DatasetConfig)
    # Only to check the types of these options, which DatasetConfig does not know.
    converted(f"{name}.options.checks", spec.options.get("checks") or {}, Checks)
    return spec


def is_drawn(spec: DatasetConfig) -> bool:
    """Return whether a dataset is drawn from its definition, not read from files."""
    return not spec.files and spec.loader != "table"


def dataset_names() -> list[str]:
    """Return the names of all datasets, except for `csv` (a user's own table)."""
    return sorted(name for name in catalogue.entries("dataset") if name != USER_TABLE)


def read_spec(name: str, csv: CsvConfig | None = None) -> DatasetConfig:
    """Return the spec of a dataset by name, without Hydra.

    Args:
        name: The name of its YAML file.
        csv: The settings of a user's own table, which the dataset `csv` needs.
    """
    if name not in dataset_names() and csv is None:
        raise UserError(f"unknown dataset '{name}': {nearest(name, dataset_names())}")
    entry = catalogue.entries("dataset")[name]
    has_interpolations = "${" in repr(entry)
    if has_interpolations:
        entry = _resolve_interpolations(name, entry, csv)
    return as_spec(deepcopy(entry))


def _resolve_interpolations(
    name: str, entry: dict[str, Any], csv: CsvConfig | None
) -> dict[str, Any]:
    """Return the content of a dataset's file with its interpolations resolved."""
    from omegaconf import OmegaConf

    config = OmegaConf.create({"csv": csv, "dataset": {name: entry}})
    values: Any = OmegaConf.to_container(config.dataset[name], resolve=True)
    return values


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation.

    A loader sets `X`, `y`, `facts` and `arrangement`. `dlmexp.data.raw_files.load` checks the
    arrays, makes them read-only, and sets name, task and checksum.

    Attributes:
        X: The features.
        y: The targets, one for each row.
        facts: Further results of the loader, by name, all optional: `features` (names of the
            features), `schema` (of a table), and `file`, `left_out` and `warnings`, which are shown
            to users.
        arrangement: How a user wants the rows divided into training and test rows.
        name: The name of the dataset.
        task: regression, binary or count.
        checksum: A hash of the values, which does not depend on the file format. For drawn data, a
            hash of their definition.
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
        """The schema of the columns, called x1, x2, ... and y if the files have no names."""
        # The schema needs pandas, which is slow to import; `dlmexp data list` does without it.
        from dlmexp.data.schema import Schema

        schema = self.facts.get("schema")
        if schema is not None:
            return schema
        return Schema.plain(self.facts.get("features") or self.X.shape[1], self.task)

    @property
    def indicators(self) -> int:
        """The number of features that are indicators of categories; they are the last ones."""
        schema = self.facts.get("schema")
        return 0 if schema is None else sum(schema.categories)


LOADER_MODULES = (
    "dlmexp.data.user_table",
    "dlmexp.data.published",
    "dlmexp.data.drawn",
    "dlmexp.data.published_splits",
)
LOADERS: Registry[Callable[[DatasetConfig, Mapping[str, Path]], Dataset]] = Registry(
    "loader", *LOADER_MODULES
)
"""Loaders: functions of a spec, and of a mapping from `FileSpec.name` to the path of the raw file.

The loader of a dataset without files draws it, as the `options` of the spec say."""


def parse(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Return the arrays of a dataset, read from its raw files and checked.

    It is checked that shapes are right, values are finite and targets fit the task, and then that
    the `options.checks` of the spec hold.

    Args:
        spec: The dataset.
        files: The paths of its raw files, by `FileSpec.name`.

    Raises:
        UserError: a check failed; the message names the first one.
    """
    parsed = _call_loader(spec, files)
    for check in _checks(parsed, spec):
        if not check.passed:
            source = parsed.facts.get("file") or f"dataset '{spec.name}'"
            comparison = f"expected {check.expected}, found {check.actual}"
            raise UserError(f"{source}: check '{check.name}' failed: {comparison}")
    return parsed


def _call_loader(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Return what the loader of a dataset returns.

    Raises:
        UserError: The files are wrong, or the loader of a plugin raised any exception.
    """
    loader = LOADERS[spec.loader]
    with plugin_errors_as_user_errors(f"dataset '{spec.name}' can't be read"):
        return loader(spec, files)


@dataclass(frozen=True)
class _Check:
    """The outcome of a check, with the values for the message if it failed."""

    name: str
    passed: Any  # a bool of Python or NumPy
    expected: object
    actual: object


def _checks(data: Dataset, spec: DatasetConfig) -> Iterator[_Check]:
    """Yield the checks. Each is valid only if all before it have passed: stop at a failed one."""
    X = data.X
    y = data.y
    yield _Check(
        name="shape",
        passed=X.ndim == 2 and y.shape == X.shape[:1],
        expected="X [rows, features] and y [rows]",
        actual=f"{X.shape} and {y.shape}",
    )
    n_features = X.shape[1]
    yield _count_check("rows", expected=spec.rows, actual=len(y))
    yield _count_check("features", expected=spec.features, actual=n_features)
    feature_names = data.schema.features
    yield _Check(
        name="names",
        passed=len(feature_names) == n_features,
        expected=f"those of {n_features} features",
        actual=len(feature_names),
    )
    yield _finite_check(data.schema.target, y)
    for name, values in zip(feature_names, X.T, strict=True):
        yield _finite_check(name, values, may_be_missing=data.schema.fill)
    if spec.task == "binary":
        is_label = (y == 0.0) | (y == 1.0)
        yield _target_check("labels", y, is_label, "0 and 1")
        has_two_classes = y.min() < y.max()
        yield _Check("labels", has_two_classes, expected="two classes", actual=f"only {y[0]:g}")
    elif spec.task == "count":
        is_count = (y >= 0.0) & (y == np.floor(y))
        yield _target_check("counts", y, is_count, "integers >= 0")
    yield from _moment_checks(data, spec.options.get("checks") or {})


def _count_check(name: str, expected: int | None, actual: int) -> _Check:
    """Return the check that a number is not 0, and is as expected if the spec expects one."""
    is_expected = not expected or actual == expected
    return _Check(
        name=name,
        passed=actual > 0 and is_expected,
        expected=expected or "some",
        actual=actual or "none",
    )


def _finite_check(
    column: str, values: Float[np.ndarray, " rows"], may_be_missing: bool = False
) -> _Check:
    """Return the check that the values of a column are finite and not too large.

    Args:
        column: The name of the column.
        values: The values, NaN where missing.
        may_be_missing: Whether missing values are allowed.
    """
    is_allowed = np.abs(values) < MAX_ABS_VALUE  # False for NaN
    if may_be_missing:
        is_allowed |= np.isnan(values)
    row = int(np.argmin(is_allowed))  # the first that is not allowed
    expected = f"numbers below {MAX_ABS_VALUE:g} (choose larger units)"
    actual = f"{values[row]} in row {row + 1}, column '{column}'"
    return _Check("finite", is_allowed.all(), expected, actual)


def _target_check(
    name: str, y: Float[np.ndarray, " rows"], is_allowed: Bool[np.ndarray, " rows"], expected: str
) -> _Check:
    """Return the check that all targets are allowed."""
    row = int(np.argmin(is_allowed))  # the first that is not allowed
    actual = f"{y[row]:g} in row {row + 1}"
    return _Check(name, is_allowed.all(), expected, actual)


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
    for name, expected_value in expected.items():
        actual, tolerance = values_and_tolerances[name]
        passed = False
        if np.shape(expected_value) == np.shape(actual):
            difference = np.abs(actual - np.asarray(expected_value))
            passed = (difference <= tolerance).all()
        yield _Check(
            name=name,
            passed=passed,
            expected=shortened(expected_value),
            actual=f"{shortened(actual)}: these are other data",
        )
