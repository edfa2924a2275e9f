"""One iteration of every live cell (objective, gradient, Adam, stopping rule; nothing in it
synchronises), and the same as a function without arguments: called directly on a CPU, by part of
the batch where there are several threads; replayed as a captured graph on a GPU."""
# pyright: reportPrivateImportUsage=false

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import LAST_JITTER
from dlmexp.core.gp.fused import fused
from dlmexp.core.training import state as codes
from dlmexp.core.training.program import Program, Tensors
from dlmexp.core.training.state import BETA1, BETA2, BLOCK, Settings, State

LEAST_ENTRIES = (
    50_000  # in a part of the batch: with less, Python takes most of the time, one thread at a time
)
T = TypeVar("T")


def step(program: Program, state: State, settings: Settings) -> None:
    """Advance `state` in place by one iteration.

    A cell whose Kuu does not factorise is not moved; it tries again with ten times the jitter in
    the next iteration. A cell whose objective or gradient is not finite stops where it last was
    good. Neither touches its neighbours."""
    leaves = {name: value.detach().requires_grad_() for name, value in state.values.items()}
    # On this thread: another one would have to take turns with it for Python's lock.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        value = program.objective(leaves, state.jitter, state.iteration)
        # Square loss does not see the noise: its gradient is zero, not absent.
        gradients = torch.autograd.grad(
            value.objective.sum(), list(leaves.values()), materialize_grads=True
        )
    # Before torch 2.10, the zeros in place of an absent gradient require a gradient themselves.
    grads = {
        n: grad.detach() if grad.requires_grad else grad
        for n, grad in zip(leaves, gradients, strict=True)
    }
    if value.acceptance is not None:
        accepted = torch.where(state.live, value.acceptance, 0.0).to(state.acceptance.dtype)
        state.acceptance.index_add_(1, (state.iteration // BLOCK).view(1), accepted[:, None])
    if fused(value.objective):
        from dlmexp.core.training.fused_update import update as chosen
    else:
        chosen = update
    chosen(state, value.objective.detach(), value.ok, grads, program.n, settings)


@torch.inference_mode()
def update(
    state: State,
    objective: Float[Tensor, "B"],
    ok: Bool[Tensor, "B"],
    grads: Tensors,
    n: int,
    settings: Settings,
) -> None:
    """Move the live cells whose objective and gradient are finite, note what was seen, and decide
    who stops. On a CPU a look at the values costs nothing: where every cell moves, most of the
    copies are saved."""
    live = state.live
    finite = _finite(objective, grads)
    move = live & ok & finite
    on_cpu = not move.is_cuda
    everyone = on_cpu and bool(move.all())
    state.steps.add_(move)
    adam(state, grads, None if everyone else move, settings)

    seen = objective if everyone else torch.where(ok, objective, torch.nan)
    column = state.iteration.view(1)
    state.history.index_copy_(
        1, column, (seen if everyone else torch.where(live, seen, torch.nan))[:, None]
    )
    state.window.index_copy_(1, column % state.window.shape[1], seen[:, None])
    if not everyone:
        state.jitter.copy_(torch.where(live & ~ok, state.jitter * 10, state.jitter))
    state.iteration.add_(1)

    outcome = torch.where(
        state.iteration >= settings.iterations, codes.LIMIT, codes.RUNNING
    ).expand_as(state.outcome)
    if settings.window is not None and not (on_cpu and state.iteration < settings.first_check):
        outcome = torch.where(_flat(n, state, settings), codes.CONVERGED, outcome)
    if not everyone:
        outcome = torch.where(ok & ~finite, codes.NOT_FINITE, outcome)
        outcome = torch.where(
            ~ok & (state.jitter > LAST_JITTER * (1 + 1e-9)), codes.NOT_FACTORISED, outcome
        )
        outcome = torch.where(live, outcome, state.outcome)
    state.stopped_at.copy_(
        state.iteration if everyone else torch.where(live, state.iteration, state.stopped_at)
    )
    state.outcome.copy_(outcome)


def adam(state: State, grads: Tensors, move: Bool[Tensor, "B"] | None, settings: Settings) -> None:
    """Adam's update in place of the cells in `move` (None: all), whose `state.steps` count it
    already. The others keep values and moments, so that a stopped cell stays as it was when it
    stopped. Elementwise, so cells never meet.

    Adam divides a gradient by its own size, so rounding errors of a gradient become errors of a
    step; from there they grow tenfold within a few iterations (docs/SPEC.md, section 6). With a
    `resolution` every step is a whole multiple of `lr * resolution`. Gradients that differ by
    rounding then make the same step, to the last bit, unless they lie on two sides of a border
    between multiples; a larger `epsilon` makes that rare where gradients are small."""
    lr, resolution = settings.lr_at(state.iteration), settings.resolution
    made = state.steps.clamp(min=1).to(torch.float64)  # a power of integers would come in float32
    correction = 1.0 - BETA1**made
    scale = (1.0 - BETA2**made).sqrt_()
    values, first, second = (
        list(part.values()) for part in (state.values, state.first, state.second)
    )
    gradients = [grads[name] for name in state.values]

    def by_cell(numbers: Float[Tensor, "B"]) -> list[Tensor]:
        views = {
            ndim: numbers.view(-1, *(1,) * (ndim - 1)) for ndim in {value.ndim for value in values}
        }
        return [views[value.ndim] for value in values]

    before = [] if move is None else [tensor.clone() for tensor in (*values, *first, *second)]
    torch._foreach_lerp_(first, gradients, 1 - BETA1)
    torch._foreach_mul_(second, BETA2)
    torch._foreach_addcmul_(second, gradients, gradients, value=1 - BETA2)
    sizes = torch._foreach_sqrt(second)
    torch._foreach_div_(sizes, by_cell(scale))
    torch._foreach_add_(sizes, settings.epsilon)
    if resolution is None:
        steps = torch._foreach_mul(first, by_cell(lr / correction))
        torch._foreach_div_(steps, sizes)
    else:
        directions = torch._foreach_div(first, by_cell(correction))
        torch._foreach_div_(directions, sizes)
        steps = [torch.round(each.div_(resolution)).mul_(lr * resolution) for each in directions]
    torch._foreach_sub_(values, steps)
    if move is not None:
        for now, old in zip((*values, *first, *second), before, strict=True):
            now.copy_(torch.where(move.view(-1, *(1,) * (now.ndim - 1)), now, old))


def _flat(n: int, state: State, settings: Settings) -> Bool[Tensor, "B"]:
    """Which cells' objective has stopped changing. Entries of the window that are not seen yet are
    NaN, and a comparison with NaN is false."""
    spread = state.window.amax(1) - state.window.amin(1)
    if settings.criterion == "sum":
        spread = spread * n
    elif settings.criterion == "relative":
        spread = spread / state.window.abs().amax(1).clamp(min=1.0)
    return (spread <= settings.tolerance) & (state.iteration >= settings.first_check)


def _finite(objective: Float[Tensor, "B"], grads: Tensors) -> Bool[Tensor, "B"]:
    """Whether a cell's objective and all of its gradient are finite: a sum is finite only if its
    terms are (0 x inf is NaN)."""
    whole = torch.cat(
        [objective[:, None], *(grad.reshape(len(grad), -1) for grad in grads.values())], 1
    )
    return whole.mul_(0.0).sum(1) == 0.0


def divided(program: Program, state: State) -> list[tuple[Program, State]]:
    """The batch in as many parts as torch has threads, if it is large enough. Their states are
    views of `state`, apart from the number of the iteration."""
    B = len(program.beta)
    count = min(torch.get_num_threads(), B, program.entries // LEAST_ENTRIES)
    if count < 2:
        return [(program, state)]
    ends = [B * i // count for i in range(count + 1)]
    return [(program.keep(range(a, b)), state.part(a, b)) for a, b in pairwise(ends)]


def on_one_thread(advance: Callable[[], None]) -> None:
    """In a small step, threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        advance()
    finally:
        torch.set_num_threads(threads)


def together(advances: Sequence[Callable[[], None]], iteration: Tensor) -> Callable[[], None]:
    """Advance all parts at the same time, each in a thread that computes with one thread, and
    `iteration`, that of the whole, with them."""
    pool = ThreadPoolExecutor(
        len(advances), "parts", initializer=torch.set_num_threads, initargs=(1,)
    )

    def advance() -> None:
        running = [pool.submit(each) for each in advances]
        wait(running)  # all of them, whatever happens to one: afterwards nothing moves any more
        for each in running:
            each.result()
        iteration.add_(1)

    return advance


def stepper(
    program: Program, state: State, settings: Settings, pool: Any = None
) -> Callable[[], None]:
    """Advance by one iteration per call. A minibatch is loaded before each call, outside the graph.

    Graphs with the same `pool` use the same memory: only the last of them is replayed, and it is
    captured before the one before it is dropped (see torch.cuda.graph_pool_handle)."""
    device = state.outcome.device
    if device.type == "cpu":
        parts = divided(program, state)
        advances = [
            _with_rows(some, its, partial(step, some, its, settings)) for some, its in parts
        ]
        if len(parts) > 1:
            return together(advances, state.iteration)
        return (
            advances[0] if program.entries >= LEAST_ENTRIES else partial(on_one_thread, advances[0])
        )
    iterate = partial(step, program, state, settings)
    if program.capturable:
        before = state.clone()
        program.load_minibatch(int(state.iteration))
        iterate = captured(iterate, device, pool)
        state.copy_(before)
    return _with_rows(program, state, iterate)


def captured(work: Callable[[], T], device: torch.device, pool: Any = None) -> Callable[[], T]:
    """The same work as a graph, after it has been done once. It reads and writes the same tensors
    at every call.

    It is captured on a stream that is not the default one: graphs that share a stream share cuBLAS'
    workspace, and overwrite each other's when they are replayed at the same time. Unlike
    `torch.cuda.graph` this does not wait for the other streams of the device, where other batches
    train."""
    stream = torch.cuda.current_stream(device)
    own = torch.cuda.Stream(device) if stream == torch.cuda.default_stream(device) else stream
    own.wait_stream(stream)
    collecting = gc.isenabled()
    with torch.cuda.stream(own):
        work()  # lets cuBLAS, Triton and the allocator settle before the capture
        graph = torch.cuda.CUDAGraph()
        gc.disable()  # what is freed within a capture may be forbidden there
        try:
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                result = work()
            finally:
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()
    stream.wait_stream(own)
    return partial(_replay, graph, result, work)


def _replay(graph: torch.cuda.CUDAGraph, result: T, work: Callable[[], T]) -> T:
    """What `work` returned last time, computed anew. It is held with the graph, which reads and
    writes its tensors."""
    graph.replay()
    return result


def _with_rows(program: Program, state: State, iterate: Callable[[], None]) -> Callable[[], None]:
    if program.model.minibatch is None:
        return iterate
    iteration = int(state.iteration)

    def advance() -> None:
        nonlocal iteration
        program.load_minibatch(iteration)
        iterate()
        iteration += 1

    return advance
