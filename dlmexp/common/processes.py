"""The number of usable cores, and `map` by several processes."""

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

    `taskset` and SLURM may limit them to a part of the machine's cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_processes(function: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Yield `function(item)` for each item, in the order of the items.

    On Linux, one forked process per core computes the values. A fork has a copy of this process's
    memory, so neither the function nor the items need to be pickled; the values do. An exception
    that the function raises in a fork is raised here, too.
    """
    n_processes = min(available_cores(), len(items)) if sys.platform == "linux" else 1
    if n_processes < 2:
        yield from map(function, items)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    task = (function, items)
    with ProcessPoolExecutor(n_processes, get_context("fork"), _start_worker, task) as pool:
        yield from pool.map(_value_of_item, range(len(items)))


# In a worker process: the function and the items, set once, when the process is forked. Sending
# them later would pickle them, which fails for functions that are defined inside functions.
_task: list[Any] = []


def _start_worker(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    # Ctrl-C signals all processes. Only the parent reacts: it waits for its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _task[:] = [function, items]


def _end_with_parent() -> None:
    """Wait until the parent has ended, and end this process.

    A parent that is killed leaves its workers running.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _value_of_item(index: int) -> Any:
    function, items = _task
    return function(items[index])
