"""How many threads a process on a CPU computes with: chosen by a short trial, since on a busy machine threads that wait
for one another can take many times as long as one alone."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, process_time

from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.running.cost import is_short, work_of

GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # whoever sets one of them has chosen
GAIN = 1.2  # twice the threads must be so many times as fast: on a machine that gets busy later they would lose more
TRIAL_SECONDS = 0.25
TRIAL_STEPS = 3
LARGEST_TRIAL = (16, 2000)  # cells and rows


def core_seconds() -> float:
    """Seconds that this process has computed on each of its cores. Unlike a clock it stands still while other programs
    have them."""
    import torch

    return process_time() / torch.get_num_threads()


@contextmanager
def some_threads(number: int) -> Iterator[int]:
    """Compute with so many threads until the end of the context."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield number
    finally:
        torch.set_num_threads(before)


@contextmanager
def measured_threads(plan: Plan, device: str, environment: Mapping[str, str] = os.environ) -> Iterator[int]:
    """Compute with the number of threads that a trial recommends for this plan, until the end of the context: with one
    if it is short, with those that there are where it is not ours to choose."""
    import torch

    most = torch.get_num_threads()
    with some_threads(most):  # so that what a trial sets does not stay
        if device == "cpu" and most > 1 and not any(environment.get(name) for name in GIVEN):
            torch.set_num_threads(1 if is_short(plan) else fastest(most, _trial(plan)))
        yield torch.get_num_threads()


def fastest(most: int, seconds: Callable[[int], float]) -> int:
    """One thread, twice as many as long as that pays, at most `most`; `seconds` of a step with so many threads."""
    threads, known = 1, seconds(1)
    while threads < most:
        more = min(2 * threads, most)
        if (faster := seconds(more)) * GAIN > known:
            break
        threads, known = more, faster
    return threads


def _trial(plan: Plan) -> Callable[[int], float]:
    """A function that measures the mean seconds of a step like those of the batch with the most work. The mean, not the
    best: what others take of the machine is what matters."""
    import torch

    from dlmexp.training.trial import joint_step

    batch: tuple[Cell, ...] = max(plan.batches, key=work_of)
    first, (cells, rows) = batch[0], LARGEST_TRIAL
    rows = min(first.n, first.minibatch or first.n, rows)

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        step = joint_step(min(len(batch), cells), n=rows, M=min(first.M, rows))  # in a part for every thread
        step()  # starts the threads
        began, steps = perf_counter(), 0
        while steps < TRIAL_STEPS or perf_counter() - began < TRIAL_SECONDS:
            step()
            steps += 1
        return (perf_counter() - began) / steps

    return seconds
