"""What `conf/` holds, by name: datasets, methods, experiments, protocols. For all who only look
something up.

`dlmexp run` composes its config with Hydra from the same folders. Here single files are read as
they stand, without defaults and overrides, and quickly."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir, conf_dirs

REGRESSION = ("pol", "cadata", "sarcos", "song")
BINARY = ("banana", "thyroid", "twonorm", "ringnorm")
COUNTS = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
PAPER = (*REGRESSION, *BINARY, "airline", *COUNTS)  # the datasets of the paper
PROTOCOLS = ("paper", "released", "annealed")  # in the order in which they are shown, before others


def names(group: str) -> list[str]:
    """The names in a config group such as `dataset`, ours first, then those of users' own folders;
    no file is read."""
    paths = (path for folder in conf_dirs() for path in sorted((folder / group).glob("*.yaml")))
    return list(dict.fromkeys(path.stem for path in paths))


def entries(group: str) -> dict[str, dict[str, Any]]:
    """Every file of a config group, ours first, then those of users' own folders; each as it
    stands."""
    return _entries(group, tuple(conf_dirs()))


@cache
def _entries(group: str, folders: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    return {
        path.stem: read_settings(path)
        for folder in folders
        for path in sorted((folder / group).glob("*.yaml"))
    }


def read_settings(path: Path) -> dict[str, Any]:
    """A file of settings; UserError for one that is none."""
    # libyaml's parser, where it was built in, is ten times as fast: a quarter of a second over all
    # of `conf/`.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or {}  # noqa: TID251
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{path} is not a YAML file: {' '.join(str(error).split())[:400]}"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: write its settings as 'name: value', one per line")
    return content


def selects(method: str) -> bool:
    """Whether a method has a beta to choose; the ELBO, at beta = 1, and FITC have none."""
    return entries("method").get(method, {}).get("select", True)


def of_preset(protocol: str) -> tuple[str, str]:
    """The preset that a protocol's name ends with ('' for none) and the protocol that it makes
    smaller: `quick` and `released` for `released-quick`."""
    whole, _, preset = protocol.rpartition("-")
    made_smaller = preset in names("preset") and protocol not in names("protocol")
    return (preset, whole or "paper") if made_smaller else ("", protocol)


def is_own(dataset: str) -> bool:
    """Whether a dataset is a user's own: none of our `conf/`, or a table that has not been
    named."""
    file = _entries("dataset", (conf_dir(),)).get(dataset)
    return file is None or "${" in str(file.get("name"))


def stands_for(dataset: str) -> str | None:
    """The paper's dataset that `dataset` stands in for, or None if it is one of the paper's or a
    user's own."""
    name = entries("dataset").get(dataset, {}).get("stands_for")
    if name is not None and name not in PAPER:
        raise UserError(
            f"dataset '{dataset}': stands_for: {name} is none of the paper's datasets ({', '.join(PAPER)})"
        )
    return name


def family(dataset: str) -> str:
    """`peds1` for each of Peds1's directions (a stand-in for one serves for all), else the dataset
    itself."""
    return dataset.split("_dir")[0] if dataset.startswith("peds1_dir") else dataset


def stand_ins(dataset: str) -> list[str]:
    """The datasets that stand in for the paper's `dataset`, under their own names."""
    return [
        name
        for name in entries("dataset")
        if (of := stands_for(name)) and family(of) == family(dataset)
    ]


def labelled(dataset: str, stands_for: object) -> str:
    """The dataset's name, with what it stands in for (None or NaN: nothing)."""
    return (
        f"{dataset} (stand-in for {family(stands_for)})" if isinstance(stands_for, str) else dataset
    )
