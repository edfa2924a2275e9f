"""CUDA graphs: the operations of a step, recorded once and replayed."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def capture(
    work: Callable[[], Result], device: torch.device, pool: Any = None
) -> Callable[[], Result]:
    """Do the work once, capture it as a CUDA graph, and return a function that replays the graph.

    Every call reads and writes the same tensors. Graphs with the same memory `pool` share their
    memory (see torch.cuda.graph_pool_handle): only the graph that was captured last may be
    replayed, and the one before must exist until that has been captured.
    """
    stream = torch.cuda.current_stream(device)
    # 1. Not the default stream: graphs that share a stream share the workspace of cuBLAS, and
    #    overwrite each other's when they are replayed at the same time.
    on_default = stream == torch.cuda.default_stream(device)
    capturing = torch.cuda.Stream(device) if on_default else stream
    capturing.wait_stream(stream)
    collects_garbage = gc.isenabled()
    with torch.cuda.stream(capturing):
        # 2. Do the work once without capturing: cuBLAS, Triton and the allocator initialise.
        work()
        graph = torch.cuda.CUDAGraph()
        # 3. No garbage collection: freeing an object may need calls that a capture forbids.
        gc.disable()
        try:
            # 4. Unlike `torch.cuda.graph`, this does not wait for the other streams of the device,
            #    where other batches train.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                result = work()
            finally:
                graph.capture_end()
        finally:
            if collects_garbage:
                gc.enable()
    stream.wait_stream(capturing)
    return partial(_replay, graph, result, work)


def _replay(graph: torch.cuda.CUDAGraph, result: Result, work: Callable[[], Result]) -> Result:
    """Compute `result` anew and return it.

    `work` is an argument so that the tensors that it refers to, which the graph reads, stay alive.
    """
    graph.replay()
    return result
