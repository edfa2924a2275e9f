"""A step on several cores: the cells of a batch in parts, each part in a thread of its own.

Threads within every operation wait for one another some hundred times a step, which takes many times as long on a
machine that has other work too, and small matrices are not divided at all."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from dlmexp.training.program import Program
from dlmexp.training.state import State

LEAST_ENTRIES = 50_000  # of [B, M, rows + M], in a part: with less, Python takes most of the time, one thread at a time


def divided(program: Program, state: State) -> list[tuple[Program, State]]:
    """The batch in as many parts as torch has threads, if it is large enough. Their states are views of `state`, apart
    from the number of the iteration."""
    B, M = len(program.beta), program.model.M
    count = min(torch.get_num_threads(), B, (program.entries + B * M * M) // LEAST_ENTRIES)
    if count < 2:
        return [(program, state)]
    ends = [B * i // count for i in range(count + 1)]
    return [(program.keep(range(a, b)), state.part(a, b)) for a, b in pairwise(ends)]


def together(advances: Sequence[Callable[[], None]], iteration: Tensor) -> Callable[[], None]:
    """Advance all parts at the same time, and `iteration`, that of the whole, with them."""
    pool = _pool(os.getpid(), len(advances))

    def advance() -> None:
        running = [pool.submit(one) for one in advances]
        wait(running)  # all of them, whatever happens to one: afterwards nothing moves any more
        for each in running:
            each.result()
        iteration.add_(1)

    return advance


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process (one that was forked has none of its parent's) that compute with one thread each."""
    return ThreadPoolExecutor(threads, "parts", initializer=torch.set_num_threads, initargs=(1,))
