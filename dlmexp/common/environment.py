"""Environment variables: reading lists of words, and setting values for a limited time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def words_of(variable: str, separator: str) -> list[str]:
    """Return the non-empty words of an environment variable; no words if it is not set."""
    words = os.environ.get(variable, "").split(separator)
    return [word for word in words if word]


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for this process and those that it starts in this context.

    At the end of the context, all environment variables are as they were before.
    """
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
