"""Which batches may train at the same time."""

import dataclasses
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from dlmexp.experiment.running.capacity import BatchJob, Capacity
from dlmexp.experiment.running.programs import bytes_of, entries_of
from tests.support.cells import PLAIN

CPU = torch.device("cpu")
BATCH = (PLAIN,)
REJECTING = (replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}),)
LARGE = (replace(PLAIN, n=10**6),)
ROOMY = Capacity(batches=4, entries=1e12, bytes=1e15)


def jobs(*batches):
    return [BatchJob(batch, batch, live_cells=len(batch)) for batch in batches]


def test_cpu_trains_one_batch_at_a_time():
    capacity = Capacity.of(CPU)
    assert not capacity.is_concurrent
    assert capacity.admits(BATCH, [])
    assert not capacity.admits(BATCH, jobs(BATCH))


def test_gpu_has_the_capacity_of_its_processors_and_its_free_memory(monkeypatch):
    properties = SimpleNamespace(multi_processor_count=100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 5000))
    assert Capacity.of(torch.device("cuda")) == Capacity(12, 40_000_000, 800.0)


def test_number_of_batches_is_limited():
    capacity = dataclasses.replace(ROOMY, batches=2)
    assert capacity.admits(BATCH, jobs(BATCH))
    assert not capacity.admits(BATCH, jobs(BATCH, BATCH))


def test_batch_may_start_until_the_entries_in_training_reach_the_limit():
    capacity = dataclasses.replace(ROOMY, entries=2 * entries_of(BATCH))
    assert capacity.admits(BATCH, jobs(BATCH))
    assert not capacity.admits(BATCH, jobs(BATCH, BATCH))


def test_cells_that_have_left_their_batch_take_no_time():
    capacity = dataclasses.replace(ROOMY, entries=2 * entries_of(BATCH))
    shrunk = BatchJob(BATCH * 5, BATCH * 5, live_cells=1)
    assert capacity.admits(BATCH, [shrunk])


def test_memory_of_cells_that_have_left_their_batch_stays_allocated():
    capacity = dataclasses.replace(ROOMY, bytes=2 * bytes_of(BATCH))
    shrunk = BatchJob(BATCH * 2, BATCH * 2, live_cells=1)
    assert capacity.admits(BATCH, jobs(BATCH))
    assert not capacity.admits(BATCH, [shrunk])


def test_first_batch_starts_even_if_it_is_too_large():
    capacity = Capacity(batches=4, entries=1.0, bytes=1.0)
    assert capacity.admits(LARGE, [])
    assert capacity.admits(REJECTING, [])


@pytest.mark.parametrize(("batch", "training"), [(REJECTING, BATCH), (BATCH, REJECTING)])
def test_batch_that_needs_the_whole_device_trains_alone(batch, training):
    assert not ROOMY.admits(batch, jobs(training))


def with_iterations(*limits):
    return jobs(*((replace(PLAIN, max_iterations=limit),) for limit in limits))


def limits(queue):
    return [job.batch[0].iterations for job in queue]


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ([], [50, 40, 10, 30]),
        ([60], [50, 10, 40, 30]),  # one long batch is enough
        ([60, 50], [10, 40, 50, 30]),
        ([20], [50, 40, 10, 30]),  # it is shorter than one that waits
    ],
)
def test_longest_batches_come_first_until_two_long_ones_train(training, expected):
    queue = deque(with_iterations(10, 40, 50, 30))
    ROOMY.move_longest_forward(queue, with_iterations(*training))
    assert limits(queue) == expected


def test_queue_of_a_cpu_keeps_its_order():
    queue = deque(with_iterations(10, 40))
    Capacity.of(CPU).move_longest_forward(queue, [])
    assert limits(queue) == [10, 40]


def test_batch_that_needs_the_whole_device_is_not_moved_forward():
    rejecting = (replace(REJECTING[0], max_iterations=90),)
    queue = deque([*with_iterations(10), *jobs(rejecting), *with_iterations(20)])
    ROOMY.move_longest_forward(queue, [])
    assert limits(queue) == [20, 10, 90]


def test_empty_queue_stays_empty():
    queue = deque[BatchJob]()
    ROOMY.move_longest_forward(queue, jobs(BATCH))
    assert not queue


def test_batch_advances_until_it_has_ended():
    job = BatchJob(BATCH, BATCH, work=iter([None]))
    assert job.advance()
    assert not job.advance()


def test_batch_on_a_stream_is_ready_when_the_device_has_finished():
    finished = SimpleNamespace(query=lambda: True)
    busy = SimpleNamespace(query=lambda: False)
    assert BatchJob(BATCH, BATCH).is_ready
    assert BatchJob(BATCH, BATCH, stream=finished).is_ready  # pyright: ignore[reportArgumentType]
    assert not BatchJob(BATCH, BATCH, stream=busy).is_ready  # pyright: ignore[reportArgumentType]
