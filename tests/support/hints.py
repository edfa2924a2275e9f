"""Checks the type hints of dlmexp while tests run, wherever they say the shape of a tensor or an array."""

import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any, Self

import jaxtyping
from beartype import BeartypeConf, beartype

PACKAGES = ["data", "estimators", "gp", "mlls", "objectives", "training"]  # where hints have shapes
CONFIGURATION = BeartypeConf(is_pep484_tower=True)  # an int may be given where a hint says float
SHAPED = re.compile(r"\b(Float|Int|Bool)\[")
CALLS = 5  # of a function are checked in each test: what a training step calls, it calls a thousand times alike

calls: Counter[Callable[..., Any]] = Counter()  # in the present test

_jaxtyped = jaxtyping.jaxtyped


def check_hints() -> None:
    """Every function with shapes and every class of these packages that is imported from now on is checked in use.

    A check takes some 40 us. Functions without shapes and all but the first calls of a test are left alone, or training
    would take twice as long."""
    jaxtyping.jaxtyped = _where_shaped  # which the hook puts on all functions
    jaxtyping.install_import_hook([f"dlmexp.{package}" for package in PACKAGES], f"{__name__}.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its hints checked. Methods come here one by one, and such a one does not know its Self."""
    if Self in function.__annotations__.values():
        return function
    return beartype(conf=CONFIGURATION)(function)


def _where_shaped(*, typechecker: Any) -> Callable[[Any], Any]:
    def decorate(plain: Any) -> Any:
        if not inspect.isfunction(plain):
            return _jaxtyped(plain, typechecker=typechecker)
        if not SHAPED.search(str(plain.__annotations__)):
            return plain
        always = _jaxtyped(plain, typechecker=typechecker)

        @wraps(plain)
        def at_first(*arguments: Any, **options: Any) -> Any:
            calls[plain] += 1
            return (always if calls[plain] <= CALLS else plain)(*arguments, **options)

        return at_first

    return decorate
