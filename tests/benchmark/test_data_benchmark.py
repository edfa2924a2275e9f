"""The data benchmark, on small files."""

import pytest

from dlmexp.benchmark.data import main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["airline", "song", "data_expo"])
def test_small_files_meet_the_limits(case, capsys, tmp_path):
    assert main([case, "--rows", "2000", "--folder", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert line[0] == case
    assert line[-1] == "met"
    assert list(tmp_path.iterdir()) == []


def test_unknown_cases_are_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["airlin"])
    assert stop.value.code == 2
