"""From overrides to a composed config, with every mistake in them turned into one sentence."""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import cast, get_args, get_origin

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from dlmexp.catalogue import datasets
from dlmexp.config import DatasetConfig, RunConfig, register
from dlmexp.data.spec import USER_TABLE, Task
from dlmexp.errors import UserError, nearest
from dlmexp.paths import conf_dirs
from dlmexp.plugins import import_plugins

DEFAULT = "experiment=default"
LAUNCHER_EXTRAS = {"submitit_slurm": "slurm", "joblib": "parallel"}


def with_default(overrides: Sequence[str]) -> list[str]:
    """The overrides, with the embedded default job where they select no data."""
    selects = any(_key(override) in ("dataset", "experiment") for override in overrides)
    return list(overrides) if selects else [DEFAULT, *overrides]


def compose(overrides: Sequence[str]) -> RunConfig:
    """The config of one job, from our conf folder and users' own (`dlmexp.paths.conf_dirs`); its plugins are imported.

    An experiment's parts get what the user typed, so that e.g. `seeds=[0]` holds for all of them.
    """
    composed = _composed(overrides)
    _check_table(composed)
    try:
        cfg = cast(RunConfig, OmegaConf.to_object(composed))
    except OmegaConfBaseException as error:
        raise UserError(sentence(error)) from error
    import_plugins(cfg.plugins)
    if cfg.name == "custom" and len(cfg.dataset) == 1:
        (dataset,) = cfg.dataset.values()
        if dataset.loader == "table":  # an own table: an experiment of its own, named after its data
            cfg.name = dataset.name
    typed = [override for override in overrides if _key(override) not in ("experiment", "parts")]
    cfg.parts = [[*part, *(o for o in typed if _key(o) not in {_key(p) for p in part})] for part in cfg.parts]
    return cfg


def plugins_in(overrides: Sequence[str]) -> list[str]:
    """The modules that `plugins=[...]` names on the command line: they are needed before anything is composed."""
    try:
        parsed = OverridesParser.create().parse_overrides([one for one in overrides if _key(one) == "plugins"])
    except HydraException as error:
        raise UserError(sentence(error)) from error
    values = [one.value() for one in parsed]
    if any(not isinstance(value, list) for value in values):
        raise UserError("plugins= takes a list of modules: plugins=[my_module]")
    return [str(name) for value in values if isinstance(value, list) for name in value]


def dataset_config(name: str) -> DatasetConfig:
    """The config of one dataset as its file has it."""
    merged = OmegaConf.merge(OmegaConf.structured(DatasetConfig), datasets()[name])
    return cast(DatasetConfig, OmegaConf.to_object(merged))


def check_table_is_used(overrides: Sequence[str], jobs: Sequence[RunConfig]) -> None:
    """Refuse settings of a user's own table that no job reads."""
    typed = next((word for word in overrides if _key(word).startswith("csv.")), None)
    if typed and not any(USER_TABLE in job.dataset or job.parts for job in jobs):
        raise UserError(f"{typed}: say dataset=csv as well, or your table is not read")


def _check_table(composed: DictConfig) -> None:
    """Check what the user says of an own table before anything is resolved: the other settings are derived from it."""
    if USER_TABLE in composed.dataset:
        if composed.csv.task not in get_args(Task):
            raise UserError(f"csv.task={composed.csv.task}: give one of {', '.join(get_args(Task))}")
        for what in ("path", "target"):
            if not composed.csv[what]:
                raise UserError(f"dataset=csv needs csv.{what}: csv.path=FILE csv.target=COLUMN csv.task=TASK")


def launcher(overrides: Sequence[str]) -> str:
    """The class that will launch the jobs of a multirun, once all its settings are known to be sound."""
    composed = _composed(overrides, hydra_too=True)
    HydraConfig.instance().set_config(composed)
    try:
        OmegaConf.to_container(composed.hydra.launcher, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).partition(chr(10))[0]}") from error
    return composed.hydra.launcher._target_


def _composed(overrides: Sequence[str], hydra_too: bool = False) -> DictConfig:
    ours, *others = conf_dirs()
    for folder in others:
        for own in folder.glob("*/*.yaml"):
            if (ours / own.relative_to(folder)).exists():
                raise UserError(f"{own}: we have a {own.parent.name} of that name, which is taken first; rename yours")
    register()
    try:
        with initialize_config_dir(str(ours), version_base="1.3"):
            return hydra_compose("run", overrides=list(overrides), return_hydra_config=hydra_too)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(sentence(error)) from error
    except YAMLError as error:
        raise UserError(f"can't read a YAML file: {_one_line(error)}") from error
    except ValueError as error:
        raise UserError(f"can't compose '{' '.join(overrides)}': {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a multirun: the product of all `key=a,b,c`."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(sentence(error)) from error
    jobs: list[list[str]] = [[]]
    for override, text in zip(parsed, overrides, strict=True):
        choices = [text]
        if override.is_sweep_override():
            choices = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        jobs = [[*job, choice] for job in jobs for choice in choices]
    return jobs


def parts(cfg: RunConfig) -> list[RunConfig]:
    """The selections an experiment consists of: its own, if it names data, and those of its `parts`."""
    own = [cfg] if cfg.dataset else []
    return own + [one for part in cfg.parts for one in parts(compose(part))]


def sentence(error: Exception) -> str:
    """What was wrong in one sentence, with the nearest valid names."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException):
        return f"can't read '{error.override}': write it as key=value, lists as key=[a,b]"
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
        return f"there is no setting '{found[1]}': {nearest(found[1], _settings(found[1]))}"
    if found := re.search(r"Error merging override (.+)", text):
        reason = str(error.__cause__ or "").partition("\n")[0]
        if "is not a ListConfig" in reason:
            key, _, value = found[1].partition("=")
            return f"can't use {found[1]}: write it as a list, {key}=[{value}]"
        return f"can't use {found[1]}: {reason or 'its type does not fit'}"
    return _one_line(error)


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
