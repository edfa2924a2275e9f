"""The files of `conf/` by name: datasets, methods, experiments, protocols.

`dlmexp run` composes its config with Hydra from the same folders. The functions here read single
files, which is fast, but they do not follow the defaults lists in them or apply overrides.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir, conf_dirs

# The datasets of the paper, by task. airline is binary, too, but larger and split differently.
REGRESSION = ("pol", "cadata", "sarcos", "song")
BINARY = ("banana", "thyroid", "twonorm", "ringnorm")
COUNTS = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
PAPER = (*REGRESSION, *BINARY, "airline", *COUNTS)
# Tables and figures have these protocols first, in this order, and then all others.
PROTOCOLS = ("paper", "released", "annealed")


def names(group: str) -> list[str]:
    """Return the names of the files in a config group such as `dataset`, without reading them.

    Our own files come first, then those in users' folders.
    """
    paths = _files(group, conf_dirs())
    return list(dict.fromkeys(path.stem for path in paths))


def entries(group: str) -> dict[str, dict[str, Any]]:
    """Return the content of every file of a config group by name, our own files first.

    Suites, which are lists of datasets in files of the group `dataset`, are left out.
    """
    contents = _entries(group, tuple(conf_dirs()))
    if group != "dataset":
        return contents
    return {name: content for name, content in contents.items() if not _is_suite(content)}


def suites() -> dict[str, list[str]]:
    """Return the datasets of every suite.

    A suite is a file in `conf/dataset` that has nothing but a list of defaults.
    """
    members: dict[str, list[str]] = {}
    for name, content in _entries("dataset", tuple(conf_dirs())).items():
        if _is_suite(content):
            members[name] = [str(member) for member in content["defaults"]]
    return members


def with_members(datasets: Iterable[str]) -> list[str]:
    """Return names of datasets, each suite replaced by its members, without repeats."""
    members_of = suites()
    expanded: list[str] = []
    for name in datasets:
        if name in members_of:
            expanded += with_members(members_of[name])  # suites may contain suites
        else:
            expanded.append(name)
    return list(dict.fromkeys(expanded))


def _is_suite(content: dict[str, Any]) -> bool:
    return content.keys() == {"defaults"}


@cache
def _entries(group: str, folders: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    return {path.stem: read_settings(path) for path in _files(group, folders)}


def _files(group: str, folders: Iterable[Path]) -> list[Path]:
    """Return the files of a group, folder by folder, sorted by name in each."""
    paths: list[Path] = []
    for folder in folders:
        paths += sorted((folder / group).glob("*.yaml"))
    return paths


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a YAML file.

    Raises:
        UserError: It is not YAML, or not a mapping.
    """
    # PyYAML may be installed without the parser in C, which is ten times as fast: for all files of
    # `conf/` it saves a quarter of a second.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or {}  # noqa: TID251
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:400]
        raise UserError(f"{path} is not a YAML file: {reason}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: write its settings as 'name: value', one per line")
    return content


def has_beta_to_select(method: str) -> bool:
    """Return whether the beta of a method is selected among several.

    The ELBO has the fixed value beta = 1, and FITC has no beta.
    """
    settings = entries("method").get(method, {})
    return settings.get("select", True)


def preset_and_protocol(protocol: str) -> tuple[str, str]:
    """Split the name of a protocol into a preset, '' if there is none, and the protocol itself.

    A preset changes the settings of a protocol, and its name is appended to the protocol's. So
    `released-quick` is split into "quick" and "released", and `quick` alone into "quick" and
    "paper".
    """
    base, _, preset = protocol.rpartition("-")
    if preset in names("preset") and protocol not in names("protocol"):
        return preset, base or "paper"
    return "", protocol


def is_user_dataset(dataset: str) -> bool:
    """Return whether a dataset is a user's own: it is not in our `conf/`, or it is `csv`."""
    settings = _entries("dataset", (conf_dir(),)).get(dataset)
    if settings is None:
        return True
    # Only the file of `csv` has an interpolation as its name; the setting csv.name replaces it.
    return "${" in str(settings.get("name"))


def stands_for(dataset: str) -> str | None:
    """Return the paper's dataset that a stand-in represents; None if `dataset` is no stand-in.

    Raises:
        UserError: the file of the stand-in names a dataset that the paper does not have.
    """
    name = entries("dataset").get(dataset, {}).get("stands_for")
    if name is not None and name not in PAPER:
        raise UserError(
            f"dataset '{dataset}': stands_for: {name} is none of the paper's datasets "
            f"({', '.join(PAPER)})"
        )
    return name


def family(dataset: str) -> str:
    """Return the name of the family that a dataset belongs to.

    `peds1_dir0`, `peds1_dir1` and `peds1_dir2` (directions of pedestrians) are the family `peds1`:
    a stand-in for one of them may replace any of the three. Any other dataset is a family of its
    own.
    """
    return dataset.split("_dir")[0] if dataset.startswith("peds1_dir") else dataset


def stand_ins(dataset: str) -> list[str]:
    """Return the names of the datasets that stand in for a dataset of the paper."""
    substitutes = []
    for name in entries("dataset"):
        represented = stands_for(name)
        if represented and family(represented) == family(dataset):
            substitutes.append(name)
    return substitutes


def dataset_label(dataset: str, stands_for: object) -> str:
    """Return the name of a dataset, followed by the dataset that it stands in for.

    Args:
        dataset: The name.
        stands_for: The paper's dataset; None or NaN if it is not a stand-in.
    """
    if not isinstance(stands_for, str):
        return dataset
    return f"{dataset} (stand-in for {family(stands_for)})"
