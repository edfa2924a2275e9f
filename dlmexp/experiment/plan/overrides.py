"""Expand shorthand in overrides to Hydra's grammar, and report Hydra's errors in one line.

Users may type what Hydra's grammar would refuse or read otherwise, if it can mean only one thing:
`beta=0.1`, `seeds=5`, `sizes=1000`, `lengthscale=2`, `training.lr=0.01`, `method=elbo,fitc`,
`csv.sep=;`, `hydra.launcher.partition=a,b`. Names are checked against the schema.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from dlmexp.common.catalogue import entries, names
from dlmexp.common.errors import UserError, nearest, shortened
from dlmexp.common.literals import in_quotes
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import USER_TABLE
from dlmexp.experiment.config import KINDS, RunConfig, TrainingConfig

# The config groups, which are the folders of `conf`.
GROUPS = ("beta", "dataset", "estimator", "experiment", "method", "preset", "protocol")
LIST_GROUPS = ("dataset", "estimator", "method")  # the groups that take lists of names
PATH_SETTINGS = ("csv.path", "csv.test", "csv.splits", "results", "data_root")
TEXT_SETTINGS = (*PATH_SETTINGS, "csv.target", "csv.by", "csv.sep", "csv.name")
READ_HYDRA_GROUPS = ("launcher", "sweeper", "callbacks")  # Hydra's own settings that a run reads
MAX_SEEDS = 1000
MAX_SHOWN_DIGITS = 40  # characters of a typed number in a message
MAX_MESSAGE = 400  # characters of an error of Hydra in a message
MAX_SHOWN_OVERRIDES = 200  # characters of the overrides in a message
SLURM_LAUNCHER = "hydra/launcher/submitit_slurm.yaml"
NO_VALUE = ("null", "???", "")  # texts that Hydra or OmegaConf read as no value
# Names that users of other programs may type, and what they should type here.
SYNONYMS = {
    "n": "sizes=",
    "rows": "sizes=",
    "iterations": "training.max_iterations=",
    "steps": "training.max_iterations=",
    "learning_rate": "training.lr=",
    "inducing": "M=",
    "num_inducing": "M=",
    "gpu": "device=cuda",
    "cpu": "device=cpu",
    "output": "results=",
    "out": "results=",
    "csv": "dataset=csv csv.path=",
}


def setting_types(typed_name: str = "", node: type = RunConfig, prefix: str = "") -> dict[str, Any]:
    """Return the types of all settings of the schema by their dotted names.

    The schema does not know the keys of dictionaries, such as the names of datasets. They are taken
    from `typed_name`: with `dataset.pol.M`, the settings of `dataset.pol` are listed.

    Args:
        typed_name: The dotted name that a user typed.
        node: The dataclass whose settings are listed.
        prefix: The dotted name of `node`, with a dot at its end.
    """
    types: dict[str, Any] = {}
    for field in fields(node):
        name = prefix + field.name
        types[name] = field.type
        section = name
        section_type: Any = field.type
        if get_origin(field.type) is dict and typed_name.startswith(f"{name}."):
            section, section_type = _entry_of_dictionary(name, field.type, typed_name)
            types[section] = section_type
        if isinstance(section_type, type) and is_dataclass(section_type):
            types |= setting_types(typed_name, section_type, f"{section}.")
        if section.startswith("estimator."):
            types |= _options_of_estimator(section)
    return types


def _entry_of_dictionary(name: str, dictionary_type: Any, typed_name: str) -> tuple[str, Any]:
    """Return the dotted name and the type of the entry that a typed name leads to.

    For the dictionary `dataset` and the typed name `dataset.pol.M`, they are `dataset.pol` and
    `DatasetConfig`.
    """
    _key_type, value_type = get_args(dictionary_type)
    key, _, _ = typed_name.removeprefix(f"{name}.").partition(".")
    # The keys of `training` are kinds of data. `training.lr` has no key: it is a setting for all
    # kinds, and `training` lists such settings as if it were a kind.
    if name == "training" and key not in KINDS:
        return name, value_type
    return f"{name}.{key}", value_type


def _options_of_estimator(name: str) -> dict[str, Any]:
    """Return the options of `estimator.NAME` by their dotted names."""
    _, estimator = name.split(".")
    options = entries("estimator").get(estimator, {})
    return {f"{name}.{option}": Any for option in options}


def _list_settings() -> set[str]:
    """Return the dotted names of settings that are lists of single values."""
    types = setting_types()
    lists = {name for name, type_ in types.items() if "list[" in str(type_)}
    lists.remove("parts")  # a list of lists
    lists.add("hydra.launcher.setup")
    return lists


LIST_SETTINGS = _list_settings()
# Hyperparameters whose initial values may be typed without `training.initial.`
HYPERPARAMETERS = (
    "lengthscale",
    "outputscale",
    "noise",
    "mean",
    "category_lengthscale",
    "linear_variance",
)
# Training settings may be typed without `training.` unless a setting of the run has the same name.
TRAINING_SETTINGS = {field.name for field in fields(TrainingConfig)}
RUN_SETTINGS = {field.name for field in fields(RunConfig)}


def expand_shorthand(overrides: Sequence[str], multirun: bool = False) -> list[str]:
    """Return the overrides in Hydra's grammar.

    Args:
        overrides: The words that a user typed.
        multirun: Whether `a,b` stands for the values of two jobs, and not for a list.

    Raises:
        UserError: `seeds` is 0, or a larger number than MAX_SEEDS.
    """
    expanded: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        # Many programs with Hydra need `+group=name`. Here it means the same as `group=name`.
        if key.removeprefix("+") in GROUPS:
            key = key.removeprefix("+")
            override = override.removeprefix("+")
        is_assignment = equals and re.fullmatch(r"[A-Za-z_][\w.]*", key)
        if not is_assignment:
            expanded.append(override)
            continue
        key = _full_name(key)
        value = _without_tilde(key, value.strip())
        expanded += _in_grammar_of_hydra(key, value, multirun)
    return expanded


def _full_name(key: str) -> str:
    """Return the dotted name of a setting whose section the user may have left out."""
    if key in HYPERPARAMETERS:
        return f"training.initial.{key}"
    if key in TRAINING_SETTINGS - RUN_SETTINGS:
        return f"training.{key}"
    return key


def _without_tilde(key: str, value: str) -> str:
    """Return the value of a path with the home folder in place of `~`.

    Shells replace `~` only at the beginning of a word, and not behind `key=`.
    """
    # For a path with NUL in it, `expanduser` would raise. It is refused later.
    if key in PATH_SETTINGS and value.startswith("~") and "\0" not in value:
        return os.path.expanduser(value)
    return value


def _in_grammar_of_hydra(key: str, value: str, multirun: bool) -> list[str]:
    """Return an override, typed with its full name, in Hydra's grammar."""
    # The schema does not know the keys of dictionaries: `++` adds or replaces them.
    is_in_dictionary = re.search(
        r"\.initial\.|^training\.estimator_lr\.|^method\.[^.]+\.options\.", key
    )
    if is_in_dictionary:
        return [f"++{key}={value}"]
    is_beta_of_numbers = key == "beta" and re.match(r"[\[\d.+-]", value)
    if is_beta_of_numbers:
        return ["beta=list", f"beta.values={_as_list(value, multirun)}"]
    if key == "seeds":
        return [f"seeds={_seeds(value, multirun)}"]
    return [f"{key}={_hydra_value(key, value, multirun)}"]


def _hydra_value(key: str, value: str, multirun: bool) -> str:
    """Return the value of a setting in Hydra's grammar."""
    may_be_values_of_jobs = multirun and "," in value
    if may_be_values_of_jobs and key.startswith("hydra.launcher."):
        # All jobs have the same launcher: `partition=a,b` is one text, not the values of two jobs.
        is_plain = re.match(r"[^'\"\[{(]+$", value)
        if is_plain:
            return f"'{value}'"
    if key in TEXT_SETTINGS and not may_be_values_of_jobs:
        return _as_text(value)
    if key in LIST_GROUPS and not multirun:
        return _as_names(value)
    return _as_list(value, multirun) if key in LIST_SETTINGS else value


def _as_names(value: str) -> str:
    """Return names with commas between them as a list; a single name stays as it is."""
    is_name_or_list = "," not in value or value.startswith("[")
    return value if is_name_or_list else f"[{value}]"


def _as_text(value: str) -> str:
    """Return a text in quotes, unless it has them already, or stands for no value (`NO_VALUE`)."""
    if value in NO_VALUE or value[0] in "'\"":
        return value
    return in_quotes(value)


def _as_list(value: str, multirun: bool) -> str:
    """Return a value as a list.

    `a,b` is one list `[a,b]`, or in a multirun the lists of two jobs, `[a],[b]`.
    """
    # A list, an interpolation of another setting, or a list in quotes.
    is_list = value.startswith(("[", "${", "'[", '"['))
    is_function = re.match(r"\w+\(", value)  # such as range(1,5)
    if value in NO_VALUE or is_list or is_function:
        return value
    if not multirun:
        return f"[{value}]"
    lists_of_jobs = [f"[{item}]" for item in value.split(",")]
    return ",".join(lists_of_jobs)


def _seeds(value: str, multirun: bool) -> str:
    """Return a list of seeds; `5` stands for [0,1,2,3,4]."""
    if not (value.isascii() and value.isdigit()):
        return _as_list(value, multirun)
    count = int(value[:10])  # enough digits to see that it is too large
    if not 0 < count <= MAX_SEEDS:
        shown = value[:MAX_SHOWN_DIGITS]
        raise UserError(
            f"seeds={shown}: seeds=5 means five seeds (at most {MAX_SEEDS}), and seeds=[5] means "
            "the single seed 5"
        )
    return f"[{','.join(map(str, range(count)))}]"


def check_hydra_words(overrides: Sequence[str], multirun: bool) -> None:
    """Refuse settings of Hydra that a run does not read.

    Raises:
        UserError: An override is of such a setting; the message says what to type in its place.
    """
    for text in overrides:
        key = text.lstrip("+~").partition("=")[0]
        if not key.startswith(("hydra/", "hydra.")):
            continue
        _, group, *_ = re.split(r"[./]", key)  # of hydra/GROUP or hydra.GROUP.NAME
        if group in ("run", "sweep"):
            raise UserError(f"{text}: name the folder that a run writes to by results=DIR")
        if group not in READ_HYDRA_GROUPS:
            known = ", ".join(f"hydra.{name}" for name in READ_HYDRA_GROUPS)
            raise UserError(f"{text}: of Hydra's own settings, a run reads only {known}")
        if group != "callbacks" and not multirun:
            raise UserError(f"hydra/{group}= is only for the jobs of a multirun: add -m")


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Return the overrides as Hydra parses them.

    Raises:
        UserError: Hydra cannot parse one of them.
    """
    with hydra_errors_as_user_errors(overrides):
        return OverridesParser.create().parse_overrides(list(overrides))


def unknown_setting_message(key: str) -> str:
    """Return the message about an override whose key is not in the config.

    Either there is no setting of that name; the message then says what to type in its place. Or it
    is a setting of a dataset, method, estimator or dictionary that the run does not have.
    """
    if key in SYNONYMS:
        return f"there is no setting '{key}': write {SYNONYMS[key]}"
    valid = _valid_keys(key)
    if key not in valid:
        if key in DatasetConfig.__dataclass_fields__:
            valid = [f"dataset.NAME.{key}="]
        return f"there is no setting '{key}': {nearest(key, valid)}"
    # The key is a valid one, such as dataset.NAME.SETTING.
    group, _, path_in_group = key.partition(".")
    name, _, setting = path_in_group.partition(".")
    advice = f"write +{key}=VALUE to add it"
    if group in LIST_GROUPS and name:
        advice = f"{group}={name} selects it"
    if group == "dataset" and setting:
        advice += f"; for your own table write dataset.{USER_TABLE}.{setting}="
    return f"'{key}' is not in this run: {advice}"


def _valid_keys(key: str) -> list[str]:
    """Return all valid keys, with the settings of the dataset or method that `key` names."""
    if key.startswith("hydra.launcher."):
        node = ConfigStore.instance().load(SLURM_LAUNCHER).node
        return [f"hydra.launcher.{name}" for name in node]
    return list(dict.fromkeys([*setting_types(key), *GROUPS]))


@contextmanager
def hydra_errors_as_user_errors(overrides: Sequence[str]) -> Iterator[None]:
    """Turn exceptions of Hydra about the overrides into `UserError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(message_of_hydra(error)) from error
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        AssertionError,
        RecursionError,
    ) as error:
        # Hydra fails in these ways for some overrides that its grammar allows.
        shown = shortened(" ".join(overrides), MAX_SHOWN_OVERRIDES)
        reason = shortened(error, MAX_MESSAGE)
        raise UserError(f"can't compose '{shown}': {reason}") from error


def message_of_hydra(error: Exception) -> str:
    """Return the message of an error of Hydra in one line, with the nearest valid names."""
    if isinstance(error, OverrideParseException):
        typed = error.override.lstrip("+")
        advice = "write it as key=value, lists as key=[a,b], in quotes where it has spaces"
        return f"can't read '{typed}': {advice}"
    inner = error.__cause__ or error.__context__
    text = _joined_lines(error, inner)
    # The override was `++method.NAME.options.NAME=` for a method that the run does not have.
    if option := re.search(r"\+\+(method\.[^=]+)=.*not a subclass of MethodConfig", text):
        return unknown_setting_message(option[1])
    if file := re.search(r"Could not (?:find|load) '((?:hydra/)?\w+)/([^']*)'", text):
        group, name = file.groups()
        return _missing_file_message(group, name)
    if isinstance(inner, ConfigKeyError | ConfigAttributeError):
        override = re.match(r"Could not override '(.+?)'", text)
        if override:
            return unknown_setting_message(override[1])
        # The text is "In 'dataset/pol': ConfigKeyError raised while composing config; Key ...".
        place, _, _ = text.partition(":")
        return f"{place}: {unknown_setting_message(str(inner.full_key))}"
    return shortened(text.replace("Error merging override", "can't use"), MAX_MESSAGE)


def _joined_lines(*errors: BaseException | None) -> str:
    """Return the distinct lines of errors as one, without OmegaConf's internal details."""
    lines: dict[str, None] = {}  # as an ordered set
    for error in errors:
        text = str(error) if error else ""
        for line in text.splitlines():
            if line and not re.search("_type=|full_key:", line):
                lines[line.strip(" .:")] = None
    return "; ".join(lines)


def _missing_file_message(group: str, name: str) -> str:
    """Return the message about a name without a file in a config group."""
    # Our launchers slurm and slurm_gpu build on this file, which a package brings.
    if (group, name) == ("hydra/launcher", "submitit_slurm"):
        return "this launcher is an extra: pip install 'dlmexp[slurm]'"
    if _is_registered(group, name):
        return (
            f"{group}={name}: it is registered, but there is no file {group}/{name}.yaml in a conf "
            "folder, which says how it is used (docs/PLUGINS.md)"
        )
    return f"there is no {group.removeprefix('hydra/')} '{name}': {nearest(name, names(group))}"


def _is_registered(group: str, name: str) -> bool:
    """Return whether a plugin has registered an estimator, or the objective of a method."""
    # The registries are imported here, since they load torch, which takes a while.
    if group == "estimator":
        from dlmexp.core.estimators import ESTIMATORS

        return name in ESTIMATORS
    if group == "method":
        from dlmexp.core.objectives import OBJECTIVES

        return name in OBJECTIVES
    return False
