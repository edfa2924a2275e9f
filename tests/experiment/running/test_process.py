"""The process of a run: its device, its threads, requests to stop, and extra processes."""

import os
import signal
import subprocess
import threading

import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.experiment.running import process as module
from dlmexp.experiment.running.process import (
    Stop,
    StopRequest,
    default_worker_count,
    extra_processes,
    gpus_for,
    is_extra,
    is_out_of_memory,
    select_target,
    threads_are_set,
    threads_per_process,
)


@pytest.fixture(autouse=True)
def no_thread_settings(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cores(monkeypatch):
    """Sets the number of cores."""
    return lambda number: monkeypatch.setattr(module, "available_cores", lambda: number)


@pytest.mark.parametrize(
    ("number_of_cores", "batches", "expected"),
    [(1, 9, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (8, 6, 3), (8, 0, 1), (64, 99, 8)],
)
def test_cpu_has_a_worker_for_two_batches_and_at_most_one_per_core(
    cores, number_of_cores, batches, expected
):
    cores(number_of_cores)
    assert default_worker_count(batches, "cpu") == expected


def test_gpu_has_one_worker(cores):
    cores(8)
    assert default_worker_count(99, "cuda") == 1


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_run_with_a_chosen_number_of_threads_has_one_worker(cores, monkeypatch, variable):
    cores(8)
    assert not threads_are_set()
    monkeypatch.setenv(variable, "2")
    assert threads_are_set()
    assert default_worker_count(99, "cpu") == 1


@pytest.mark.parametrize(
    ("workers", "is_short", "expected"),
    [(2, False, 4), (3, False, 2), (16, False, 1), (2, True, 1), (1, True, 1)],
)
def test_workers_share_the_cores(cores, workers, is_short, expected):
    cores(8)
    assert threads_per_process(workers, is_short) == expected


def test_single_process_keeps_the_threads_of_torch(cores, monkeypatch):
    cores(8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    assert threads_per_process(1) == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert threads_per_process(1, is_short=True) == 5
    assert threads_per_process(2) == 4


def test_every_worker_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert gpus_for(8, "cpu") == []
    assert gpus_for(2, "cuda") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert gpus_for(2, "cuda") == ["4", "7"]
    with pytest.raises(UserError, match="workers=3: a single process fills a GPU; give 2 at most"):
        gpus_for(3, "cuda")


@pytest.mark.parametrize(("device", "expected"), [("auto", "cpu"), ("cpu", "cpu")])
def test_device_is_the_cpu_without_a_gpu(monkeypatch, device, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    target = select_target(device, "float32")
    assert (target.device.type, target.dtype) == (expected, torch.float32)
    assert target.free_memory is None


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_device_that_is_not_there_is_refused(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=device):
        select_target(device, "float64")


@pytest.mark.parametrize(("variable", "expected"), [(None, "32"), ("4", "4")])
def test_cuda_starts_with_a_queue_for_each_stream(monkeypatch, variable, expected):
    """Unless the user has chosen another number."""
    started_with = []
    monkeypatch.delenv(module.QUEUES, raising=False)
    if variable:
        monkeypatch.setenv(module.QUEUES, variable)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch, "zeros", lambda *_, device: started_with.append(os.environ[module.QUEUES])
    )
    assert select_target("auto", "float64").device.type == "cuda"
    assert started_with == [expected]
    assert os.environ.get(module.QUEUES) == variable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate"), True),
        (RuntimeError("another error"), False),
    ],
)
def test_errors_about_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected


def test_signal_only_notes_a_request():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert stop.requested is None
        stop.raise_if_requested()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR2)
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(Stop, match="SIGTERM") as raised:
        stop.raise_if_requested()
    assert raised.value.code == 143, "of the first signal"


def test_failure_replaces_a_request():
    stop = StopRequest()
    stop.request(signal.SIGTERM)
    stop.fail(OSError("disk"))
    assert stop.requested is not None
    assert (stop.requested.code, str(stop.requested)) == (1, "disk")


def test_end_of_the_budget_is_a_request(monkeypatch):
    moment = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    stop = StopRequest(10.0)
    moment[0] = 9.9
    assert stop.requested is None
    moment[0] = 10.0
    assert stop.requested is not None
    assert (stop.requested.code, str(stop.requested)) == (3, "the budget's end")


@pytest.fixture
def interruptible():
    """Python's own handler of Ctrl-C; it may be ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_second_ctrl_c_interrupts_at_once_and_a_third_one_does_nothing(interruptible):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        assert stop.requested.code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.interrupted_twice
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)  # it leaves, and is not interrupted on the way


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_request_outside_the_main_thread_notes_no_signals():
    handlers = []

    def enter():
        with StopRequest():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [before]


@pytest.fixture
def popen(monkeypatch):
    """The commands and variables of processes, none of which is started."""
    calls = []

    class Process:
        terminated = waited = False

        def terminate(self):
            self.terminated = True

        def wait(self):
            self.waited = True

    def start(command, stdout, stderr, env):
        calls.append((command, env, Process()))
        return calls[-1][-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return calls


def test_extra_processes_run_the_same_command(popen, tmp_path, cores, monkeypatch):
    cores(6)
    monkeypatch.setenv("DLMEXP_DATA", "here")
    (tmp_path / "running").mkdir()
    arguments = ["seeds=[0]", "workers=3"]
    with extra_processes(2, arguments, tmp_path, "cpu") as started:
        assert [path.name for path in started] == ["process-2.log", "process-3.log"]
    for command, variables, process in popen:
        assert command[-3:] == ["run", "seeds=[0]", "workers=1"]
        assert "-P" in command
        assert variables["DLMEXP_DATA"] == "here"
        assert (variables["DLMEXP_EXTRA_PROCESS"], variables["OMP_NUM_THREADS"]) == ("1", "2")
        assert "CUDA_VISIBLE_DEVICES" not in variables
        assert (process.terminated, process.waited) == (False, True)


def test_first_process_has_the_first_gpu(popen, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    (tmp_path / "running").mkdir()
    with extra_processes(2, [], tmp_path, "cuda"):
        pass
    assert [variables["CUDA_VISIBLE_DEVICES"] for _, variables, _ in popen] == ["1", "2"]


def test_extra_processes_are_asked_to_leave_after_an_error(popen, tmp_path):
    (tmp_path / "running").mkdir()

    def interrupted():
        with extra_processes(1, [], tmp_path, "cpu"):
            raise Stop("SIGTERM", 143)

    with pytest.raises(Stop):
        interrupted()
    ((_, _, process),) = popen
    assert (process.terminated, process.waited) == (True, True)


def test_process_is_extra_if_its_environment_says_so(monkeypatch):
    monkeypatch.delenv("DLMEXP_EXTRA_PROCESS", raising=False)
    assert not is_extra()
    monkeypatch.setenv("DLMEXP_EXTRA_PROCESS", "1")
    assert is_extra()


@pytest.mark.processes
def test_no_worker_is_left_if_a_later_one_can_not_start(tmp_path, monkeypatch):
    (tmp_path / "running" / "process-3.log").mkdir(parents=True)
    monkeypatch.setattr(module, "COMMAND", "import time; time.sleep(600)")
    popen = subprocess.Popen
    started = []

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(OSError, match="process-3"), extra_processes(2, [], tmp_path, "cpu"):
        pass
    assert [process.poll() for process in started] == [-signal.SIGTERM]
