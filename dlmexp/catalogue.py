"""What `conf/` holds, by name: datasets, methods, experiments, betas. One reader for all who only look things up.

`dlmexp run` composes its config with Hydra from the same folders. Other commands need single entries as they stand in
their files, without defaults and overrides, and need them quickly.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dlmexp.config import BetaConfig
from dlmexp.paths import conf_dir, conf_dirs

REGRESSION = ("pol", "cadata", "sarcos", "song")
BINARY = ("banana", "thyroid", "twonorm", "ringnorm")
COUNTS = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
PAPER = (*REGRESSION, *BINARY, "airline", *COUNTS)  # the datasets of the paper


def entries(group: str) -> dict[str, dict[str, Any]]:
    """Every file of a config group, ours first, then those of users' own folders; each as it stands."""
    return _entries(group, tuple(conf_dirs()))


@cache
def _entries(group: str, folders: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    return {path.stem: _load(path) for folder in folders for path in sorted((folder / group).glob("*.yaml"))}


def _load(path: Path) -> dict[str, Any]:
    # libyaml's parser, where it was built in, is ten times as fast: a quarter of a second over all of `conf/`.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or {}


def methods() -> dict[str, dict[str, Any]]:
    """Every method: name -> objective, variant, select."""
    return entries("method")


def datasets() -> dict[str, dict[str, Any]]:
    return entries("dataset")


def shipped_datasets() -> dict[str, dict[str, Any]]:
    """The datasets of our own `conf/`, without those of users' folders."""
    return _entries("dataset", (conf_dir(),))


def experiments() -> dict[str, dict[str, Any]]:
    return entries("experiment")


def stands_for(dataset: str) -> str | None:
    """The paper's dataset that `dataset` stands in for, or None if it is one of the paper's or a user's own."""
    return datasets().get(dataset, {}).get("stands_for")


def family(dataset: str) -> str:
    """`peds1` for each of Peds1's directions (a stand-in for one serves for all), else the dataset itself."""
    return dataset.split("_dir")[0] if dataset.startswith("peds1_dir") else dataset


def stand_ins(dataset: str) -> list[str]:
    """The datasets that stand in for the paper's `dataset`, under their own names."""
    return [name for name in datasets() if (of := stands_for(name)) and family(of) == family(dataset)]


def labelled(dataset: str) -> str:
    """The dataset's name, with what it stands in for."""
    of = stands_for(dataset)
    return f"{dataset} (stand-in for {family(of)})" if of else dataset


def selected_in(experiment: str, group: str, default: Any) -> Any:
    """What an experiment selects of a config group (`dataset`, `beta`), itself or through the experiment it extends."""
    found = default
    for item in experiments().get(experiment, {}).get("defaults", ()):
        found = selected_in(item, group, found) if isinstance(item, str) else item.get(f"override /{group}", found)
    return found


def repetitions(experiment: str) -> int:
    """How many seeds an experiment asks for; five unless its file says otherwise."""
    return len(experiments().get(experiment, {}).get("seeds", range(5)))


def presets() -> list[str]:
    """The names of all presets."""
    return list(entries("preset"))


def protocols() -> list[str]:
    """The names of all protocols, ours first."""
    return list(entries("protocol"))


def beta_rule(experiment: str, protocol: str = "paper") -> str:
    """The betas that an experiment selects from, in the words of `BetaConfig.rule`: its own, or the protocol's grid."""
    chosen = selected_in(experiment, "beta", None)
    group: Mapping[str, Any] = entries("beta")[chosen] if chosen else entries("protocol")[protocol]["beta"]
    return BetaConfig(**{**group, **experiments().get(experiment, {}).get("beta", {})}).rule


def run_command(experiment: str, dataset: str) -> str:
    """What computes the cells of `experiment` on `dataset`, in as few words as `conf/` allows."""
    alone = selected_in(experiment, "dataset", []) == [dataset]
    return f"dlmexp run experiment={experiment}" + ("" if alone else f" dataset={dataset}")
