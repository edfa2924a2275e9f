"""`dlmexp run`: mistakes cost one sentence and nothing else; Hydra's own flags work."""

import os
import subprocess
import sys

import pytest

from dlmexp.cli import main

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "seeds=[0]", "beta=list", "beta.values=[1,0.1]", "device=cpu", "training.binary.max_iterations=20",
]  # fmt: skip

MISTAKES = {
    "misspelt key": (["sede=[0]"], ["there is no setting 'sede'", "seeds"]),
    "misspelt nested key": (["training.binary.lrr=1"], ["training.binary.lr"]),
    "unknown dataset": (["dataset=bananna"], ["there is no dataset 'bananna'", "banana"]),
    "one unknown of several": (["dataset=[banana,cadat]"], ["there is no dataset 'cadat'", "cadata"]),
    "unknown method": (["method=[elbow]"], ["there is no method 'elbow'", "elbo"]),
    "unknown experiment": (["experiment=class_log"], ["there is no experiment 'class_log'", "class-log"]),
    "a method for regression": ([*TINY, "method=[joint_sq_dlm]"], ["joint_sq_dlm is for regression", "joint_log_dlm"]),
    "negative size": ([*TINY, "sizes=[-20]"], ["size '-20'"]),
    "empty grid": ([*TINY, "beta.values=[]"], ["beta.values=[]", "the grid is empty"]),
    "no seeds": ([*TINY, "seeds=[]"], ["seeds=[]", "the grid is empty"]),
    "bad device": ([*TINY, "device=gpu"], ["device=gpu", "cpu"]),
    "bad number": ([*TINY, "batch_cells=many"], ["batch_cells", "many"]),
    "a setting with dashes": (["--seeds", "5"], ["unknown option '--seeds'", "seeds=VALUE"]),
    "unknown option": (["--mutlirun"], ["unknown option '--mutlirun'", "--multirun"]),
    "unknown short option": (["-x"], ["can't read 'run -x'", "-x"]),
    "unknown kind of config": (["--cfg", "jobb"], ["jobb"]),
    "a mistake in a config to print": (["--cfg", "job", "dataset=bananna"], ["did you mean banana"]),
    "a budget without a unit": ([*TINY, "budget=20"], ["budget=20", "25min"]),
    "samples of an estimator that has none": ([*TINY, "estimator.exact.samples=[3]"], ["exact takes no options"]),
    "a name that is not theirs": (
        ["dataset=csv", "csv.path=x.csv", "csv.target=y", "csv.task=binary", "csv.name=ringnorm"],
        ["the name 'ringnorm' belongs to a dataset of ours"],
    ),
    "own table, and other data": ([*TINY, "csv.path=x.csv"], ["csv.path=x.csv", "dataset=csv"]),
    "no such folder": (["--config-dir", "nowhere"], ["there is no such folder"]),
    "own table without a file": (["dataset=csv"], ["csv"]),
    "in a multirun": (["-m", "dataset=banana,bananna"], ["there is no dataset 'bananna'"]),
    "in the second job of a multirun": (["-m", *TINY, "sizes=[20],[-1]"], ["size '-1'"]),
    "no data": (["dataset=banana", "data_root=nowhere"], ["nothing can be run", "'banana' is missing"]),
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_exit_code_2_and_nothing_written(mistake, here, capsys):
    words, expected = MISTAKES[mistake]
    assert main(["run", *words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("dlmexp: ")
    assert said.err.count("\n") == 1
    for part in expected:
        assert part in said.err
    assert list(here.iterdir()) == []


def test_composed_config(here, capsys):
    assert main(["run", "dataset=[pol,banana]", "seeds=[3]", "--cfg", "job"]) == 0
    said = capsys.readouterr().out
    assert "seeds:\n- 3\n" in said
    assert "  banana:\n    name: banana" in said
    assert "  pol:\n    name: pol" in said
    assert list(here.iterdir()) == []


def test_composed_config_of_the_default_job(here, capsys):
    assert main(["run", "--cfg", "job"]) == 0
    assert "name: default" in capsys.readouterr().out


def test_plan(here, capsys):
    assert main(["run", *TINY, "plan=true"]) == 0
    said = capsys.readouterr().out
    assert "6 cells: 0 done, 0 failed, 6 to run in 3 batches" in said
    assert list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["-m"]])
def test_a_plan_counts_a_torn_record_as_missing_and_leaves_it_where_it_is(here, capsys, words):
    assert main(["run", *TINY, "method=[elbo]"]) == 0
    torn = next((here / "results" / "records").rglob("*.json"))
    torn.write_text("torn")
    before = sorted(here.rglob("*"))
    capsys.readouterr()
    assert main(["run", *words, *TINY, "method=[elbo]", "plan=true"]) == 0
    assert "1 to run in 1 batch\n" in capsys.readouterr().out
    assert sorted(here.rglob("*")) == before


@pytest.mark.slow
def test_default_job_as_planned(here, capsys):
    assert main(["run", "plan=true", "device=cpu"]) == 0
    said = capsys.readouterr().out
    assert "ringnorm_drawn" in said
    # 3 seeds x (3 methods x 5 betas at either size, and at n = 200, whose grid lacks it, the ELBO at beta 1).
    assert "93 cells" in said


@pytest.mark.slow
def test_run_and_again(here, capsys):
    assert main(["run", *TINY]) == 0
    said = capsys.readouterr().out
    assert "6 of 6 cells done, 0 failed" in said
    assert "batch 1/3" in said
    assert main(["run", *TINY]) == 0
    assert "batch" not in capsys.readouterr().out


@pytest.mark.slow
def test_multirun(here, capfd):
    assert main(["run", "-m", *TINY, "method=[elbo],[joint_log_dlm]"]) == 0
    assert "3 of 3 cells done, 0 failed" in capfd.readouterr().out


@pytest.mark.slow
def test_multirun_plan_writes_nothing(here, capfd):
    assert main(["run", "-m", *TINY, "method=[elbo],[joint_log_dlm]", "plan=true"]) == 0
    said = capfd.readouterr().out
    assert "1 cell: 0 done" in said
    assert "2 cells: 0 done" in said
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_a_failed_cell_makes_exit_code_1(here, capsys, monkeypatch):
    import torch

    from dlmexp.training.program import Program

    plain = Program.value

    def poisoned(self, *given):
        value = plain(self, *given)
        return value._replace(objective=torch.where(self.beta == 1.0, torch.nan, 1.0) * value.objective)

    with monkeypatch.context() as patched:
        patched.setattr(Program, "value", poisoned)
        assert main(["run", *TINY, "method=[beta_elbo]"]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 cells done, 1 failed" in said
    assert "retry_failed=true" in said
    assert main(["run", *TINY, "method=[beta_elbo]"]) == 1, "it still is failed"
    assert main(["run", *TINY, "method=[beta_elbo]", "retry_failed=true"]) == 0


def test_a_users_own_conf_folder(here, capsys):
    (here / "conf" / "experiment").mkdir(parents=True)
    lines = ["# @package _global_", "defaults:", "  - override /dataset: [ringnorm_drawn]"]
    lines += ["  - override /method: [elbo]", "name: mine"]
    (here / "conf" / "experiment" / "mine.yaml").write_text("\n".join(lines) + "\n")
    words = [word for word in TINY if not word.startswith("dataset=")]
    assert main(["run", "experiment=mine", *words, "--config-dir", "conf"]) == 0
    assert (here / "results" / "mine" / "cells").is_dir()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dlmexp run data", {"dataset=", "data_root="}),
        ("dlmexp run dataset=ban", {"dataset=banana"}),
        ("dlmexp run method=joint", {"method=joint_log_dlm", "method=joint_sq_dlm"}),
        ("dlmexp run experiment=class", {"experiment=class-log", "experiment=class-err"}),
    ],
)
def test_shell_completion(line, expected, tmp_path):
    environment = os.environ | {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    words = [sys.executable, "-c", "from dlmexp.cli import main; import sys; sys.exit(main())", "-sc", "query=bash"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert expected <= set(done.stdout.split()), done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["-sc", "-sc install", "-sc query=bash", "-sc nonsense", "--info nonsense"])
def test_flags_of_hydra_that_lack_something(words, capfd, here, monkeypatch):
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert main(["run", *words.split()]) == 2
    said = capfd.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("words", ["--hydra-help seeds=3", "--hydra-help dataset=nowhere", "--info"])
def test_flags_of_hydra_that_print_something(words, capfd, here):
    assert main(["run", *words.split()]) == 0
    said = capfd.readouterr()
    assert said.out
    assert not said.err


@pytest.mark.processes
def test_installing_shell_completion(capfd, here):
    assert main(["run", "-sc", "install=bash"]) == 0
    assert "complete" in capfd.readouterr().out
