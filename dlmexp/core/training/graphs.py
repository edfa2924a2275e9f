"""CUDA graphs: the operations of a step, recorded once and replayed."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def captured(work: Callable[[], T], device: torch.device, pool: Any = None) -> Callable[[], T]:
    """Return the same work as a graph, after it has been done once.

    The graph reads and writes the same tensors at every call. Graphs with the same memory `pool`
    share their memory (see torch.cuda.graph_pool_handle): replay only the last of them, and capture
    it before the one before it is dropped.
    """
    stream = torch.cuda.current_stream(device)
    # 1. Not the default stream: graphs that share a stream share the workspace of cuBLAS, and
    #    overwrite each other's when they are replayed at the same time.
    on_default = stream == torch.cuda.default_stream(device)
    capturing = torch.cuda.Stream(device) if on_default else stream
    capturing.wait_stream(stream)
    collecting = gc.isenabled()
    with torch.cuda.stream(capturing):
        # 2. Once without capturing: cuBLAS, Triton and the allocator settle.
        work()
        graph = torch.cuda.CUDAGraph()
        # 3. No garbage collection: what it frees may be forbidden within a capture.
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
            if collecting:
                gc.enable()
    stream.wait_stream(capturing)
    return partial(_replay, graph, result, work)


def _replay(graph: torch.cuda.CUDAGraph, result: T, work: Callable[[], T]) -> T:
    """Compute `result` anew and return it; `work` holds the tensors that the graph reads."""
    graph.replay()
    return result
