"""`dlmexp benchmark core` prints measurements and refuses unknown parts."""

import pytest

from dlmexp.benchmark.core import main


def test_memory_of_a_step_meets_its_limit(capsys):
    assert main(["memory", "--device", "cpu"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "peak memory" in line]
    assert len(lines) == 4
    assert all(line.endswith("met") and "NOT" not in line for line in lines)


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["memroy"])
    assert stopped.value.code == 2
    assert "memroy" in capsys.readouterr().err
