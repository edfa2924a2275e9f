"""`dlmexp run` in this process: plans, the results folder, beta grids, and runs that are interrupted."""

import os
import signal

import pytest

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.running.progress import PlainProgress
from dlmexp.running.run import execute, prepare_results_folder

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    "grid",
    [["beta.smallest=0.1"], ["beta.ratio=4"], ["beta=list", "beta.values=[100,50]"], ["beta=short"]],
    ids=["smallest", "ratio", "values", "short"],
)
def test_every_beta_grid_ends_with_a_line_for_every_method(here, tiny, capsys, grid):
    arguments = [argument for argument in tiny if not argument.startswith(("beta", "training"))]
    assert execute(compose([*arguments, "training.binary.max_iterations=8", *grid])) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    table = lines[next(i for i, line in enumerate(lines) if line[:4] == ["dataset", "n", "M", "method"]) :]
    shown = [line[3] for line in table if line[:2] == ["ringnorm_drawn", "20"]]
    assert sorted(shown) == ["beta_elbo", "elbo", "fixed_log_dlm", "joint_log_dlm"]


def test_two_grids_in_one_folder_are_selected_apart(here, tiny, capsys):
    """The second grid has the betas of the first and better ones; a run selects among what it asked for."""
    arguments = [argument for argument in tiny if not argument.startswith("beta.values")]
    shown = []
    for values in ("[10,1]", "[10,1,0.1,0.01]", "[10,1]"):
        assert execute(compose([*arguments, f"beta.values={values}"])) == 0
        shown.append([line for line in capsys.readouterr().out.splitlines() if " beta_elbo  " in line])
    assert len(shown[0]) == 1
    assert shown[0] == shown[2] != shown[1]


def test_an_interrupted_run_says_how_many_candidates_are_missing(here, tiny, capsys, monkeypatch):
    plain, finished = PlainProgress.finished, []

    def interrupt_after_two(self, record):
        plain(self, record)
        finished.append(record)
        if len(finished) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(PlainProgress, "finished", interrupt_after_two)
        assert execute(compose([*tiny, "batch_cells=2"])) == 128 + signal.SIGTERM
    said = capsys.readouterr().out
    assert "stopped by SIGTERM: everything is saved, 16 cells to do; the same command goes on from here" in said
    assert {(record.cell.seed, record.cell.beta) for record in finished} == {(0, 10.0), (0, 1.0)}
    for message in (
        "\nelbo on ringnorm_drawn, n = 20: 1 of 2 candidates (betas x seeds) have no record yet\n",
        "\nbeta_elbo on ringnorm_drawn, n = 20: 4 of 6 candidates (betas x seeds) have no record yet\n",
        "\njoint_log_dlm on ringnorm_drawn, n = 20: 6 of 6 candidates (betas x seeds) have no record yet\n",
    ):
        assert message in said
    assert execute(compose([*tiny, "batch_cells=2"])) == 0
    said = capsys.readouterr().out
    assert "18 of 18 cells done, 0 failed" in said
    assert "no record yet" not in said


def test_the_cells_of_a_checkpoint_count_also_where_one_of_them_is_asked_for(here, tiny, monkeypatch):
    words, shown, finished = [*tiny, "method=[elbo]"], [], PlainProgress.finished

    def interrupt(self, cells, training):
        os.kill(os.getpid(), signal.SIGTERM)

    def noting(self, record):
        finished(self, record)
        shown.append((self.settled, self.total, self.seconds_left >= 0))

    with monkeypatch.context() as patched:
        patched.setattr(PlainProgress, "tick", interrupt)
        assert execute(compose(words)) == 128 + signal.SIGTERM
    monkeypatch.setattr(PlainProgress, "finished", noting)
    assert execute(compose([*words, "seeds=[0]"])) == 0
    assert shown == [(1, 2, True), (2, 2, True)]
