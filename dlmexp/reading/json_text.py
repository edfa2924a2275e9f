"""JSON as values or as typed structs. What does not fit the type is refused, however it was written."""

import json
from typing import Any, TypeVar

import msgspec

from dlmexp.errors import Unreadable

T = TypeVar("T")
NOT_JSON = "it is torn or not JSON"


def json_value(text: bytes) -> Any:
    """The value of a JSON text, in which NaN and infinity are numbers too."""
    try:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:  # standard JSON has no NaN; Python's own reader, five times slower, takes it
            value = json.loads(text)
            if b"\\ud" in text.lower():  # it would take half a letter, too, which nobody could write again
                json.dumps(value, ensure_ascii=False).encode()
            return value
    except (ValueError, RecursionError):
        raise Unreadable(NOT_JSON) from None


def typed_json(text: bytes, kind: type[T]) -> T:
    """The value of a JSON text as the given type."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Unreadable(NOT_JSON) from None


def typed_value(value: Any, kind: type[T]) -> T:
    """A decoded JSON value as the given type."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(str(error)) from None
