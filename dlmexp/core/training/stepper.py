"""A training step of a batch as a function without arguments.

On a CPU the function makes the step itself. If there are several threads, a large batch is divided
into parts, and each thread advances one of them. On a GPU the step is recorded once as a CUDA
graph, and the function replays it, unless the step can't be recorded.
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

MIN_ENTRIES_PER_PART = 50_000
"""Entries of a part of the batch that a thread advances. With fewer, most of the time goes to
Python, which runs one thread at a time."""


def make_stepper(
    program: Program, state: State, settings: Settings, graph_pool: Any = None
) -> Callable[[], None]:
    """Return a function that advances `state` by one iteration per call.

    A minibatch is loaded before each call, outside of the graph.

    Args:
        program: The cells.
        state: Changed in place.
        settings: How they are trained.
        graph_pool: The memory of captured graphs (`graphs.captured`).
    """
    if state.outcome.device.type == "cpu":
        return _on_cpu(program, state, settings)
    return _on_gpu(program, state, settings, graph_pool)


def _on_cpu(program: Program, state: State, settings: Settings) -> Callable[[], None]:
    parts = divided(program, state)
    advances = []
    for part, part_state in parts:
        one_step = partial(step, part, part_state, settings)
        advances.append(_after_loading(part, part_state, one_step))
    if len(parts) > 1:
        return together(advances, state.iteration)
    if program.entries >= MIN_ENTRIES_PER_PART:
        return advances[0]
    return partial(on_one_thread, advances[0])


def _on_gpu(
    program: Program, state: State, settings: Settings, graph_pool: Any
) -> Callable[[], None]:
    advance = partial(step, program, state, settings)
    if program.capturable:
        before = state.clone()  # capturing makes a step
        program.load_minibatch(int(state.iteration))
        advance = captured(advance, state.outcome.device, graph_pool)
        state.copy_(before)
    return _after_loading(program, state, advance)


def divided(program: Program, state: State) -> list[tuple[Program, State]]:
    """Divide the batch into consecutive parts.

    There are at most one for each of torch's threads and one for each cell, and so few that each
    has about `MIN_ENTRIES_PER_PART` entries or more; without at least two, the batch stays whole.
    The states of the parts are views of `state`, apart from their iteration, which is a copy.
    """
    B = len(program.beta)
    count = min(torch.get_num_threads(), B, program.entries // MIN_ENTRIES_PER_PART)
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
    """Return a function that advances all parts at the same time, each in its own thread.

    It also counts `iteration`, that of the whole batch: the parts only count their copies of it.
    """
    executor = ThreadPoolExecutor(
        len(advances), "parts", initializer=torch.set_num_threads, initargs=(1,)
    )

    def advance() -> None:
        running = [executor.submit(advance_part) for advance_part in advances]
        wait(running)  # all of them, also if one fails: afterwards nothing moves any more
        for future in running:
            future.result()
        iteration.add_(1)

    return advance


def _after_loading(
    program: Program, state: State, advance: Callable[[], None]
) -> Callable[[], None]:
    """Return a function that loads the minibatch of the iteration, then calls `advance`.

    Without minibatches it is `advance` itself.
    """
    if program.minibatches is None:
        return advance
    # Counted here a second time: to read `state.iteration` in every step would wait for the GPU.
    iteration = int(state.iteration)

    def load_and_advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        advance()
        iteration += 1

    return load_and_advance
