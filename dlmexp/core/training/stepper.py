"""A training step of a batch as a function without arguments: a stepper.

On a CPU the function makes the step itself. With several threads, a large batch is divided into
parts, and each thread advances one part. On a GPU the step is captured once as a CUDA graph, which
the function replays. A step that can't be captured is made anew in every call.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dlmexp.core.training.graphs import capture
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.step import step

MIN_ENTRIES_PER_PART = 50_000
"""The fewest entries of a part of a batch that a thread advances. In a smaller part, most of the
time goes to Python, which runs one thread at a time."""


def make_stepper(
    program: Program, state: State, settings: Settings, graph_pool: Any = None
) -> Callable[[], None]:
    """Return a function that advances `state` by one iteration per call.

    A minibatch is loaded before each call, outside of the graph.

    Args:
        program: The cells.
        state: Changed in place.
        settings: How they are trained.
        graph_pool: The memory of captured graphs (`graphs.capture`).
    """
    if state.outcome.device.type == "cpu":
        return _cpu_stepper(program, state, settings)
    return _gpu_stepper(program, state, settings, graph_pool)


def _cpu_stepper(program: Program, state: State, settings: Settings) -> Callable[[], None]:
    """Return a stepper of a batch on a CPU.

    It advances parts of the batch in threads of their own, or the whole batch in torch's threads,
    or a small batch in one thread.
    """
    parts = parts_of_batch(program, state)
    steppers = []
    for part, part_state in parts:
        advance = partial(step, part, part_state, settings)
        steppers.append(_load_minibatches_before(part, part_state, advance))
    if len(parts) > 1:
        return parallel_stepper(steppers, state.iteration)
    if program.entries >= MIN_ENTRIES_PER_PART:
        return steppers[0]
    return partial(call_on_one_thread, steppers[0])


def _gpu_stepper(
    program: Program, state: State, settings: Settings, graph_pool: Any
) -> Callable[[], None]:
    """Return a stepper of a batch on a GPU: a captured graph if the program allows it."""
    advance = partial(step, program, state, settings)
    if program.capturable:
        # Capturing makes a step, which must be undone.
        initial_state = state.clone()
        program.load_minibatch(int(state.iteration))
        advance = capture(advance, state.outcome.device, graph_pool)
        state.copy_(initial_state)
    return _load_minibatches_before(program, state, advance)


def parts_of_batch(program: Program, state: State) -> list[tuple[Program, State]]:
    """Return the batch as parts of consecutive cells, one for each thread.

    The number of parts is limited by torch's threads, by the cells, and by `MIN_ENTRIES_PER_PART`.
    If these limits allow fewer than two parts, the batch stays whole. The states of the parts are
    views of `state`, apart from their iteration, which is a copy.
    """
    B = len(program.beta)
    count = min(torch.get_num_threads(), B, program.entries // MIN_ENTRIES_PER_PART)
    if count < 2:
        return [(program, state)]
    ends = [B * i // count for i in range(count + 1)]
    parts = []
    for first, end in pairwise(ends):
        parts.append((program.keep(range(first, end)), state.view_of_cells(first, end)))
    return parts


def call_on_one_thread(advance: Callable[[], None]) -> None:
    """Call `advance` with a single thread of torch.

    In a small step, several threads would mostly wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        advance()
    finally:
        torch.set_num_threads(threads)


def parallel_stepper(
    steppers: Sequence[Callable[[], None]], iteration: Tensor
) -> Callable[[], None]:
    """Return a stepper that advances all parts of a batch at the same time, a thread for each.

    It also counts `iteration`, the tensor of the whole batch: each part counts a copy of its own.
    """
    executor = ThreadPoolExecutor(
        len(steppers), "parts", initializer=torch.set_num_threads, initargs=(1,)
    )

    def advance_all() -> None:
        futures = [executor.submit(advance_part) for advance_part in steppers]
        # Wait for all parts, even if one fails: after this call no thread may change the state.
        wait(futures)
        for future in futures:
            future.result()
        iteration.add_(1)

    return advance_all


def _load_minibatches_before(
    program: Program, state: State, advance: Callable[[], None]
) -> Callable[[], None]:
    """Return a function that loads the minibatch of the iteration, then calls `advance`.

    Without minibatches it is `advance` itself.
    """
    if program.minibatches is None:
        return advance
    # A second count on the host: reading `state.iteration` in every step would wait for the GPU.
    iteration = int(state.iteration)

    def load_and_advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        advance()
        iteration += 1

    return load_and_advance
