"""What Hydra and OmegaConf raise about overrides and settings, as one sentence with the nearest valid names."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.data.spec import USER_TABLE
from dlmexp.errors import UserError, nearest
from dlmexp.paths import conf_dirs

OTHER_WORDS = {  # what people type for a setting that has another name
    "n": "sizes=", "rows": "sizes=", "iterations": "training.max_iterations=", "steps": "training.max_iterations=",
    "learning_rate": "training.lr=", "inducing": "M=", "num_inducing": "M=", "optimizer": "protocol=",
    "gpu": "device=cuda", "cpu": "device=cpu", "output": "results=", "out": "results=", "csv": "dataset=csv csv.path=",
}  # fmt: skip
KINDS_OF_VALUES = {"Float": "a number", "Integer": "a whole number", "bool": "true or false"}
LAUNCHER_EXTRAS = {"submitit_slurm": "slurm"}


@contextmanager
def as_sentences(overrides: Sequence[str]) -> Iterator[None]:
    """While entered, what Hydra raises about the overrides is raised as `UserError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(sentence(error)) from error
    except (ValueError, TypeError, AttributeError, KeyError, AssertionError, RecursionError) as error:
        # Hydra is not strict with all that its grammar allows.
        raise UserError(f"can't compose '{_short(' '.join(overrides))}': {_one_line(error)}") from error


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _one_line(error: Exception) -> str:
    return _short("; ".join(line.strip() for line in str(error).splitlines() if line.strip()), 400)


def sentence(error: Exception) -> str:
    """What was wrong in one sentence, with the nearest valid names."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException):
        typed = error.override.lstrip("+")
        if re.match(r"[\w.]+=\{[^}]*$", typed):  # a shell took the spaces within for those between words
            return f"can't read '{typed}': put all of it in quotes, as in 'csv.arrays={{X: NAME, y: NAME}}'"
        return f"can't read '{typed}': write it as key=value, lists as key=[a,b]"
    if found := re.search(r"Could not (?:find|load) 'hydra/launcher/([^']+)'", text):
        if found[1] in LAUNCHER_EXTRAS:
            return f"this launcher is an extra: pip install 'dlmexp[{LAUNCHER_EXTRAS[found[1]]}]'"
        return f"there is no launcher '{found[1]}': {nearest(found[1], _choices('hydra/launcher'))}"
    if found := re.search(r"Could not (?:find|load) '(\w+)/([^']*)'", text):
        group, name = found.groups()
        return f"there is no {group} '{name}': {nearest(name, _choices(group))}"
    if found := re.search(r"Could not override 'estimator\.(\w+)\.(\w+)'", text):
        from dlmexp.estimators import ESTIMATORS

        name, option = found.groups()
        if name in ESTIMATORS:
            takes = ", ".join(ESTIMATORS[name].options()) or "no options"
            return f"estimator.{name}.{option}: {name} takes {takes}"
    if found := re.search(r"Could not override '([^']+)'", text):
        group, _, rest = found[1].partition(".")
        if group == "dataset" and "." in rest:
            name, _, setting = rest.partition(".")
            own = f"settings of your own table are dataset.{USER_TABLE}.{setting}=, whatever its name"
            return f"'{found[1]}': the run has no dataset '{name}', which dataset={name} selects; {own}"
        if _has(RunConfig, found[1].split(".")):
            return f"'{found[1]}' has no value yet that could be changed: write +{found[1]}=VALUE to add one"
        return f"there is no setting '{found[1]}': {_meant(found[1]) or nearest(found[1], _settings(found[1]))}"
    if found := re.search(r"Error merging override (.+)", text):
        reason = str(error.__cause__ or "").partition("\n")[0]
        if "is not a ListConfig" in reason:
            key, _, value = found[1].partition("=")
            return f"can't use {found[1]}: write it as a list, {key}=[{value}]"
        if unfit := re.search(r"^Value '(.*?)' .*(?:could not be converted to|is not a valid) (\w+)", reason):
            reason = f"'{unfit[1]}' is not {KINDS_OF_VALUES.get(unfit[2], unfit[2])}"
        return f"can't use {_short(found[1])}: {_short(reason or 'its type does not fit')}"
    return _one_line(error)


def check_added(overrides: Sequence[str]) -> None:
    """UserError for `+key=value` with a key that the schema does not have: Hydra adds it, and nothing would read it."""
    groups = {path.name for folder in conf_dirs() for path in folder.iterdir() if path.is_dir()}
    for typed in (one for one in overrides if one.startswith("+")):
        key = typed.lstrip("+").partition("=")[0]
        of_hydra = key.startswith("hydra.") or not re.fullmatch(r"[\w.]+", key)
        if not of_hydra and key not in groups and not _has(RunConfig, key.split(".")):
            raise UserError(f"there is no setting '{key}': {_meant(key) or nearest(key, _settings(key))}")


def _has(kind: Any, path: Sequence[str]) -> bool:
    """Whether a value of this type can have something at a path; what is neither a dataclass nor a dictionary of some
    is not looked into."""
    if not path:
        return True
    if get_origin(kind) is dict:
        return _has(get_args(kind)[1], path[1:])
    if isinstance(kind, type) and is_dataclass(kind):
        inner = {field.name: field.type for field in fields(kind)}
        return path[0] in inner and _has(inner[path[0]], path[1:])
    return True


def _meant(typed: str) -> str:
    """What to type instead, where it is no matter of spelling."""
    if typed in OTHER_WORDS:
        return f"write {OTHER_WORDS[typed]}"
    if typed in (field.name for field in fields(DatasetConfig)):
        return f"it belongs to a dataset; write dataset.NAME.{typed}="
    return ""


def _choices(group: str) -> list[str]:
    """The names of a config group: ours, and those of users' own folders."""
    return sorted({path.stem for folder in conf_dirs() for path in (folder / group).glob("*.yaml")})


def _settings(near: str, node: type = RunConfig, prefix: str = "") -> list[str]:
    """Every key of the schema, dotted; a dictionary's key is taken from `near`, the key that was not found."""
    if near.startswith("hydra.launcher."):
        return [
            f"hydra.launcher.{name}" for name in ConfigStore.instance().load("hydra/launcher/submitit_slurm.yaml").node
        ]
    names = []
    for field in fields(node):
        name = prefix + field.name
        names.append(name)
        inner = field.type
        if get_origin(inner) is dict and near.startswith(f"{name}."):
            name, inner = ".".join(near.split(".")[: name.count(".") + 2]), get_args(inner)[1]
        if isinstance(inner, type) and is_dataclass(inner):
            names += _settings(near, inner, f"{name}.")
    return names
