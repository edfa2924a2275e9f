"""What `conf/` holds, by name: datasets, methods, experiments, betas. One reader for all who only look things up.

`dlmexp run` composes its config with Hydra from the same folders. Other commands need single entries as they stand in
their files, without defaults and overrides, and need them quickly.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dlmexp.config import BetaConfig, MethodTrainingConfig, TrainingConfig
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir, conf_dirs

REGRESSION = ("pol", "cadata", "sarcos", "song")
BINARY = ("banana", "thyroid", "twonorm", "ringnorm")
COUNTS = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
MAX_VALUES = 100_000  # of one file
PAPER = (*REGRESSION, *BINARY, "airline", *COUNTS)  # the datasets of the paper


def entries(group: str) -> dict[str, dict[str, Any]]:
    """Every file of a config group, ours first, then those of users' own folders; each as it stands."""
    return _entries(group, tuple(conf_dirs()))


@cache
def _entries(group: str, folders: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    return {path.stem: read_settings(path) for folder in folders for path in sorted((folder / group).glob("*.yaml"))}


def read_settings(path: Path) -> dict[str, Any]:
    """A file of settings; UserError for one that is none, or that would take all of the memory."""
    # libyaml's parser, where it was built in, is ten times as fast: a quarter of a second over all of `conf/`.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not a YAML file: {' '.join(str(error).split())[:400]}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: write its settings as 'name: value', one per line")
    _check_size(found, path)
    return found


def _check_size(found: Any, path: Path) -> None:
    """UserError where anchors that name one another stand for more than anyone would write."""
    left, values = MAX_VALUES, [found]
    while values:
        value = values.pop()
        left -= 1
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        if left - len(values) < 0:
            raise UserError(
                f"{path} has more than {MAX_VALUES} values, anchors (&, *) counted as often as they are used"
            )


def methods() -> dict[str, dict[str, Any]]:
    """Every method: name -> objective, variant, select."""
    return entries("method")


def selects(method: str) -> bool:
    """Whether a method has a beta to choose; the ELBO, at beta = 1, and FITC have none."""
    return methods().get(method, {}).get("select", True)


def datasets() -> dict[str, dict[str, Any]]:
    return entries("dataset")


def shipped_datasets() -> dict[str, dict[str, Any]]:
    """The datasets of our own `conf/`, without those of users' folders."""
    return _entries("dataset", (conf_dir(),))


def is_own(dataset: str) -> bool:
    """Whether a dataset is a user's own: none of our `conf/`, or a table that has not been named."""
    file = shipped_datasets().get(dataset)
    return file is None or "${" in str(file.get("name"))


def experiments() -> dict[str, dict[str, Any]]:
    return entries("experiment")


def stands_for(dataset: str) -> str | None:
    """The paper's dataset that `dataset` stands in for, or None if it is one of the paper's or a user's own."""
    found = datasets().get(dataset, {}).get("stands_for")
    if found is not None and found not in PAPER:
        raise UserError(
            f"dataset '{dataset}': stands_for: {found} is none of the paper's datasets ({', '.join(PAPER)})"
        )
    return found


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


def of_preset(protocol: str) -> tuple[str, str]:
    """The preset that a protocol's name ends with ('' for none) and the protocol that it makes smaller: `quick` and
    `released` for `released-quick`."""
    whole, _, preset = protocol.rpartition("-")
    return (preset, whole or "paper") if preset in presets() and protocol not in protocols() else ("", protocol)


def _preset_values(protocol: str, group: str) -> dict[str, Any]:
    """What the preset in a protocol's name says about `training` or `beta`."""
    preset, _ = of_preset(protocol)
    return entries("preset")[preset].get(group, {}) if preset else {}


def training(protocol: str) -> dict[str, TrainingConfig]:
    """How a protocol trains each kind of data; nothing for a protocol without a file here."""
    return _training(protocol, tuple(conf_dirs()))


@cache
def _training(protocol: str, folders: tuple[Path, ...]) -> dict[str, TrainingConfig]:
    found = {}
    smaller = _preset_values(protocol, "training")
    for kind, values in _entries("protocol", folders).get(of_preset(protocol)[1], {}).get("training", {}).items():
        by_method = {name: MethodTrainingConfig(**own) for name, own in values.get("by_method", {}).items()}
        found[kind] = TrainingConfig(**{**values, **smaller.get(kind, {}), "by_method": by_method})
    return found


def beta_rule(experiment: str, protocol: str = "paper") -> str:
    """The betas that an experiment selects from, in the words of `BetaConfig.rule`: its own, or the protocol's grid.
    '' where neither has a file here."""
    chosen = selected_in(experiment, "beta", None)
    whole = entries("protocol").get(of_preset(protocol)[1], {}).get("beta", {})
    group: Mapping[str, Any] = entries("beta")[chosen] if chosen else whole
    own = {**experiments().get(experiment, {}).get("beta", {}), **_preset_values(protocol, "beta")}
    return BetaConfig(**{**group, **own}).rule if group or own else ""


def beta_rule_of(group: str) -> str:
    """The betas of a file of `conf/beta`, in words."""
    return BetaConfig(**entries("beta")[group]).rule


def own_training(experiment: str, protocol: str = "paper") -> dict[str, dict[str, Any]]:
    """What an experiment changes in its protocol's training: kind of data -> setting -> value. Its limit of iterations
    gives way where it leaves no room for a decay of the protocol that it keeps: the stopping rule would never apply.
    What a preset says holds."""
    smaller = _preset_values(protocol, "training")
    found = {
        kind: {name: value for name, value in values.items() if name not in smaller.get(kind, {})}
        for kind, values in _own_training(experiment).items()
    }
    for kind, usual in training(protocol).items():
        own = found.get(kind, {})
        room = {name: own[name] for name in ("max_iterations", "decay", "window", "epochs") if name in own}
        if "max_iterations" in room and not replace(usual, **room).has_room:
            del own["max_iterations"]
    return found


def _own_training(experiment: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item in experiments().get(experiment, {}).get("defaults", ()):
        if isinstance(item, str):
            found |= _own_training(item)
    for kind, values in experiments().get(experiment, {}).get("training", {}).items():
        found[kind] = {**found.get(kind, {}), **values}
    return found


def limits_given_up(experiment: str, protocol: str) -> dict[str, int]:
    """Where an experiment's limit of iterations gives way to the protocol's: kind of data -> that of the protocol."""
    own, held = _own_training(experiment), own_training(experiment, protocol)
    gone = [kind for kind, values in own.items() if "max_iterations" in values.keys() - held[kind].keys()]
    return {kind: training(protocol)[kind].max_iterations for kind in gone}


def run_command(experiment: str, dataset: str) -> str:
    """What computes the cells of `experiment` on `dataset`, in as few words as `conf/` allows."""
    alone = selected_in(experiment, "dataset", []) == [dataset]
    return f"dlmexp run experiment={experiment}" + ("" if alone else f" dataset={dataset}")
