"""The step as a function without arguments: called directly on a CPU, by part of the batch where there are several
threads; replayed as a captured graph on a GPU."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

from dlmexp.training.parts import divided, together
from dlmexp.training.program import Program
from dlmexp.training.settings import Settings
from dlmexp.training.state import State
from dlmexp.training.step import step

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
