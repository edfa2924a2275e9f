"""Exceptions that plugins raise, as text for users: what went wrong, and in which line."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dlmexp.common.errors import UserError, shortened
from dlmexp.common.registry import plugin_modules

MAX_TRACEBACK = 8000  # characters; the beginning of a longer one is cut off
MAX_REASON = 300  # characters


class ErrorText(NamedTuple):
    """An exception as text.

    Attributes:
        reason: `error in FILE:LINE: TYPE: MESSAGE` with the innermost line of a plugin, or without
            `in FILE:LINE` if there is none; for a `UserError`, the message alone.
        traceback: The traceback as Python prints it; empty for a `UserError`.
    """

    reason: str
    traceback: str


def describe_error(error: Exception) -> ErrorText:
    """Return an exception as text."""
    message = shortened(error, MAX_REASON)
    if isinstance(error, UserError):
        return ErrorText(message, "")
    line = line_of_plugin(error)
    place = f" in {line}" if line else ""
    reason = f"error{place}: {type(error).__name__}"
    if message:
        reason += f": {message}"
    text = "".join(traceback.format_exception(error))
    return ErrorText(reason, text[-MAX_TRACEBACK:])


@contextmanager
def plugin_errors_as_user_errors(part: str) -> Iterator[None]:
    """Turn exceptions that a plugin raises in this context into `UserError`.

    Exceptions without a line of a plugin in their traceback are errors of dlmexp: they stay as they
    are.

    Args:
        part: What the message calls the part of the plugin that runs here, such as `panel 'width'`.

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
        raise UserError(f"{part}: {describe_error(error).reason}") from error


def line_of_plugin(error: Exception) -> str | None:
    """Return `FILE:LINE`, the innermost line of a plugin in a traceback; None if it has none."""
    plugins = plugin_modules()
    line = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in plugins:
            line = f"{_relative(frame.f_code.co_filename)}:{number}"
    return line


def _relative(path: str) -> str:
    """Return a path relative to the current folder if it lies in it."""
    folder = os.getcwd() + os.sep
    return path.removeprefix(folder)
