"""The step as a function without arguments: called directly on a CPU, replayed as a captured graph on a GPU."""

from collections.abc import Callable
from functools import partial

import torch

from dlmexp.training.program import Program
from dlmexp.training.settings import Settings
from dlmexp.training.state import State
from dlmexp.training.step import step


def stepper(program: Program, state: State, settings: Settings) -> Callable[[], None]:
    """Advance by one iteration per call. A minibatch is loaded before each call, outside the graph."""
    one = partial(step, program, state, settings)
    device = state.outcome.device
    if device.type != "cuda" or not program.capturable:
        return _with_rows(program, state, one)
    before = state.clone()
    program.load_minibatch(int(state.iteration))
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(2):  # lets cuBLAS and the allocator settle before the capture
            one()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one()
    state.copy_(before)
    return _with_rows(program, state, graph.replay)


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
