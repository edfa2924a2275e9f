"""Python's garbage collector, off while many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Turn the garbage collector off in a context, or in a function that this decorates.

    It would look through all objects that are there again and again: a quarter of the time in which
    a sweep of 20 000 cells is planned.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
