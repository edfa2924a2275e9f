"""What is refused before anything is written: values against the schema, then settings against one another.

`check_values` and `check_together` need neither data nor torch; `check` asks the registries what goes with what.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dlmexp.catalogue import methods
from dlmexp.config import MethodConfig, RunConfig, TrainingConfig
from dlmexp.console import budget_seconds
from dlmexp.data.spec import as_spec, dataset_names, read_spec
from dlmexp.errors import UserError, nearest

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a folder in the results
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
MOST_SAMPLES = 1_000_000  # of an estimator
POSITIVE = ("lengthscale", "outputscale", "noise")  # hyperparameters

type_hints = cache(get_type_hints)


def check_values(node: Any, prefix: str = "") -> None:
    """Raise a UserError about the first setting of a dataclass that is missing, of another type than its field, or
    beyond the limits of its field. `prefix`: the dotted name of the dataclass, with a dot at its end."""
    for field in fields(node):
        if not hasattr(node, field.name):
            raise UserError(f"{prefix}{field.name} was deleted or has no value: it is needed")
        _check(prefix + field.name, getattr(node, field.name), type_hints(type(node))[field.name], field.metadata)


def _check(name: str, value: Any, kind: Any, limits: Any) -> None:
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return
        (kind,) = (option for option in get_args(kind) if option is not type(None))
    origin, inner = get_origin(kind), get_args(kind)
    each = {name: limit for name, limit in limits.items() if name not in ("filled", "distinct", "keys")}
    if limits.get("filled") and not value and isinstance(value, str | list | dict):
        raise UserError(f"{name}={'' if isinstance(value, str) else '[]'}: it is empty; give at least one value")
    if origin is list:
        if not isinstance(value, list):
            raise UserError(f"{name}={_short(value)}: write it as a list, {name}=[...]")
        for item in value:
            _check(name, item, inner[0], each)
        if limits.get("distinct") and (twice := [item for item in value if value.count(item) > 1]):
            raise UserError(f"{name}={_short(value)}: {twice[0]} stands there twice")
    elif origin is dict or is_dataclass(kind):
        if not isinstance(value, origin or kind):  # pyright: ignore[reportArgumentType]
            raise UserError(f"{name}={_short(value)}: it has settings of its own, such as {name}.NAME=VALUE")
        if is_dataclass(kind):
            return check_values(value, f"{name}.")
        for key in limits.get("keys", ()):
            if key not in value:
                raise UserError(f"{name}.{key} was deleted: {key} data is trained by it")
        for key, item in value.items():
            if not isinstance(key, str):
                raise UserError(f"{name}.{_short(key)}: a name is expected before the value")
            _one_of(name, key, limits.get("keys", [key]))
            _check(f"{name}.{key}", item, inner[1], each)
    elif kind is not Any:
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
            raise UserError(f"{name}={_short(value)}: give {WORDS.get(kind, 'another value')}")
        _check_limits(name, value, limits)


def _check_limits(name: str, value: Any, limits: Any) -> None:
    """Refuse a single value beyond the limits of its field."""
    fits = value in limits.get("choices", [value]) and re.fullmatch(limits.get("pattern", ".*"), str(value), re.DOTALL)
    if not fits and "words" in limits:
        raise UserError(f"{name}={_short(value)}: give {limits['words']}")
    _one_of(name, value, limits.get("choices", [value]))
    if isinstance(value, int | float):
        above, least, most = limits.get("above"), limits.get("least"), limits.get("most")
        if above is not None and not above < value < math.inf:
            raise UserError(f"{name}={value}: give a number > {above}")
        if least is not None and not least <= value < math.inf:
            raise UserError(f"{name}={value}: give a number >= {least}")
        if most is not None and value > most:
            raise UserError(f"{name}={value}: give {most} at most")


def _one_of(name: str, given: Any, valid: Any) -> None:
    if given not in valid:
        raise UserError(f"{name}={_short(given)}: {nearest(str(given), list(valid))}")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_device(device: str) -> None:
    """Raise a UserError about a device that is not `auto`, `cpu` or `cuda`."""
    _check_limits("device", device, RunConfig.__dataclass_fields__["device"].metadata)


def check_together(cfg: RunConfig) -> None:
    """Raise a UserError about the first settings that can't be used with one another, or with what is on the disk."""
    budget_seconds(cfg.budget)
    if cfg.refit and cfg.keep == "none":
        raise UserError("refit=true fits cells again to keep their models: give keep=selected or keep=all with it")
    if Path(cfg.results).exists() and not Path(cfg.results).is_dir():
        raise UserError(f"results={cfg.results}: that is a file; name a folder")
    for kind in {dataset.kind: None for dataset in cfg.dataset.values()}:
        _check_training(f"training.{kind}", cfg.training[kind])
    for name, dataset in cfg.dataset.items():
        if not (cfg.sizes or dataset.sizes):
            raise UserError(f"dataset '{name}' has no sizes: give some, e.g. sizes=[100,'50%']")
        if not PLAIN_NAME.fullmatch(dataset.name):
            limits = "at most 100 letters, digits, '-', '_', '.'"
            raise UserError(f"dataset name '{dataset.name[:80]}': it names a folder; choose {limits}")
    for name, method in cfg.method.items():
        ours = methods().get(name)
        if ours and method != MethodConfig(**ours):
            given = f"{method.objective}, {method.variant}, select={str(method.select).lower()}"
            raise UserError(f"method.{name} ({given}): the name '{name}' belongs to a method of ours: choose another")


def _check_training(name: str, training: TrainingConfig) -> None:
    if (training.final_lr is None) != (training.decay is None):
        raise UserError(f"{name}: final_lr and decay belong together; give both, or null for both")
    if training.decay is not None and not training.has_room:
        shorter = f", or {name}.decay={training.longest_decay} at most" if training.longest_decay > 0 else ""
        raise UserError(
            f"{name}.max_iterations={training.max_iterations}: it leaves no room for the decay of {training.decay} "
            f"iterations and the stopping rule's window after it; give at least "
            f"{training.decay + (training.window or 0)}{shorter}"
        )
    starts = {f"{name}.by_method.{method}.initial": own.initial for method, own in training.by_method.items()}
    for where, values in {f"{name}.initial": training.initial, **starts}.items():
        for parameter, value in values.items():
            if not math.isfinite(value) or (value <= 0 and parameter in POSITIVE):
                raise UserError(f"{where}.{parameter}={value}: give a number > 0")


def check(cfg: RunConfig) -> None:
    """Raise a UserError about the first name that nothing is registered under, or that does not go with the data."""
    from dlmexp.data.parsers.registry import loader_of
    from dlmexp.estimators import ESTIMATORS
    from dlmexp.gp.kernels import kernel_named
    from dlmexp.gp.likelihoods import LIKELIHOODS
    from dlmexp.objectives import OBJECTIVES

    for key, dataset in cfg.dataset.items():
        if dataset.name in dataset_names():  # results under a name that we ship are taken for the data we ship
            given, ours = as_spec(dataset), read_spec(dataset.name)
            source = ("loader", "files") if loader_of(ours).drawn else ("loader", "files", "options")
            if key != dataset.name or any(getattr(given, part) != getattr(ours, part) for part in source):
                raise UserError(f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name")
        kernel_named(dataset.kernel, typed=True)
        likelihood = LIKELIHOODS[dataset.likelihood]
        if likelihood.task != dataset.task:
            raise UserError(
                f"dataset.{dataset.name}.likelihood={dataset.likelihood} is for {likelihood.task} data and the task of "
                f"{dataset.name} is {dataset.task}"
            )
        for name, method in cfg.method.items():
            if not OBJECTIVES[method.objective].fits(likelihood):
                known = {n: spec["objective"] for n, spec in methods().items()}
                fitting = [n for n, objective in known.items() if OBJECTIVES[objective].fits(likelihood)]
                raise UserError(
                    f"method {name} is for regression and {dataset.name} is {dataset.task} data: choose among "
                    f"{', '.join(fitting)}"
                )
    for name, options in cfg.estimator.items():
        _check_options(name, options, ESTIMATORS[name].options())
        if any(OBJECTIVES[method.objective].takes_estimator for method in cfg.method.values()):
            for dataset, values in product(cfg.dataset.values(), combinations(options)):
                ESTIMATORS[name](**values).check(LIKELIHOODS[dataset.likelihood])


def _check_options(name: str, given: dict[str, Any], known: dict[str, Any]) -> None:
    """Refuse options that an estimator does not have, or whose values, of which a list is swept, do not fit."""
    for option in dict.fromkeys([*given, *(option for option in known if known[option].required)]):
        where, values = f"estimator.{name}.{option}", given.get(option)
        if option not in known:
            raise UserError(f"{where}: {name} takes {', '.join(sorted(known)) or 'no options'}")
        if values in (None, []):
            raise UserError(f"{where}: give at least one value")
        kind = known[option].type
        for value in values if isinstance(values, list) else [values]:
            _check(where, value, kind, {"above": 0, "most": MOST_SAMPLES if kind is int else None})


def combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of an estimator's options, of which any may be a list."""
    lists = {option: value if isinstance(value, list) else [value] for option, value in options.items()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))
