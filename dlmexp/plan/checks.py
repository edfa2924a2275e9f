"""What is refused before anything is written: values beyond the limits of the schema, and settings against one another.

`check_values` and `check_together` need neither data nor torch; `check` asks the
registries what goes with what.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from dlmexp.catalogue import entries
from dlmexp.config import MethodConfig, RunConfig, TrainingConfig
from dlmexp.console import budget_seconds
from dlmexp.data.spec import as_spec, dataset_names, is_drawn, read_spec
from dlmexp.errors import UserError, nearest, shortened

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a folder in the results
MOST_SAMPLES = 1_000_000  # of an estimator
POSITIVE = ("lengthscale", "outputscale", "noise")  # hyperparameters


def check_values(cfg: RunConfig) -> None:
    """Raise a UserError about the first setting that was deleted, of another type than its field, or beyond its
    limits."""
    settings = list(_settings(cfg))
    try:
        msgspec.convert(asdict(cfg), RunConfig)  # OmegaConf takes a list for a number that is in a list
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, place = str(error).partition(" - at ")
        raise UserError(f"{place.strip('`$.')}: {what[:1].lower()}{what[1:]}") from None
    for name, value, limits in settings:
        check_limits(name, value, limits)


def _settings(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The dotted name, value and limits of every setting of a dataclass and of those in it."""
    for field in fields(node):
        name = prefix + field.name
        if not hasattr(node, field.name):
            raise UserError(f"{name} was deleted or has no value: it is needed")
        value = getattr(node, field.name)
        yield name, value, field.metadata
        for key, item in value.items() if isinstance(value, dict) else [("", value)]:
            if is_dataclass(item):
                yield from _settings(item, f"{name}.{key}." if key else f"{name}.")


def check_limits(name: str, value: Any, limits: Any) -> None:
    """Raise a UserError about a value, or one in its list or dictionary, beyond the limits of a field
    (`config.limited`)."""
    if limits.get("filled") and value in ("", [], {}):
        raise UserError(f"{name}={'' if value == '' else '[]'}: it is empty; give at least one value")
    if limits.get("distinct") and len({*value}) < len(value):
        raise UserError(f"{name}={shortened(value)}: a value stands there twice")
    if "keys" in limits and (odd := value.keys() ^ {*limits["keys"]}):
        odd = shortened(" ".join(map(str, odd)))
        raise UserError(f"{name}.{odd}: it has all of {', '.join(limits['keys'])}, and no others")
    items = {f"{name}.{key}": [item] for key, item in value.items()} if isinstance(value, dict) else {name: value}
    for place, some in items.items():
        for item in some if isinstance(some, list) else [some]:
            if item is not None and (advice := _advice(item, **limits)):
                raise UserError(f"{place}={shortened(item)}: {advice}")


def _advice(
    value: Any, choices: Any = None, pattern: str = "", words: str = "", above: Any = None, least: Any = None,
    most: Any = None, **others: Any,
) -> str | None:  # fmt: skip
    """What to give in place of a value that is beyond limits; None for one that is within."""
    if choices and value not in choices:
        return f"give {words}" if words else nearest(str(value), [*choices])
    if pattern and not re.fullmatch(pattern, str(value)):
        return f"give {words}"
    if most is not None and value > most:
        return f"give {most} at most"
    if above is not None and not above < value < math.inf:
        return f"give a number > {above}"
    return f"give a number >= {least}" if least is not None and not least <= value < math.inf else None


def check_together(cfg: RunConfig) -> None:
    """Raise a UserError about the first settings that can't be used with one another, or with what is on the disk."""
    budget_seconds(cfg.budget)
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
        ours = entries("method").get(name)
        if ours and method != MethodConfig(**ours):
            given = f"{method.objective}, {method.variant}, select={str(method.select).lower()}"
            raise UserError(f"method.{name} ({given}): the name '{name}' belongs to a method of ours: choose another")


def _check_training(name: str, training: TrainingConfig) -> None:
    if (training.final_lr is None) != (training.decay is None):
        raise UserError(f"{name}: final_lr and decay belong together; give both, or null for both")
    if not training.has_room:
        raise UserError(
            f"{name}.max_iterations={training.max_iterations}: give at least "
            f"{(training.decay or 0) + (training.window or 0)}, for the decay and the stopping rule's window after it"
        )
    starts = {f"{name}.by_method.{method}.initial": own.initial for method, own in training.by_method.items()}
    for where, values in {f"{name}.initial": training.initial, **starts}.items():
        for parameter, value in values.items():
            if not math.isfinite(value) or (value <= 0 and parameter in POSITIVE):
                raise UserError(f"{where}.{parameter}={value}: give a number > 0")


def check(cfg: RunConfig) -> None:
    """Raise a UserError about the first name that nothing is registered under, or that does not go with the data."""
    from dlmexp.estimators import ESTIMATORS
    from dlmexp.gp.kernels import kernel_named
    from dlmexp.gp.likelihoods import LIKELIHOODS
    from dlmexp.objectives import OBJECTIVES

    for key, dataset in cfg.dataset.items():
        if dataset.name in dataset_names():  # results under a name that we ship are taken for the data we ship
            given, ours = as_spec(dataset), read_spec(dataset.name)
            source = ("loader", "files") if is_drawn(ours) else ("loader", "files", "options")
            if key != dataset.name or any(getattr(given, part) != getattr(ours, part) for part in source):
                raise UserError(f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name")
        kernel_named(dataset.kernel, typed=True)
        likelihood = LIKELIHOODS[dataset.likelihood]
        if likelihood.task != dataset.task:
            what = f"dataset.{dataset.name}.likelihood={dataset.likelihood}"
            raise UserError(f"{what} is for {likelihood.task} data, and {dataset.name} is {dataset.task} data")
        for name, method in cfg.method.items():
            if not OBJECTIVES[method.objective].fits(likelihood):
                raise UserError(f"method {name} is not for {dataset.task} data such as {dataset.name}: leave it out")
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
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise UserError(f"{where}={shortened(value)}: {error}") from None
            if isinstance(value, int | float):
                check_limits(where, value, {"above": 0, "most": MOST_SAMPLES if kind is int else None})


def combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of an estimator's options, of which any may be a list."""
    lists = {option: value if isinstance(value, list) else [value] for option, value in options.items()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))
