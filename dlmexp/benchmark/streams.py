"""Training steps per second with several batches in flight, as a run has them, and the rate of matrix products."""

from collections.abc import Callable
from time import perf_counter

import torch

from dlmexp.benchmark.measure import synchronise
from dlmexp.plan.cell import Cell
from dlmexp.running.device import Target
from dlmexp.running.lanes import capacity
from dlmexp.running.trial import step_like

REPLAYS = 5  # of a batch, before the next one is given to the device


def in_flight(batch: tuple[Cell, ...], device: str) -> int:
    """How many such batches a run trains at once."""
    if device == "cuda":
        torch.cuda.empty_cache()  # what was measured before is not in the way
    return capacity(torch.device(device)).alike(batch)


def steps_per_second(batch: tuple[Cell, ...], features: int, device: str, together: int, seconds: float) -> float:
    """Steps of all batches, of which so many are in flight: on a GPU each with a graph on its own stream, replayed in
    turn."""
    target = Target(torch.device(device), torch.float64)
    lanes: list[tuple[torch.cuda.Stream | None, Callable[[], None]]] = []
    for _ in range(together):
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):  # does nothing for None
            lanes.append((stream, step_like(batch, features, target)))
    _give(lanes, 3)
    synchronise(device)
    rounds, began = 0, perf_counter()
    while rounds == 0 or perf_counter() - began < seconds:
        _give(lanes, REPLAYS)
        rounds += 1
        if rounds % 4 == 0:  # no more than that waits on the device
            synchronise(device)
    synchronise(device)
    return rounds * REPLAYS * together / (perf_counter() - began)


def _give(lanes: list[tuple[torch.cuda.Stream | None, Callable[[], None]]], steps: int) -> None:
    for stream, step in lanes:
        with torch.cuda.stream(stream):
            for _ in range(steps):
                step()


def product_rate(device: str, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a large product of float64 matrices."""
    size = 4096 if device == "cuda" else 1024
    a, b = torch.randn(2, size, size, dtype=torch.float64, device=device)
    torch.mm(a, b)
    synchronise(device)
    best, began = float("inf"), perf_counter()
    while perf_counter() - began < seconds:
        start = perf_counter()
        torch.mm(a, b)
        synchronise(device)
        best = min(best, perf_counter() - start)
    return 2 * size**3 / best
