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

    Every call reads and writes the same tensors.

    Args:
        work: The operations to capture.
        device: The GPU.
        pool: The memory of the graph (torch.cuda.graph_pool_handle); None: memory of its own. Of
            graphs with the same pool, only the one that was captured last may be replayed, and the
            one before it must exist until the capture has ended.
    """
    stream = torch.cuda.current_stream(device)
    # 1. Capture on another stream than the default one. Graphs of one stream share a workspace of
    #    cuBLAS, and would overwrite it when they are replayed at the same time.
    is_default_stream = stream == torch.cuda.default_stream(device)
    capture_stream = torch.cuda.Stream(device) if is_default_stream else stream
    capture_stream.wait_stream(stream)
    collects_garbage = gc.isenabled()
    with torch.cuda.stream(capture_stream):
        # 2. Do the work once without capturing: cuBLAS, Triton and the allocator initialise.
        work()
        graph = torch.cuda.CUDAGraph()
        # 3. Stop garbage collection: freeing an object may need calls that a capture forbids.
        gc.disable()
        try:
            # 4. Capture. `torch.cuda.graph` is not used, as it would wait for the other streams of
            #    the device, where other batches train.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                result = work()
            finally:
                graph.capture_end()
        finally:
            if collects_garbage:
                gc.enable()
    stream.wait_stream(capture_stream)
    return partial(_replay, graph, result, work)


def _replay(graph: torch.cuda.CUDAGraph, result: Result, work: Callable[[], Result]) -> Result:
    """Compute `result` anew and return it.

    `work` is an argument to keep alive the tensors that it refers to, which the graph reads.
    """
    graph.replay()
    return result
