"""Requests to stop, by signals and by a budget."""

import os
import signal

import pytest

from dlmexp.running.signals import BUDGET_SPENT, Stop, StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_the_first_signal_is_noted_and_raised_later(number):
    with StopRequest() as stop:
        stop.raise_if_requested()
        os.kill(os.getpid(), number)
        assert stop.received == number
        with pytest.raises(Stop, match=number.name) as request:
            stop.raise_if_requested()
        assert request.value.code == 128 + number


def test_a_second_ctrl_c_interrupts_at_once():
    with StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)}
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_spent_budget_is_a_request_too():
    with StopRequest(0.0) as stop, pytest.raises(Stop, match="budget") as request:
        stop.raise_if_requested()
    assert request.value.code == BUDGET_SPENT
    with StopRequest(3600.0) as stop:
        stop.raise_if_requested()
