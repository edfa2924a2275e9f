"""The specification of a dataset: a `DatasetConfig`, as `conf/dataset/NAME.yaml` says it, with `FileSpec` for files."""

from typing import Any, Literal, get_args

import msgspec

from dlmexp import catalogue
from dlmexp.config import DatasetConfig
from dlmexp.errors import UserError, nearest

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
    pinned: bool = True  # it must have this checksum; else only a download must
    package: str | None = None  # the installed Python package that it is part of


def as_spec(node: DatasetConfig | dict[str, Any]) -> DatasetConfig:
    """A dataset of a composed config, or as YAML has it, with its files as `FileSpec`; unknown keys are ignored."""
    values = {name: v for name, v in (node if isinstance(node, dict) else vars(node)).items() if v is not None}
    try:
        files = msgspec.convert(values.get("files", []), list[FileSpec])
        spec = msgspec.convert(values | {"files": files}, DatasetConfig)
    except msgspec.ValidationError as error:
        said = str(error).replace("$[", "files[")
        raise UserError(f"dataset '{values.get('name')}': {said}") from None
    if spec.task not in get_args(Task):
        raise UserError(f"dataset '{spec.name}': task={spec.task}: give one of {', '.join(get_args(Task))}")
    return spec


def is_drawn(spec: DatasetConfig) -> bool:
    """Whether a dataset is drawn from its definition, not read from files."""
    return not spec.files and spec.loader != "table"


def dataset_names() -> list[str]:
    """Every dataset with a YAML file, except `csv` (a user's own table)."""
    return sorted(name for name in catalogue.entries("dataset") if name != USER_TABLE)


def read_spec(name: str) -> DatasetConfig:
    """The spec of one dataset by name, without Hydra."""
    from omegaconf import OmegaConf

    if name not in dataset_names():
        raise UserError(f"unknown dataset '{name}': {nearest(name, dataset_names())}")
    values: Any = OmegaConf.to_container(OmegaConf.create(catalogue.entries("dataset")[name]), resolve=True)
    return as_spec(values)
