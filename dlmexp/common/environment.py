"""Environment variables: lists in them, and values for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def words_of(variable: str, separator: str) -> list[str]:
    """Return the words of an environment variable, without empty ones; none if it is not set."""
    return [word for word in os.environ.get(variable, "").split(separator) if word]


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for this process and those that it starts; restore all on exit."""
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
