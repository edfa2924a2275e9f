"""What is refused before anything is written: values beyond the limits of the schema, and settings against one another.

`check_values` and `check_together` need neither data nor torch; `check` asks the registries what goes with what.
"""

import math
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from itertools import product
from typing import Any, TypeVar

import msgspec

from dlmexp.catalogue import entries
from dlmexp.config import MethodConfig, RunConfig, literal
from dlmexp.console import budget_seconds
from dlmexp.data.dataset import as_spec, dataset_names, is_drawn, read_spec
from dlmexp.errors import UserError, shortened
from dlmexp.plan.overrides import unknown

T = TypeVar("T")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a folder in the results
OPTION = {"bounds": {">": 0, "<=": 1_000_000}}  # limits of the numbers among an estimator's options
COMPARE = {">": operator.gt, ">=": operator.ge, "<=": operator.le}


def check_values(cfg: RunConfig) -> None:
    """Raise a UserError about the first setting of another type than its field, or beyond its limits."""
    _converted("", asdict(cfg), RunConfig)  # OmegaConf takes a list for a number that is in a list
    for name, value, limits in _settings(cfg):
        check_limits(name, value, limits)


def _converted(name: str, values: dict[str, Any], kind: type[T]) -> T:
    """`values` as a dataclass; UserError for one of another type than its field."""
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, place = str(error).partition(" - at ")
        place = place.strip("`$.")
        typed = f"{name}{place}={shortened(literal(values[place]))}" if place in values else f"{name}{place}".strip(".")
        raise UserError(f"{typed}: {what[:1].lower()}{what[1:]}") from None


def _settings(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """The dotted name, value and limits of every setting of a dataclass and of those in it."""
    for name in vars(node).keys() - {field.name for field in fields(node)}:  # which were added as +name=value
        raise UserError(unknown(prefix + name))
    for field in fields(node):
        name, value = prefix + field.name, getattr(node, field.name)
        yield name, value, field.metadata
        for key, item in value.items() if isinstance(value, dict) else [("", value)]:
            if is_dataclass(item):
                yield from _settings(item, f"{name}.{key}." if key else f"{name}.")


def check_limits(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise a UserError about a value, or one in its list or dictionary, beyond the limits of a field
    (`config.limited`)."""
    if limits.get("filled") and value in ("", [], {}):
        raise UserError(f"{name}={value or '[]'}: it is empty; give at least one value")
    if "keys" in limits and (odd := value.keys() ^ {*limits["keys"]}):
        raise UserError(f"{name}.{shortened(sorted(odd)[0])}: it has all of {', '.join(limits['keys'])}, and no others")
    items = {f"{name}.{key}": [item] for key, item in value.items()} if isinstance(value, dict) else {name: value}
    for place, some in items.items():
        for item in some if isinstance(some, list) else [some]:
            if item is None:
                continue
            if "choices" in limits and item not in limits["choices"]:
                raise UserError(f"{place}={shortened(item)}: give {' or '.join(map(str, limits['choices']))}")
            for sign, bound in limits.get("bounds", {}).items():
                if not COMPARE[sign](item, bound) or item == math.inf:
                    raise UserError(f"{place}={shortened(item)}: give a number {sign} {bound}")


def check_together(cfg: RunConfig) -> None:
    """Raise a UserError about the first settings that can't be used with one another."""
    budget_seconds(cfg.budget)
    if not re.fullmatch(r"end|epoch|[1-9]\d{0,15}", cfg.evaluate):
        raise UserError(f"evaluate={shortened(cfg.evaluate)}: give end, epoch or a number of iterations")
    for kind in {dataset.kind: None for dataset in cfg.dataset.values()}:
        training = cfg.training[kind]
        if (training.final_lr is None) != (training.decay is None):
            raise UserError(f"training.{kind}: final_lr and decay belong together; give both, or null for both")
        if not training.has_room:
            least = (training.decay or 0) + (training.window or 0)
            given = f"training.{kind}.max_iterations={training.max_iterations}"
            raise UserError(f"{given}: give at least {least}, for decay and the window of the stopping rule after it")
    for dataset in cfg.dataset.values():
        if not PLAIN_NAME.fullmatch(dataset.name):
            limits = "at most 100 letters, digits, '-', '_', '.'"
            raise UserError(f"dataset name '{dataset.name[:80]}': it names a folder; choose {limits}")
    for name, method in cfg.method.items():
        ours = entries("method").get(name)
        if ours and method != MethodConfig(**ours):
            raise UserError(f"method.{name}: a method of ours has this name, and other settings; choose another name")


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
        known = [field.name for field in fields(ESTIMATORS[name])]
        for option, values in options.items():
            if option not in known:
                raise UserError(f"estimator.{name}.{option}: {name} takes {', '.join(known) or 'no options'}")
            check_limits(f"estimator.{name}.{option}", values, {"filled": True})
        for values in combinations(options):
            estimator = _converted(f"estimator.{name}.", values, ESTIMATORS[name])
            for option, value in values.items():
                check_limits(f"estimator.{name}.{option}", value, {} if isinstance(value, str) else OPTION)
            if any(OBJECTIVES[method.objective].takes_estimator for method in cfg.method.values()):
                for dataset in cfg.dataset.values():
                    estimator.check(LIKELIHOODS[dataset.likelihood])


def combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of an estimator's options, of which any may be a list."""
    lists = [value if isinstance(value, list) else [value] for value in options.values()]
    for values in product(*lists):
        yield dict(zip(options, values, strict=True))
