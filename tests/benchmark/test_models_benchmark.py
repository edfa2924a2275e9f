"""`dlmexp benchmark models` prints measurements and refuses unknown parts."""

import pytest

from dlmexp.benchmark.models import main


def test_memory_of_predictions_meets_its_limit(capsys):
    assert main(["memory", "--device", "cpu", "--rows", "20000"]) == 0
    assert "peak memory" in capsys.readouterr().out


def test_predictions_are_compared(capsys):
    main(["predict", "--device", "cpu", "--rows", "300"])
    assert capsys.readouterr().out.count("times as fast as GPyTorch") == 2


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["memroy"])
    assert stopped.value.code == 2
