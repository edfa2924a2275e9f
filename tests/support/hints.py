"""Checks the type hints of dlmexp while tests run, wherever they say the shape of a tensor or an array."""

import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

PACKAGES = ["data", "estimators", "gp", "mlls", "objectives", "training"]  # where hints have shapes
SHAPED = re.compile(r"\b(Float|Int|Bool)\[")
CALLS = 5  # of a function are checked in each test: what a training step calls, it calls a thousand times alike

calls: Counter[Callable[..., Any]] = Counter()  # in the present test
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int may be given where a hint says float
_jaxtyped = jaxtyping.jaxtyped


def check_hints() -> None:
    """Every function with shapes and every class of these packages that is imported from now on is checked in use. A
    check takes some 40 us: with all calls of all functions, training would take twice as long."""
    jaxtyping.jaxtyped = _where_shaped  # which the hook puts on all functions
    jaxtyping.install_import_hook([f"dlmexp.{package}" for package in PACKAGES], f"{__name__}.checked")


def _where_shaped(*, typechecker: Any) -> Callable[[Any], Any]:
    def decorate(plain: Any) -> Any:
        if inspect.isfunction(plain) and not SHAPED.search(str(plain.__annotations__)):
            return plain
        always = _jaxtyped(plain, typechecker=typechecker)
        if not inspect.isfunction(plain):
            return always

        @wraps(plain)
        def at_first(*arguments: Any, **options: Any) -> Any:
            calls[plain] += 1
            return (always if calls[plain] <= CALLS else plain)(*arguments, **options)

        return at_first

    return decorate
