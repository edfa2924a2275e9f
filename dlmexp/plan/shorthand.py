"""What people type, spelled out as Hydra takes it: where an override has one sensible meaning, that is what it means.

`beta=0.1`, `seeds=5`, `seeds=0-4`, `sizes=1000`, `lengthscale=2`, `training.lr=0.01`, `method=elbo,fitc`, `csv.sep=;`,
`hydra.launcher.partition=a,b`.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from dlmexp.config import InitConfig, RunConfig, TrainingConfig
from dlmexp.data.advice import in_quotes
from dlmexp.errors import UserError

KINDS = ("regression", "binary", "count", "large")  # of data, each with its own settings of training
GROUPS = ("dataset", "method", "estimator")  # of which several can be selected
FREE_TEXT = ("csv.path", "csv.test", "csv.target", "csv.by", "csv.sep", "csv.name", "results", "data_root")
PATHS = ("csv.path", "csv.test", "results", "data_root")
MOST_SEEDS = 1000
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
NUMBERS = re.compile(rf"\[?\s*{NUMBER}(\s*,\s*{NUMBER})*\s*\]?")
SEED = re.compile(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?")


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(one) is list for one in get_args(kind))


def _lists(node: type, prefix: str = "") -> set[str]:
    """Settings of the schema that are lists."""
    found = {prefix + one.name for one in fields(node) if _is_list(one.type)}
    for one in fields(node):
        if isinstance(one.type, type) and is_dataclass(one.type):
            found |= _lists(one.type, f"{prefix}{one.name}.")
    return found


LISTS = _lists(RunConfig) - {"parts"}
TRAINING = tuple(one.name for one in fields(TrainingConfig))
INIT = tuple(one.name for one in fields(InitConfig))


def spelled_out(overrides: Sequence[str], multirun: bool = False) -> list[str]:
    """The overrides in Hydra's words. In a multirun, values with commas between them stay the jobs' values."""
    general: list[str] = []  # settings for all kinds of data: before those for one
    found: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", key):
            found.append(override)
            continue
        key, value = _renamed(key), value.strip()
        if key in PATHS and value.startswith("~"):
            value = os.path.expanduser(value)  # as shells do for words that begin with it
        if key.startswith("training.") and key.count(".") == 1 and key.partition(".")[2] in TRAINING:
            general += _for_all_kinds(key.partition(".")[2], value)
        elif key == "csv.arrays" or key.startswith("csv.arrays."):
            found.append(f"++{key}={value}")  # names that the schema does not know
        elif key == "beta" and NUMBERS.fullmatch(value):
            found += ["beta=list", f"beta.values={_listed(value, multirun)}"]
        elif key == "seeds":
            found.append(f"seeds={_seeds(value, multirun)}")
        elif key in GROUPS and "," in value and not value.startswith("[") and not multirun:
            found.append(f"{key}=[{value}]")
        elif key == "hydra.launcher.setup":
            found.append(f"{key}={_lines(value)}")
        elif multirun and key.startswith("hydra.launcher.") and "," in value and re.match(r"[^'\"\[{(]+$", value):
            found.append(f"{key}='{value}'")  # one launcher for all jobs: no values of jobs, but `partition=a,b`
        elif key in LISTS:
            found.append(f"{key}={_listed(value, multirun)}")
        else:
            found.append(_quoted(key, value) if key in FREE_TEXT else f"{key}={value}")
    return [*general, *found]


def _renamed(key: str) -> str:
    if key in INIT:
        return f"init.{key}"
    return f"training.{key}" if key in TRAINING and key not in (one.name for one in fields(RunConfig)) else key


def _for_all_kinds(name: str, value: str) -> list[str]:
    """An override for each kind of data. A learning rate is that of minibatches too."""
    names = ("lr", "minibatch_lr") if name == "lr" else (name,)
    return [f"training.{kind}.{one}={value}" for kind in KINDS for one in names]


def _listed(value: str, multirun: bool) -> str:
    """The value as a list; `a,b` is a list unless it stands for the values of jobs."""
    if value in ("null", "???", "") or value.startswith(("[", "${", "'[", '"[')) or re.match(r"\w+\(", value):
        return value
    return ",".join(f"[{one}]" for one in value.split(",")) if multirun else f"[{value}]"


def _seeds(value: str, multirun: bool) -> str:
    """`5`: five seeds; `0-4`: from 0 to 4; lists of seeds and such ranges."""
    if multirun and "," in value and not value.startswith("["):
        return ",".join(f"[{one}]" if one.isdigit() else _seeds(one, False) for one in value.split(","))
    if value.isascii() and value.isdigit():
        return _list_of(0, int(value[:12]) - 1, value)
    inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    parts = [SEED.fullmatch(part.strip()) for part in inner.split(",")]
    if not inner.strip() or not all(parts) or not any(part and part[2] for part in parts):
        return _listed(value, multirun)
    ranges = [_list_of(int(part[1]), int(part[2] or part[1]), value) for part in parts if part]
    return "[" + ",".join(one[1:-1] for one in ranges) + "]"


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


def _quoted(key: str, value: str) -> str:
    """Free text such as a file name, in quotes where Hydra's grammar would not take it as it is."""
    text = f"{key}={value}"
    try:
        parsed: Override | None = OverridesParser.create().parse_override(text)
    except HydraException:
        parsed = None
    if parsed is not None or value[:1] in ("'", '"', ""):
        return text
    return f"{key}={in_quotes(value)}"
