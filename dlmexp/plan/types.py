"""Whether every value of a composed config has the type that the schema gives it, which OmegaConf does not ensure."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dlmexp.errors import UserError

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def check_types(node: Any, prefix: str = "") -> None:
    """Raise a sentence about the first setting of a dataclass whose value is of another type."""
    hints = get_type_hints(type(node))
    for one in fields(node):
        name = prefix + one.name
        if not hasattr(node, one.name):
            raise UserError(f"{name} was deleted or has no value: it is needed")
        _check(name, getattr(node, one.name), hints[one.name])


def _check(name: str, value: Any, kind: Any) -> None:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (Union, UnionType):
        if value is None and type(None) in inner:
            return
        (kind,) = (one for one in inner if one is not type(None))
        return _check(name, value, kind)
    if origin is list:
        if not isinstance(value, list):
            raise UserError(f"{name}={_short(value)}: write it as a list, {name}=[...]")
        for one in value:
            _check(name, one, inner[0])
    elif origin is dict:
        if not isinstance(value, dict):
            raise UserError(f"{name}={_short(value)}: it has settings of its own, such as {name}.NAME=VALUE")
        for key, one in value.items():
            if not isinstance(key, str):
                raise UserError(f"{name}.{_short(key)}: a name is expected before the value")
            _check(f"{name}.{key}", one, inner[1])
    elif isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, kind):
            raise UserError(f"{name}={_short(value)}: it has settings of its own, such as {name}.NAME=VALUE")
        check_types(value, f"{name}.")
    elif not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
        raise UserError(f"{name}={_short(value)}: give {WORDS.get(kind, 'another value')}")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:80]}..."
