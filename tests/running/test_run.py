"""`dlmexp run` in this process: plans, the results folder, beta grids, and runs that are interrupted."""

import pytest

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.running.run import execute, prepare_results_folder


def test_plan_says_what_there_is_and_writes_nothing(here, tiny, capsys):
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"])) == 0
    said = capsys.readouterr().out
    assert "18 cells: 0 done, 0 failed, 18 to run in 6 batches" in said
    assert list(here.iterdir()) == []


def test_plan_after_a_run(here, tiny, capsys):
    assert execute(compose(tiny)) == 0
    capsys.readouterr()
    assert execute(compose([*tiny, "plan=true"])) == 0
    assert "18 cells: 18 done, 0 failed, 0 to run in 0 batches" in capsys.readouterr().out


def test_prepare_results_folder(tmp_path):
    prepare_results_folder(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't write there"):
        prepare_results_folder(tmp_path / "file")
