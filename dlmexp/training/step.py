"""One iteration of every live cell (objective, gradient, Adam, stopping rule; nothing in it synchronises), and the same
as a function without arguments: called directly on a CPU, by part of the batch where there are several threads;
replayed as a captured graph on a GPU."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from dlmexp.gp.cholesky import LAST_JITTER
from dlmexp.gp.fused import fused
from dlmexp.training import state as codes
from dlmexp.training.program import Program, Tensors, Value
from dlmexp.training.state import BETA1, BETA2, BLOCK, Settings, State

LEAST_ENTRIES = 50_000  # of [B, M, rows + M], in a part: with less, Python takes most of the time, one thread at a time
T = TypeVar("T")


def step(program: Program, state: State, settings: Settings) -> None:
    """Advance `state` in place by one iteration.

    A cell whose Kuu does not factorise is not moved; it tries again with ten times the jitter in the next iteration.
    A cell whose objective or gradient is not finite stops where it last was good. Neither touches its neighbours.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in state.values.items()}
    # On this thread: another one would have to take turns with it for Python's lock.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        value = program.objective(leaves, state.jitter, state.iteration)
        # Square loss does not see the noise: its gradient is zero, not absent.
        gradients = torch.autograd.grad(value.objective.sum(), list(leaves.values()), materialize_grads=True)
    # Before torch 2.10, the zeros in place of an absent gradient require a gradient themselves.
    grads = {name: grad.detach() for name, grad in zip(leaves, gradients, strict=True)}
    acceptance = torch.zeros_like(state.acceptance)
    if value.acceptance is not None:
        acceptance.copy_(torch.where(state.live, value.acceptance, 0.0))
        state.block_acceptance.index_add_(1, (state.iteration // BLOCK).view(1), acceptance[:, None])
    if fused(value.objective):
        from dlmexp.training.fused_update import update as chosen
    else:
        chosen = update
    chosen(state, Value(value.objective.detach(), value.ok, acceptance), grads, program.n, settings)


def update(state: State, value: Value, grads: Tensors, n: int, settings: Settings) -> None:
    """Move the live cells whose objective and gradient are finite, note what was seen, and decide who stops."""
    objective, ok, acceptance = value
    live = state.live
    finite = objective.isfinite() & _finite(grads)
    move = live & ok & finite
    state.steps.add_(move)
    adam(state, grads, move, settings)

    seen = torch.where(ok, objective, torch.nan)
    column = state.iteration.view(1)
    state.history.index_copy_(1, column, torch.where(live, seen, torch.nan)[:, None])
    state.window.index_copy_(1, column % state.window.shape[1], seen[:, None])
    if acceptance is not None:
        state.acceptance.add_(torch.where(live, acceptance, 0.0))
    state.jitter.copy_(torch.where(live & ~ok, state.jitter * 10, state.jitter))
    state.iteration.add_(1)

    outcome = torch.where(state.iteration >= settings.iterations, codes.LIMIT, codes.RUNNING).expand_as(state.outcome)
    if settings.window is not None:
        outcome = torch.where(_flat(n, state, settings), codes.CONVERGED, outcome)
    outcome = torch.where(ok & ~finite, codes.NOT_FINITE, outcome)
    outcome = torch.where(~ok & (state.jitter > LAST_JITTER * (1 + 1e-9)), codes.NOT_FACTORISED, outcome)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, outcome, state.outcome))


def adam(state: State, grads: Tensors, move: Bool[Tensor, "B"], settings: Settings) -> None:
    """Adam's update in place of the cells in `move`, whose `state.steps` count it already. The others keep values and
    moments, so that a stopped cell stays as it was when it stopped. Elementwise, so cells never meet.

    Adam divides a gradient by its own size, so rounding errors of a gradient become errors of a step; from there they
    grow tenfold within a few iterations (docs/SPEC.md, section 6). With a `resolution` every step is a whole multiple
    of `lr * resolution`. Gradients that differ by rounding then make the same step, to the last bit, unless they lie
    on two sides of a border between multiples; a larger `epsilon` makes that rare where gradients are small.
    """
    lr, resolution = settings.lr_at(state.iteration), settings.resolution
    made = state.steps.clamp(min=1).to(torch.float64)  # a power of integers would come in float32
    correction1 = 1 - BETA1**made
    scale = (1 - BETA2**made).sqrt_()
    rate = lr / correction1
    everyone = not move.is_cuda and bool(move.all())  # on a CPU a look costs nothing, and saves most of the copies
    for name, value in state.values.items():
        shape = (-1,) + (1,) * (value.ndim - 1)
        grad, first, second = grads[name], state.first[name], state.second[name]
        m, v = (first, second) if everyone else (first.clone(), second.clone())
        m.lerp_(grad, 1 - BETA1)
        v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        size = v.sqrt().div_(scale.to(value.dtype).view(shape)).add_(settings.epsilon)
        if resolution is None:
            step = (rate.to(value.dtype).view(shape) * m).div_(size)
        else:
            direction = (m / correction1.to(value.dtype).view(shape)).div_(size)
            step = torch.round(direction.div_(resolution)).mul_(lr * resolution)
        if everyone:
            value.sub_(step)
        else:
            moving = move.view(shape)
            first.copy_(torch.where(moving, m, first))
            second.copy_(torch.where(moving, v, second))
            value.copy_(torch.where(moving, value - step, value))


def _flat(n: int, state: State, settings: Settings) -> Bool[Tensor, "B"]:
    """Which cells' objective has stopped changing. Entries of the window that are not seen yet are NaN, and a
    comparison with NaN is false."""
    spread = state.window.amax(1) - state.window.amin(1)
    if settings.criterion == "sum":
        spread = spread * n
    elif settings.criterion == "relative":
        spread = spread / state.window.abs().amax(1).clamp(min=1.0)
    return (spread <= settings.tolerance) & (state.iteration >= settings.first_check)


def _finite(grads: Tensors) -> Bool[Tensor, "B"]:
    """Whether all of a cell's gradient is finite: a sum is finite only if its terms are (0 x inf is NaN)."""
    whole = torch.cat([grad.reshape(len(grad), -1) for grad in grads.values()], 1)
    return whole.mul_(0).sum(1) == 0


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
        running = [pool.submit(each) for each in advances]
        wait(running)  # all of them, whatever happens to one: afterwards nothing moves any more
        for each in running:
            each.result()
        iteration.add_(1)

    return advance


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process (one that was forked has none of its parent's) that compute with one thread each."""
    return ThreadPoolExecutor(threads, "parts", initializer=torch.set_num_threads, initargs=(1,))


def stepper(program: Program, state: State, settings: Settings, pool: Any = None) -> Callable[[], None]:
    """Advance by one iteration per call. A minibatch is loaded before each call, outside the graph.

    Graphs with the same `pool` use the same memory: only the last of them is replayed, and it is captured before the
    one before it is dropped (see torch.cuda.graph_pool_handle)."""
    device = state.outcome.device
    if device.type == "cpu":
        parts = divided(program, state)
        advances = [_with_rows(some, its, partial(step, some, its, settings)) for some, its in parts]
        return together(advances, state.iteration) if len(parts) > 1 else advances[0]
    iterate = partial(step, program, state, settings)
    if not program.capturable:
        return _with_rows(program, state, iterate)
    before = state.clone()
    program.load_minibatch(int(state.iteration))
    replay = captured(iterate, device, pool)
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
            result = work()
    stream.wait_stream(own)
    return partial(_replay, graph, result, work)


def _replay(graph: torch.cuda.CUDAGraph, result: T, work: Callable[[], T]) -> T:
    """What `work` returned last time, computed anew. It is held with the graph, which reads and writes its tensors."""
    graph.replay()
    return result


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


def _with_rows(program: Program, state: State, iterate: Callable[[], None]) -> Callable[[], None]:
    if not program.minibatched:
        return iterate
    iteration = int(state.iteration)

    def advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        iterate()
        iteration += 1

    return advance
