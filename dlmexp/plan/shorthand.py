"""What people type, spelled out as Hydra takes it: an override with a single sensible meaning has that meaning.

`beta=0.1`, `seeds=5`, `seeds=0-4`, `sizes=1000`, `lengthscale=2`, `training.lr=0.01`, `method=elbo,fitc`, `csv.sep=;`,
`hydra.launcher.partition=a,b`.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass
from typing import get_args, get_origin

from dlmexp.config import KINDS, InitConfig, RunConfig, TrainingConfig
from dlmexp.data.options import in_quotes
from dlmexp.errors import UserError
from dlmexp.paths import conf_dirs

GROUPS = ("dataset", "method", "estimator")  # that take lists of names
FREE_TEXT = ("csv.path", "csv.test", "csv.target", "csv.by", "csv.sep", "csv.name", "results", "data_root")
PATHS = ("csv.path", "csv.test", "results", "data_root")
MOST_SEEDS = 1000
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
NUMBERS = re.compile(rf"\[?\s*{NUMBER}(\s*,\s*{NUMBER})*\s*\]?|\[\s*\]")
SEED = re.compile(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?")


def groups() -> list[str]:
    """The config groups: `dataset`, `method`, ..."""
    return sorted({path.name for folder in conf_dirs() for path in folder.iterdir() if path.is_dir()} - {"hydra"})


def settings(near: str = "", node: type = RunConfig, prefix: str = "") -> dict[str, Field]:
    """Every setting of the schema, by its dotted name. A dictionary has the key that `near` has, a key to compare with;
    `training` without a kind of data stands for all kinds."""
    known: dict[str, Field] = {}
    for field in fields(node):
        name, inner, keys = prefix + field.name, field.type, field.metadata.get("keys")
        known[name] = field
        if get_origin(inner) is dict and near.startswith(f"{name}."):
            key, inner = near.split(".")[name.count(".") + 1], get_args(inner)[1]
            name = name if keys and key not in keys else f"{name}.{key}"
        if isinstance(inner, type) and is_dataclass(inner):
            known |= settings(near, inner, f"{name}.")
    return known


LISTS = {
    name
    for name, field in settings().items()
    if name != "parts" and list in (get_origin(kind) for kind in (field.type, *get_args(field.type)))
}
TOP, TRAINING, INIT = ({field.name for field in fields(node)} for node in (RunConfig, TrainingConfig, InitConfig))


def spelled_out(overrides: Sequence[str], multirun: bool = False) -> list[str]:
    """The overrides in Hydra's words. In a multirun, values with commas between them stay the jobs' values."""
    general: list[str] = []  # settings for all kinds of data: before those for a single kind
    others: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", key):
            others.append(override)
            continue
        key, value = _renamed(key), value.strip()
        if key in PATHS and value.startswith("~"):
            value = os.path.expanduser(value)  # as shells do for words that begin with it
        if key.startswith("training.") and key.split(".")[1] in TRAINING - {"by_method"}:
            general += _for_all_kinds(key.removeprefix("training."), value)
        elif key == "csv.arrays" or key.startswith("csv.arrays."):
            others.append(f"++{key}={value}")  # names that the schema does not know
        elif key == "beta" and NUMBERS.fullmatch(value):
            others += ["beta=list", f"beta.values={_listed(value, multirun)}"]
        elif key == "seeds":
            others.append(f"seeds={_seeds(value, multirun)}")
        elif key in GROUPS and "," in value and not value.startswith("[") and not multirun:
            others.append(f"{key}=[{value}]")
        elif key == "hydra.launcher.setup":
            others.append(f"{key}={_lines(value)}")
        elif multirun and key.startswith("hydra.launcher.") and "," in value and re.match(r"[^'\"\[{(]+$", value):
            others.append(f"{key}='{value}'")  # a single launcher for all jobs: no values of jobs, but `partition=a,b`
        elif key in FREE_TEXT and not (multirun and "," in value):
            others.append(f"{key}={_quoted(value)}")
        else:
            others.append(f"{key}={_listed(value, multirun) if key in LISTS else value}")
    return [*general, *others]


def _renamed(key: str) -> str:
    if key in INIT:
        return f"init.{key}"
    return f"training.{key}" if key in TRAINING - TOP else key


def _for_all_kinds(name: str, value: str) -> list[str]:
    """An override for each kind of data. A learning rate is that of minibatches too; what is in a dictionary, such as
    `initial.noise`, may be new there."""
    names = ("lr", "minibatch_lr") if name == "lr" else (name,)
    return [f"{'++' if '.' in name else ''}training.{kind}.{name}={value}" for kind in KINDS for name in names]


def _quoted(value: str) -> str:
    """Free text such as a file name in quotes, which Hydra's grammar takes whatever is in it."""
    return value if value in ("", "null", "???") or value[0] in "'\"" else in_quotes(value)


def _listed(value: str, multirun: bool) -> str:
    """The value as a list; `a,b` is a list unless it stands for the values of jobs."""
    if value in ("null", "???", "") or value.startswith(("[", "${", "'[", '"[')) or re.match(r"\w+\(", value):
        return value
    return ",".join(f"[{item}]" for item in value.split(",")) if multirun else f"[{value}]"


def _seeds(value: str, multirun: bool) -> str:
    """`5`: five seeds; `0-4`: from 0 to 4; lists of seeds and such ranges."""
    if multirun and "," in value and not value.startswith("["):
        return ",".join(f"[{seed}]" if seed.isdigit() else _seeds(seed, False) for seed in value.split(","))
    if value.isascii() and value.isdigit():
        return _list_of(0, int(value[:12]) - 1, value)
    inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    parts = [SEED.fullmatch(part.strip()) for part in inner.split(",")]
    if not inner.strip() or not all(parts) or not any(part and part[2] for part in parts):
        return _listed(value, multirun)
    ranges = [_list_of(int(part[1]), int(part[2] or part[1]), value) for part in parts if part]
    return "[" + ",".join(seeds[1:-1] for seeds in ranges) + "]"


def _list_of(first: int, last: int, typed: str) -> str:
    if last < first:
        raise UserError(f"seeds={typed}: that is no seed; seeds=5 means five seeds, seeds=0-4 those from 0 to 4")
    if last - first >= MOST_SEEDS:
        raise UserError(f"seeds={typed[:40]}: those are more than {MOST_SEEDS} seeds; give fewer")
    return "[" + ",".join(str(seed) for seed in range(first, last + 1)) + "]"


def _lines(value: str) -> str:
    """Shell lines as a list of text: `[module load cuda]`, `module load cuda`, or already in quotes."""
    inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if not inner or any(mark in inner for mark in ("'", '"', "${")):
        return value
    return "[" + ",".join(f"'{line.strip()}'" for line in inner.split(",")) + "]"
