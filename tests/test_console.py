"""Tables that do not fold in a log, counts in the right number."""

import pytest
from rich.table import Table

from dlmexp.console import LOG_WIDTH, counted, wide_console


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
    ],
)
def test_counted(number, what, said):
    assert counted(number, what) == said
