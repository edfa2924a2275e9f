"""A dataset: its specification, as `conf/dataset/NAME.yaml` says it; loaders, which make arrays of
raw files or draw them; and the arrays, checked against the specification."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError, nearest, shortened
from dlmexp.common.limits import converted
from dlmexp.common.registry import Registry
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.splits import RANDOM, Arrangement

if TYPE_CHECKING:
    from dlmexp.data.schema import Schema

Task = Literal["regression", "binary", "count"]
Checks = dict[Literal["positives", "y_mean", "x_mean", "x_std"], float | list[float]]
"""The `options.checks` of a spec, which tell the data from any other: `positives` is a number of rows, `x_mean` and
`x_std` are of all columns."""

# the dataset that is a user's own file; its spec is complete only inside a composed config
USER_TABLE = "csv"
MAX_ABS_VALUE = 1e100  # the squares of larger values would overflow in the normalisation
# means and deviations of features that differ by less, in deviations, are those of the same data
SAME = 1e-3


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A raw file of a dataset."""

    name: str  # its path in the data root, or a pattern such as `flights/*.npz` (all matches)
    url: str | None = None
    mirrors: tuple[str, ...] = ()  # tried after the url
    page: str | None = None  # a web page where a user can get it
    sha256: str | None = None
    git_blob: str | None = None
    group: str = "raw"  # files of a group are read together; the first complete group is read
    pinned: bool = True  # it must have this checksum; else only a download must
    package: str | None = None  # the installed Python package that it is part of


def as_spec(node: DatasetConfig | dict[str, Any]) -> DatasetConfig:
    """A dataset of a composed config, or as YAML has it, with its files as `FileSpec`; unknown keys
    are ignored."""
    values = node if isinstance(node, dict) else vars(node)
    name = f"dataset.{values.get('name')}"
    files = [converted(f"{name}.files", file, FileSpec) for file in values.get("files", [])]
    spec = converted(name, values | {"files": files}, DatasetConfig)
    converted(f"{name}.options.checks", spec.options.get("checks") or {}, Checks)
    return spec


def is_drawn(spec: DatasetConfig) -> bool:
    """Whether a dataset is drawn from its definition, not read from files."""
    return not spec.files and spec.loader != "table"


def dataset_names() -> list[str]:
    """Every dataset with a YAML file, except `csv` (a user's own table)."""
    return sorted(name for name in catalogue.entries("dataset") if name != USER_TABLE)


def read_spec(name: str, csv: CsvConfig | None = None) -> DatasetConfig:
    """The spec of one dataset by name, without Hydra; that of a user's table depends on what is
    said of it (`csv`)."""
    from omegaconf import OmegaConf

    if name not in dataset_names() and csv is None:
        raise UserError(f"unknown dataset '{name}': {nearest(name, dataset_names())}")
    known = OmegaConf.create({"csv": csv, "dataset": {name: catalogue.entries("dataset")[name]}})
    values: Any = OmegaConf.to_container(known.dataset[name], resolve=True)
    return as_spec(values)


@dataclass(frozen=True)
class Dataset:
    """Rows as published, before any split or normalisation. A loader gives the arrays and what
    there is to show; they are then checked, and become read-only with the rest
    (`dlmexp.data.raw_files.load`)."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked
    facts: Mapping[str, Any] = field(
        default_factory=dict
    )  # names of features, parts that were read
    arrangement: Arrangement = RANDOM  # how a user wants the rows divided
    name: str = ""
    task: str = ""
    checksum: str = (
        ""  # of the values, whatever the file format, or of the definition they are drawn from
    )

    @property
    def schema(self) -> "Schema":
        """Its columns by name; x1, x2, ... and y where the files name none."""
        from dlmexp.data.schema import (
            Schema,  # which needs pandas, as the list of datasets does not
        )

        return self.facts.get("schema") or Schema.plain(
            self.facts.get("features") or self.X.shape[1], self.task
        )


MODULES = ("dlmexp.data.own_table", "dlmexp.data.published")
LOADERS: Registry[Callable[[DatasetConfig, Mapping[str, Path]], Dataset]] = Registry(
    "loader", *MODULES
)
"""Functions of a spec and the paths of its raw files, by the `name` in the spec. A dataset without files is drawn from
the `options` of the spec."""


def parse(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """The arrays of a dataset from its raw files, by name, checked: shape, finite values, targets
    that fit the task, then the `options.checks` of the spec. UserError with the first check that
    fails."""
    parsed = LOADERS[spec.loader](spec, files)
    for name, fine, expected, actual in _checked(parsed, spec):
        if not fine:
            source = parsed.facts.get("file") or f"dataset '{spec.name}'"
            raise UserError(f"{source}: check '{name}' failed: expected {expected}, found {actual}")
    return parsed


def _checked(data: Dataset, spec: DatasetConfig) -> Iterator[tuple[str, Any, object, object]]:
    """Checks by name: whether the data passes it, what was expected and what is there."""
    X, y = data.X, data.y
    fits = X.ndim == 2 and y.shape == X.shape[:1]
    yield "shape", fits, "X [rows, features] and y [rows]", f"{X.shape} and {y.shape}"
    for name, wanted, actual in (
        ("rows", spec.rows, len(y)),
        ("features", spec.features, X.shape[1]),
    ):
        yield name, actual and actual == (wanted or actual), wanted or "some", actual or "none"
    names = (data.schema.target, *data.schema.features)
    yield "names", len(names) == X.shape[1] + 1, f"those of {X.shape[1]} features", len(names) - 1
    for column, values in zip(names, (y, *X.T), strict=True):
        # Comparisons with NaN are false, so this one test catches NaN, infinities and values that
        # would overflow.
        fine = (np.abs(values) < MAX_ABS_VALUE) | (
            np.isnan(values) & (data.schema.fill and values is not y)
        )
        row = int(np.argmin(fine))
        wanted = f"numbers below {MAX_ABS_VALUE:g} (choose larger units)"
        yield "finite", fine.all(), wanted, f"{values[row]} in row {row + 1}, column '{column}'"
    if spec.task == "binary":
        wrong = (y != 0.0) & (y != 1.0)
        yield (
            "labels",
            not wrong.any(),
            "0 and 1",
            f"{y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}",
        )
        yield "labels", y.min() < y.max(), "two classes", f"only {y[0]:g}"
    elif spec.task == "count":
        wrong = (y < 0.0) | (y != np.floor(y))
        yield (
            "counts",
            not wrong.any(),
            "integers >= 0",
            f"{y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}",
        )
    spread = X.std(axis=0)
    measured = {"positives": (y.sum(), 1e-6 * y.sum()), "y_mean": (y.mean(), 1e-6 * abs(y.mean()))}
    measured |= {"x_mean": (X.mean(axis=0), SAME * spread), "x_std": (spread, SAME * spread)}
    for name, wanted in (spec.options.get("checks") or {}).items():
        actual, tolerance = measured[name]
        same = np.shape(wanted) == np.shape(actual) and (np.abs(actual - wanted) <= tolerance).all()
        yield name, same, shortened(wanted), f"{shortened(actual)}: these are other data"
