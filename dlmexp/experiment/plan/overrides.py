"""What people type after `dlmexp run`: short forms spelled out as Hydra takes them, names held
against the schema, and what Hydra raises as one sentence with the nearest names.

`beta=0.1`, `seeds=5`, `sizes=1000`, `lengthscale=2`, `training.lr=0.01`, `method=elbo,fitc`,
`csv.sep=;`, `hydra.launcher.partition=a,b`: an override with a single sensible meaning has that
meaning."""

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

GROUPS = (
    "beta",
    "dataset",
    "estimator",
    "experiment",
    "method",
    "preset",
    "protocol",
)  # of `conf/`
LIST_GROUPS = ("dataset", "estimator", "method")  # those that take lists of names
FREE_TEXT = (
    "csv.path",
    "csv.test",
    "csv.target",
    "csv.by",
    "csv.sep",
    "csv.name",
    "results",
    "data_root",
)
PATHS = ("csv.path", "csv.test", "results", "data_root")
MOST_SEEDS = 1000
SLURM = "hydra/launcher/submitit_slurm.yaml"
OTHER_WORDS = {  # what people type for a setting that has another name
    "n": "sizes=", "rows": "sizes=", "iterations": "training.max_iterations=", "steps": "training.max_iterations=",
    "learning_rate": "training.lr=", "inducing": "M=", "num_inducing": "M=", "optimizer": "protocol=",
    "gpu": "device=cuda", "cpu": "device=cpu", "output": "results=", "out": "results=", "csv": "dataset=csv csv.path=",
}  # fmt: skip


def settings(near: str = "", node: type = RunConfig, prefix: str = "") -> dict[str, Any]:
    """The types of all settings of the schema, by their dotted names. The keys of a dictionary are
    those of `near`; `training` without a kind of data stands for all kinds."""
    known: dict[str, Any] = {}
    for field in fields(node):
        name, kind = prefix + field.name, field.type
        known[name] = kind
        if get_origin(kind) is dict and near.startswith(f"{name}."):
            key, kind = near.split(".")[name.count(".") + 1], get_args(kind)[1]
            name = name if name == "training" and key not in KINDS else f"{name}.{key}"
            known[name] = kind
        if isinstance(kind, type) and is_dataclass(kind):
            known |= settings(near, kind, f"{name}.")
        if name.startswith("estimator."):
            known |= {
                f"{name}.{option}": Any
                for option in entries("estimator").get(name.split(".")[1], {})
            }
    return known


LISTS = {name for name, kind in settings().items() if "list[" in str(kind)} - {"parts"} | {
    "hydra.launcher.setup"
}
TOP, TRAINING = ({field.name for field in fields(node)} for node in (RunConfig, TrainingConfig))
INITIAL = ("lengthscale", "outputscale", "noise", "mean")  # hyperparameters


def spelled_out(overrides: Sequence[str], multirun: bool = False) -> list[str]:
    """The overrides in Hydra's words. In a multirun, values with commas between them stay the jobs'
    values."""
    general: list[str] = []  # settings for all kinds of data: before those for a single kind
    others: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", key):
            others.append(override)
            continue
        key, value = f"training.initial.{key}" if key in INITIAL else key, value.strip()
        key = f"training.{key}" if key in TRAINING - TOP else key
        if (
            key in PATHS and value.startswith("~") and "\0" not in value
        ):  # which no name of a user can have
            value = os.path.expanduser(value)  # as shells do for words that begin with it
        if key.startswith("training.") and key.split(".")[1] in TRAINING - {"by_method"}:
            name = key.removeprefix("training.")
            names = ("lr", "minibatch_lr") if name == "lr" else (name,)
            new = (
                "++" if "." in name else ""
            )  # what is in a dictionary, such as `initial.noise`, may be new there
            general += [f"{new}training.{kind}.{name}={value}" for kind in KINDS for name in names]
        elif ".initial." in key:
            others.append(f"++{key}={value}")  # names that the schema does not know
        elif key == "beta" and re.match(r"[\[\d.+-]", value):
            others += ["beta=list", f"beta.values={_listed(value, multirun)}"]
        elif key == "seeds":
            others.append(f"seeds={_seeds(value, multirun)}")
        elif key in LIST_GROUPS and "," in value and not value.startswith("[") and not multirun:
            others.append(f"{key}=[{value}]")
        elif (
            multirun
            and key.startswith("hydra.launcher.")
            and "," in value
            and re.match(r"[^'\"\[{(]+$", value)
        ):
            others.append(
                f"{key}='{value}'"
            )  # a single launcher for all jobs: no values of jobs, but `partition=a,b`
        elif key in FREE_TEXT and not (multirun and "," in value):
            quoted = value in ("", "null", "???") or value[0] in "'\""
            others.append(f"{key}={value if quoted else in_quotes(value)}")
        else:
            others.append(f"{key}={_listed(value, multirun) if key in LISTS else value}")
    return [*general, *others]


def _listed(value: str, multirun: bool) -> str:
    """The value as a list; `a,b` is a list unless it stands for the values of jobs."""
    if (
        value in ("null", "???", "")
        or value.startswith(("[", "${", "'[", '"['))
        or re.match(r"\w+\(", value)
    ):
        return value
    return ",".join(f"[{item}]" for item in value.split(",")) if multirun else f"[{value}]"


def _seeds(value: str, multirun: bool) -> str:
    """`5`: five seeds, from 0 on; or a list of seeds."""
    if not (value.isascii() and value.isdigit()):
        return _listed(value, multirun)
    if not 0 < (count := int(value[:10])) <= MOST_SEEDS:
        raise UserError(
            f"seeds={value[:40]}: seeds=5 means five seeds (at most {MOST_SEEDS}), seeds=[5] seed 5"
        )
    return f"[{','.join(map(str, range(count)))}]"


def parsed(overrides: Sequence[str]) -> list[Override]:
    """The overrides in Hydra's grammar."""
    with as_sentences(overrides):
        return OverridesParser.create().parse_overrides(list(overrides))


def unknown(key: str) -> str:
    """Why a setting can't be changed, and what to type in its place: there is none of that name, or
    the run has no such dataset, method, estimator or value."""
    known = list(dict.fromkeys([*settings(key), *GROUPS]))
    group, name, setting = [*key.split(".", 2), "", ""][:3]
    if key.startswith("hydra.launcher."):
        known = [f"hydra.launcher.{name}" for name in ConfigStore.instance().load(SLURM).node]
    if key in OTHER_WORDS:
        return f"there is no setting '{key}': write {OTHER_WORDS[key]}"
    if key not in known:
        of_data = [
            f"dataset.NAME.{field.name}=" for field in fields(DatasetConfig) if field.name == key
        ]
        return f"there is no setting '{key}': {nearest(key, of_data or known)}"
    selected = (
        f"{group}={name} selects it"
        if group in LIST_GROUPS and name
        else f"write +{key}=VALUE to add it"
    )
    own = (
        f"; for your own table write dataset.{USER_TABLE}.{setting}="
        if group == "dataset" and setting
        else ""
    )
    return f"'{key}' is not in this run: {selected}{own}"


@contextmanager
def as_sentences(overrides: Sequence[str]) -> Iterator[None]:
    """While entered, what Hydra raises about the overrides is raised as `UserError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_sentence(error)) from error
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        AssertionError,
        RecursionError,
    ) as error:
        # Hydra is not strict with all that its grammar allows.
        raise UserError(
            f"can't compose '{shortened(' '.join(overrides), 200)}': {shortened(error, 400)}"
        ) from error


def _sentence(error: Exception) -> str:
    """What Hydra says in one sentence, with the nearest valid names."""
    inner = error.__cause__ or error.__context__
    lines = "\n".join(str(each) for each in (error, inner) if each).splitlines()
    said = "; ".join(
        dict.fromkeys(
            line.strip(" .:") for line in lines if not re.search("^$|_type=|full_key:", line)
        )
    )
    if isinstance(error, OverrideParseException):
        typed = error.override.lstrip("+")
        return f"can't read '{typed}': write it as key=value, lists as key=[a,b], in quotes where it has spaces"
    if match := re.search(r"Could not (?:find|load) '((?:hydra/)?\w+)/([^']*)'", said):
        group, name = match.groups()
        if (group, name) == ("hydra/launcher", "submitit_slurm"):
            return "this launcher is an extra: pip install 'dlmexp[slurm]'"
        return f"there is no {group.removeprefix('hydra/')} '{name}': {nearest(name, names(group))}"
    if isinstance(inner, ConfigKeyError | ConfigAttributeError):
        typed = re.match(r"Could not override '(.+?)'", said)
        return (
            unknown(typed[1])
            if typed
            else f"{said.partition(':')[0]}: {unknown(str(inner.full_key))}"
        )
    return shortened(said.replace("Error merging override", "can't use"), 400)
