"""From overrides to a composed config, with every mistake in them turned into one sentence."""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dlmexp.config import RunConfig, register
from dlmexp.errors import UserError, nearest
from dlmexp.paths import conf_dir

DEFAULT = "experiment=default"


def with_default(overrides: Sequence[str]) -> list[str]:
    """The overrides, with the embedded default job where they select no data."""
    selects = any(o.lstrip("+").split("=")[0] in ("dataset", "experiment") for o in overrides)
    return list(overrides) if selects else [DEFAULT, *overrides]


def compose(overrides: Sequence[str], config_dirs: Sequence[str] = ()) -> RunConfig:
    """The config of one job. `config_dirs` are a user's own `conf` folders, searched beside ours."""
    for folder in config_dirs:
        if not Path(folder).is_dir():
            raise UserError(f"--config-dir {folder}: there is no such folder")
    register()
    GlobalHydra.instance().clear()
    searchpath = [f"hydra.searchpath=[{','.join(str(Path(d).resolve()) for d in config_dirs)}]"] if config_dirs else []
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = hydra_compose("run", overrides=[*overrides, *searchpath])
            OmegaConf.resolve(composed)
            cfg = OmegaConf.to_object(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(sentence(error)) from error
    return cast(RunConfig, cfg)


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


def parts(cfg: RunConfig, config_dirs: Sequence[str] = ()) -> list[RunConfig]:
    """The selections an experiment consists of: its own, if it names data, and its `parts`.

    Parts take everything that is not about the selection itself (where and how to run) from the experiment.
    """
    found = [cfg] if cfg.dataset else []
    for overrides in cfg.parts:
        part = compose(list(overrides), config_dirs)
        if "seeds" not in {o.split("=")[0] for o in overrides}:
            part.seeds = cfg.seeds
        for key in ("name", "device", "dtype", "results", "data_root", "batch_cells", "checkpoint_seconds"):
            setattr(part, key, getattr(cfg, key))
        found.append(part)
    return found


def sentence(error: Exception) -> str:
    """What was wrong in one sentence, with the nearest valid names."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException):
        return f"can't read '{error.override}': write it as key=value, lists as key=[a,b]"
    if found := re.search(r"Could not (?:find|load) '(\w+)/([^']+)'", text):
        group, name = found.groups()
        return f"there is no {group} '{name}': {nearest(name, _choices(group))}"
    if found := re.search(r"Could not override '([^']+)'", text):
        return f"there is no setting '{found[1]}': {nearest(found[1], _settings())}"
    if found := re.search(r"full_key: (\S+)", text):
        reason = text.splitlines()[0] if "not in" not in text.splitlines()[0] else "there is no such setting"
        return f"{found[1]}: {reason}; {nearest(found[1], _settings())}"
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _choices(group: str) -> list[str]:
    """The names of a config group that we ship."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def _settings(node: type = RunConfig, prefix: str = "") -> list[str]:
    """Every key of the schema, dotted."""
    names = []
    for field in fields(node):
        names.append(prefix + field.name)
        if isinstance(field.type, type) and is_dataclass(field.type):
            names += _settings(field.type, f"{prefix}{field.name}.")
    return names
