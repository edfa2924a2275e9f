"""The cores of this machine, and a function mapped over items by several processes."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def available_cores() -> int:
    """Return the number of cores that this process may use.

    `taskset` and SLURM limit them; where nothing does, they are all cores of the machine.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_processes(function: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Yield `function(item)` for each item, in their order.

    On Linux a forked process per core computes them. A fork has all that this process has in
    memory, so neither the function nor the items are pickled; the values are. An exception of the
    function is raised here.
    """
    count = min(available_cores(), len(items)) if sys.platform == "linux" else 1
    if count < 2:
        yield from map(function, items)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    task = (function, items)
    with ProcessPoolExecutor(count, get_context("fork"), _start_worker, task) as pool:
        yield from pool.map(_value_of_item, range(len(items)))


# The function and the items of a worker process. It is set once, in that process alone: what is
# sent to a worker later is pickled, and functions defined inside functions cannot be.
_task: list[Any] = []


def _start_worker(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    # Ctrl-C is for the first process, which waits for this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _task[:] = [function, items]


def _end_with_parent() -> None:
    """Wait for the end of the first process, and end this one: a killed process tells nobody."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _value_of_item(index: int) -> Any:
    function, items = _task
    return function(items[index])
