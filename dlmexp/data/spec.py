"""The specification of a dataset, read from `conf/dataset/NAME.yaml`: its files, shape, task and split."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from dlmexp import catalogue
from dlmexp.errors import UserError, nearest
from dlmexp.paths import conf_dirs

Task = Literal["regression", "binary", "count"]

USER_TABLE = "csv"  # the dataset that is a user's own file; its spec is complete only inside a composed config
TEST = "test rows"  # the name under which a user's own file of test rows is given to the loader of tables


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A raw file of a dataset."""

    name: str  # its path in the data root, or a pattern such as `flights/*.npz` (all matches)
    url: str | None = None
    mirrors: tuple[str, ...] = ()  # tried after the url
    page: str | None = None  # a web page where a user can get it
    sha256: str | None = None
    git_blob: str | None = None
    group: str = "raw"  # files of a group are read together; the first complete group is read
    optional: bool = False  # a group of optional files only is complete with any one of them
    pinned: bool = True  # it must have this checksum; else only a download must
    package: str | None = None  # the installed Python package that it is part of


@dataclass(frozen=True)
class DatasetSpec:
    """The part of a dataset's configuration that `dlmexp.data` uses; keys as in `conf/dataset/*.yaml`."""

    name: str
    loader: str
    task: Task
    split: str
    M: int | None = None
    sizes: tuple[int | str, ...] = ()
    test_cap: int | None = None
    validation: str = "all"
    stands_for: str | None = None
    rows: int | None = None
    features: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[FileSpec, ...] = ()
    note: str | None = None


def as_spec(node: Any) -> DatasetSpec:
    """A dict or a dataclass as a DatasetSpec; keys that it does not have are ignored."""
    if isinstance(node, DatasetSpec):
        return node
    values = node if isinstance(node, dict) else vars(node)
    try:
        return msgspec.convert({name: value for name, value in values.items() if value is not None}, DatasetSpec)
    except msgspec.ValidationError as error:
        raise UserError(f"dataset '{values.get('name')}': {error}") from None


def dataset_names() -> list[str]:
    """Every dataset with a YAML file, except `csv` (a user's own table)."""
    return sorted(name for name in catalogue.entries("dataset") if name != USER_TABLE)


def read_spec(name: str) -> DatasetSpec:
    """The spec of one dataset by name, without Hydra."""
    if name not in dataset_names():
        raise UserError(f"unknown dataset '{name}': {nearest(name, dataset_names())}")
    return _read_spec(name, tuple(conf_dirs()))


@cache
def _read_spec(name: str, folders: tuple[Path, ...]) -> DatasetSpec:
    from omegaconf import OmegaConf

    return as_spec(OmegaConf.to_container(OmegaConf.create(catalogue.entries("dataset")[name]), resolve=True))
