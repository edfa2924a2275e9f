"""The step of a batch as a function without arguments.

On a CPU it is called directly, by parts of the batch where there are several threads. On a GPU it
is a captured graph that is replayed.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dlmexp.core.training.graphs import captured
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.step import step

LEAST_ENTRIES = 50_000
"""In a part of the batch: with less, Python takes most of the time, one thread at a time."""


def make_stepper(
    program: Program, state: State, settings: Settings, pool: Any = None
) -> Callable[[], None]:
    """Return a function that advances `state` by one iteration per call.

    A minibatch is loaded before each call, outside of the graph.

    Args:
        program: The cells.
        state: Changed in place.
        settings: How they are trained.
        pool: The memory of captured graphs (`graphs.captured`).
    """
    if state.outcome.device.type == "cpu":
        return _on_cpu(program, state, settings)
    return _on_gpu(program, state, settings, pool)


def _on_cpu(program: Program, state: State, settings: Settings) -> Callable[[], None]:
    parts = divided(program, state)
    advances = []
    for part, part_state in parts:
        one_step = partial(step, part, part_state, settings)
        advances.append(_after_loading(part, part_state, one_step))
    if len(parts) > 1:
        return together(advances, state.iteration)
    if program.entries >= LEAST_ENTRIES:
        return advances[0]
    return partial(on_one_thread, advances[0])


def _on_gpu(program: Program, state: State, settings: Settings, pool: Any) -> Callable[[], None]:
    advance = partial(step, program, state, settings)
    if program.capturable:
        before = state.clone()  # capturing makes a step
        program.load_minibatch(int(state.iteration))
        advance = captured(advance, state.outcome.device, pool)
        state.copy_(before)
    return _after_loading(program, state, advance)


def divided(program: Program, state: State) -> list[tuple[Program, State]]:
    """Return the batch in as many parts as torch has threads, if it is large enough.

    The states of the parts are views of `state`, apart from the number of the iteration.
    """
    B = len(program.beta)
    count = min(torch.get_num_threads(), B, program.entries // LEAST_ENTRIES)
    if count < 2:
        return [(program, state)]
    ends = [B * i // count for i in range(count + 1)]
    return [(program.keep(range(a, b)), state.part(a, b)) for a, b in pairwise(ends)]


def on_one_thread(advance: Callable[[], None]) -> None:
    """Advance with a single thread: in a small step, threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        advance()
    finally:
        torch.set_num_threads(threads)


def together(advances: Sequence[Callable[[], None]], iteration: Tensor) -> Callable[[], None]:
    """Return a function that advances all parts at the same time, each in a thread of its own.

    `iteration`, that of the whole, is counted too.
    """
    pool = ThreadPoolExecutor(
        len(advances), "parts", initializer=torch.set_num_threads, initargs=(1,)
    )

    def advance() -> None:
        running = [pool.submit(part) for part in advances]
        wait(running)  # all of them, also if one fails: afterwards nothing moves any more
        for future in running:
            future.result()
        iteration.add_(1)

    return advance


def _after_loading(
    program: Program, state: State, advance: Callable[[], None]
) -> Callable[[], None]:
    """Return `advance` after the minibatch of its iteration is loaded, where there are any."""
    if program.minibatches is None:
        return advance
    iteration = int(state.iteration)

    def load_and_advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        advance()
        iteration += 1

    return load_and_advance
