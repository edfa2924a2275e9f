"""Names in overrides against the schema, and what Hydra and OmegaConf raise as one sentence with the nearest names."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from dlmexp.catalogue import entries, names
from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.data.spec import USER_TABLE
from dlmexp.errors import UserError, nearest
from dlmexp.plan.shorthand import groups, settings

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
        raise UserError(_sentence(error)) from error
    except (ValueError, TypeError, AttributeError, KeyError, AssertionError, RecursionError) as error:
        # Hydra is not strict with all that its grammar allows.
        raise UserError(f"can't compose '{_short(' '.join(overrides))}': {_one_line(error)}") from error


def check_names(overrides: Sequence[Override]) -> None:
    """UserError for a key that is neither a config group nor a setting of the schema."""
    for override in overrides:
        key = override.key_or_group
        of_hydra = key.startswith(("hydra.", "hydra/")) or not re.fullmatch(r"[\w.]+", key)
        if not of_hydra and key not in groups() and not _has(RunConfig, key.split(".")):
            raise UserError(_unknown(key))


def _has(kind: Any, path: Sequence[str], keys: Sequence[str] | None = None) -> bool:
    """Whether a value of this type can have something at a path; what is neither a dataclass nor a dictionary of some
    is not looked into. `keys`: those that the dictionary may have."""
    if not path:
        return True
    if get_origin(kind) is dict:
        return (keys is None or path[0] in keys) and _has(get_args(kind)[1], path[1:])
    if isinstance(kind, type) and is_dataclass(kind):
        inner = {field.name: field for field in fields(kind)}
        field = inner.get(path[0])
        return field is not None and _has(field.type, path[1:], field.metadata.get("keys"))
    return True


def _unknown(key: str) -> str:
    """That there is no such setting, and what to type in its place."""
    if key in OTHER_WORDS:
        meant = f"write {OTHER_WORDS[key]}"
    elif key in (field.name for field in fields(DatasetConfig)):
        meant = f"it belongs to a dataset; write dataset.NAME.{key}="
    else:
        meant = nearest(key, list(dict.fromkeys([*settings(key), *groups()])))
    return f"there is no setting '{key}': {meant}"


def _sentence(error: Exception) -> str:
    """What was wrong in one sentence, with the nearest valid names."""
    text, inner = str(error).strip(), error.__cause__ or error.__context__
    if isinstance(error, OverrideParseException):
        typed = error.override.lstrip("+")
        if re.match(r"[\w.]+=\{[^}]*$", typed):  # a shell took the spaces within for those between words
            return f"can't read '{typed}': put all of it in quotes, as in 'csv.arrays={{X: NAME, y: NAME}}'"
        return f"can't read '{typed}': write it as key=value, lists as key=[a,b]"
    if match := re.search(r"Could not (?:find|load) '((?:hydra/)?\w+)/([^']*)'", text):
        group, name = match.groups()
        if group == "hydra/launcher" and name in LAUNCHER_EXTRAS:
            return f"this launcher is an extra: pip install 'dlmexp[{LAUNCHER_EXTRAS[name]}]'"
        return f"there is no {group.removeprefix('hydra/')} '{name}': {nearest(name, names(group))}"
    if match := re.search(r"Could not override '([\w.]+)'", text):
        return _not_there(match[1])
    if match := re.search(r"Error merging override (.+)", text):
        return f"can't use {_short(match[1])}: {_reason(inner, *match[1].split('=', 1))}"
    if (match := re.match(r"In '([^']+)'", text)) and isinstance(inner, OmegaConfBaseException):
        known = not isinstance(inner, ConfigKeyError | ConfigAttributeError)
        reason = f"{inner.full_key}: {_reason(inner)}" if known else _unknown(str(inner.full_key))
        return f"{match[1]}.yaml: {reason}"
    return _one_line(error)


def _reason(error: BaseException | None, key: str = "key", value: str = "a,b") -> str:
    """Why OmegaConf does not take a value."""
    reason = str(error or "its type does not fit").partition("\n")[0]
    if "is not a ListConfig" in reason:
        return f"write it as a list, {key}=[{value}]"
    if unfit := re.search(r"^Value '(.*?)' .*(?:could not be converted to|is not a valid) (\w+)", reason):
        return f"'{unfit[1]}' is not {KINDS_OF_VALUES.get(unfit[2], unfit[2])}"
    return _short(reason)


def _not_there(key: str) -> str:
    """Why a setting of the schema can't be changed: the run has no such dataset, method, estimator or value."""
    group, _, rest = key.partition(".")
    name, _, setting = rest.partition(".")
    if key.startswith("hydra.launcher."):
        known = ConfigStore.instance().load("hydra/launcher/submitit_slurm.yaml").node
        return f"there is no setting '{key}': {nearest(key, [f'hydra.launcher.{name}' for name in known])}"
    if group not in ("dataset", "method", "estimator") or not setting:
        return f"'{key}' has no value yet that could be changed: write +{key}=VALUE to add one"
    options = entries("estimator").get(name, {})
    if group == "estimator" and name in names("estimator") and setting not in options:
        return f"{key}: {name} takes {', '.join(options) or 'no options'}"
    own = f"; settings of your own table are dataset.{USER_TABLE}.{setting}=, whatever its name"
    return f"'{key}': the run has no {group} '{name}'{own if group == 'dataset' else ''}; {group}={name} selects it"


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _one_line(error: Exception) -> str:
    return _short("; ".join(line.strip() for line in str(error).splitlines() if line.strip()), 400)
