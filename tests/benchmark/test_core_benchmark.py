"""The command prints what it measured, judges it, and refuses what it does not know."""

import pytest

from dlmexp.benchmark.core import Line, main


def test_memory_of_a_step_keeps_its_promise(capsys):
    assert main(["memory", "--device", "cpu"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "peak memory" in line]
    assert len(lines) == 4
    assert all(line.endswith("kept") and "NOT" not in line for line in lines)


def test_a_promise_not_kept_is_said_so():
    assert "NOT KEPT" in str(Line("speed", 3.0, "x", 4.0, at_least=True))
    assert "NOT KEPT" in str(Line("time", 5.0, "ms", 4.0))
    assert Line("time", 3.0, "ms", 4.0).kept
    assert Line("time", 3.0, "ms").kept


def test_unknown_part(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["memroy"])
    assert stopped.value.code == 2
    assert "memroy" in capsys.readouterr().err
