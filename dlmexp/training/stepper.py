"""The step as a function without arguments: called directly on a CPU, by part of the batch where there are several
threads; replayed as a captured graph on a GPU."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from dlmexp.training.program import Program
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step

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


T = TypeVar("T")


def stepper(program: Program, state: State, settings: Settings, pool: Any = None) -> Callable[[], None]:
    """Advance by one iteration per call. A minibatch is loaded before each call, outside the graph.

    Graphs with the same `pool` use the same memory: only the last of them is replayed, and it is captured before the
    one before it is dropped (see torch.cuda.graph_pool_handle)."""
    device = state.outcome.device
    if device.type == "cpu":
        parts = divided(program, state)
        advances = [_with_rows(some, its, partial(step, some, its, settings)) for some, its in parts]
        return together(advances, state.iteration) if len(parts) > 1 else advances[0]
    one = partial(step, program, state, settings)
    if not program.capturable:
        return _with_rows(program, state, one)
    before = state.clone()
    program.load_minibatch(int(state.iteration))
    replay = captured(one, device, pool)
    state.copy_(before)
    return _with_rows(program, state, replay)


def captured(work: Callable[[], T], device: torch.device, pool: Any = None) -> Callable[[], T]:
    """The same work as a graph, after it has been done once. It reads and writes the same tensors at every call."""
    stream = torch.cuda.current_stream(device)
    own = torch.cuda.Stream(device) if stream == torch.cuda.default_stream(device) else stream
    own.wait_stream(stream)
    with torch.cuda.stream(own):
        work()  # lets cuBLAS, Triton and the allocator settle before the capture
        graph = torch.cuda.CUDAGraph()
        with _capturing(graph, pool):
            found = work()
    stream.wait_stream(own)
    return partial(_replay, graph, found, work)


def _replay(graph: torch.cuda.CUDAGraph, found: T, work: Callable[[], T]) -> T:
    """What `work` found last time, found anew. It is held with the graph, which reads and writes its tensors."""
    graph.replay()
    return found


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Capture what is launched on the current stream, which is not the default one: graphs that share a stream share
    cuBLAS' workspace, and overwrite each other's when they are replayed at the same time.

    Unlike `torch.cuda.graph` it does not wait for the other streams of the device, where other batches train."""
    collecting = gc.isenabled()
    gc.disable()  # what is freed within a capture may be forbidden there
    try:
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    finally:
        if collecting:
            gc.enable()


def _with_rows(program: Program, state: State, one: Callable[[], None]) -> Callable[[], None]:
    if not program.minibatched:
        return one
    iteration = int(state.iteration)

    def advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        one()
        iteration += 1

    return advance
