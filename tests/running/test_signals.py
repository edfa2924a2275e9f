"""Being asked to stop."""

import os
import signal

import pytest

from dlmexp.errors import UserError
from dlmexp.running.signals import BUDGET_SPENT, Stop, StopRequest, seconds


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_the_first_signal_is_noted_and_obeyed_later(number):
    with StopRequest() as stop:
        stop.obey()
        os.kill(os.getpid(), number)
        assert stop.received == number
        with pytest.raises(Stop, match=number.name) as asked:
            stop.obey()
        assert asked.value.code == 128 + number


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


def test_a_budget_asks_in_the_same_way():
    with StopRequest(0.0) as stop, pytest.raises(Stop, match="budget") as asked:
        stop.obey()
    assert asked.value.code == BUDGET_SPENT
    with StopRequest(3600.0) as stop:
        stop.obey()


@pytest.mark.parametrize(("budget", "expected"), [(None, None), ("90s", 90), ("25min", 1500), ("1.5h", 5400)])
def test_budgets(budget, expected):
    assert seconds(budget) == expected


@pytest.mark.parametrize("budget", ["", "5", "soon", "-3s"])
def test_budgets_that_are_none(budget):
    with pytest.raises(UserError, match="write it as 90s, 25min or 2h"):
        seconds(budget)
