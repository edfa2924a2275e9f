"""Tables that do not fold in a log, counts in the right number."""

import pytest
from rich.table import Table

from dlmexp.console import LOG_WIDTH, budget_seconds, counted, duration, speed, wide_console
from dlmexp.errors import UserError


def test_wide_where_there_is_no_terminal(capsys):
    table = Table(*("x" * 25 for _ in range(4)))
    wide_console().print(table)
    assert LOG_WIDTH > 4 * 25
    assert ("x" * 25) in capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("number", "what", "said"),
    [
        (0, "cell", "0 cells"),
        (1, "cell", "1 cell"),
        (2, "cell", "2 cells"),
        (1, "batch", "1 batch"),
        (3, "batch", "3 batches"),
        (4, "process", "4 processes"),
    ],
)
def test_counted(number, what, said):
    assert counted(number, what) == said


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (90, "90 s"), (120, "2 min"), (7199, "120 min"), (12240, "3.4 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0 it/s"), (0.333, "0.33 it/s"), (8.51, "8.5 it/s"), (1204, "1204 it/s")]
)
def test_speed(rate, text):
    assert speed(rate) == text


@pytest.mark.parametrize(("budget", "expected"), [(None, None), ("90s", 90), ("25min", 1500), ("1.5h", 5400)])
def test_budgets(budget, expected):
    assert budget_seconds(budget) == expected


@pytest.mark.parametrize("budget", ["", "5", "soon", "-3s"])
def test_budgets_that_are_none(budget):
    with pytest.raises(UserError, match="write it as 90s, 25min or 2h"):
        budget_seconds(budget)
