"""Jobs of the writer: in order, and what they raise reaches the one who trains."""

import threading
import time

import pytest

from dlmexp.running.signals import Stop
from dlmexp.running.writer import Writer


@pytest.mark.parametrize("beside", [False, True])
def test_in_order(beside):
    done = []
    with Writer(beside) as writer:
        for i in range(100):
            writer.do(lambda i=i: done.append((i, threading.current_thread() is threading.main_thread())))
    assert done == [(i, not beside) for i in range(100)]


def _full():
    raise OSError(28, "No space left on device")


def test_what_fails_in_the_thread_is_raised_at_the_next_call():
    done, writer = [], Writer(True)
    writer.__enter__()
    writer.do(_full)
    writer._jobs.join()
    with pytest.raises(OSError, match="No space"):
        writer.do(lambda: done.append(1))
    assert not done


def test_at_the_latest_when_it_ends():
    with pytest.raises(OSError, match="No space"), Writer(True) as writer:
        writer.do(_full)


def test_another_error_is_not_hidden_by_it():
    writer = Writer(True)
    writer.__enter__()
    writer.do(_full)
    assert writer.__exit__(KeyError, KeyError(), None) is None


def test_a_run_that_stops_does_not_say_that_all_is_saved():
    writer = Writer(True)
    writer.__enter__()
    writer.do(_full)
    with pytest.raises(OSError, match="No space"):
        writer.__exit__(Stop, Stop(15), None)


@pytest.mark.parametrize("beside", [False, True])
def test_waiting(beside):
    done = []
    with Writer(beside) as writer:
        writer.do(lambda: (time.sleep(0.02), done.append(1)))
        writer.wait()
        assert done == [1]


def test_what_failed_is_raised_to_whoever_waits():
    writer = Writer(True)
    writer.__enter__()
    writer.do(_full)
    with pytest.raises(OSError, match="No space"):
        writer.wait()
