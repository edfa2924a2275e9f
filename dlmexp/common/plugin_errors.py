"""Exceptions that plugins raise: at which line, and as text."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dlmexp.common.errors import UserError, shortened
from dlmexp.common.registry import plugin_modules

MAX_TRACEBACK = 8000  # characters, counted from the end
MAX_REASON = 300


class Raised(NamedTuple):
    """An exception as text.

    Attributes:
        reason: `error in FILE:LINE: KIND: MESSAGE`; the message alone of a `UserError`.
        traceback: As Python prints it; empty for a `UserError`.
    """

    reason: str
    traceback: str


def raised(error: Exception) -> Raised:
    """Return an exception as text, with the innermost line of a plugin that led to it."""
    message = shortened(error, MAX_REASON)
    if isinstance(error, UserError):
        return Raised(message, "")
    place = line_of_plugin(error)
    where = f" in {place}" if place else ""
    text = "".join(traceback.format_exception(error))
    reason = f"error{where}: {type(error).__name__}: {message}".removesuffix(": ")
    return Raised(reason, text[-MAX_TRACEBACK:])


@contextmanager
def plugin_errors_as_user_errors(part: str) -> Iterator[None]:
    """Report exceptions that a plugin raises in this context in one line.

    Args:
        part: What the plugin provides, such as `panel 'width'`.

    Raises:
        UserError: A plugin raised an exception.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if line_of_plugin(error) is None:
            raise
        raise UserError(f"{part}: {raised(error).reason}") from error


def line_of_plugin(error: Exception) -> str | None:
    """Return `FILE:LINE`, the innermost line of a plugin in a traceback; None without one."""
    plugins = plugin_modules()
    place = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in plugins:
            place = f"{_near(frame.f_code.co_filename)}:{number}"
    return place


def _near(path: str) -> str:
    """Return a path from the current folder on, if it lies in it."""
    folder = os.getcwd() + os.sep
    return path.removeprefix(folder)
