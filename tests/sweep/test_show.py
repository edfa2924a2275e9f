"""Tables that do not fold in a log."""

from rich.table import Table

from dlmexp.sweep.show import LOG_WIDTH, wide_console


def test_wide_where_there_is_no_terminal(capsys):
    table = Table(*("x" * 25 for _ in range(4)))
    wide_console().print(table)
    assert LOG_WIDTH > 4 * 25
    assert ("x" * 25) in capsys.readouterr().out.splitlines()[1]
