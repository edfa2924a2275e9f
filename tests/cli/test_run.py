"""`dlmexp run`: mistakes cost one sentence and nothing else; Hydra's own flags work."""

import random
import subprocess
import sys

import pytest

from dlmexp.cli import main
from tests.support import overrides

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=5", "sizes=[20]",
    "seeds=[0]", "beta=list", "beta.values=[1,0.1]", "device=cpu", "training.binary.max_iterations=20",
]  # fmt: skip

MISTAKES = {  # what is typed: what the sentence names
    "sede=[0]": "seeds", "+sede=[0]": "seeds", "++training.binary.lrr=1": "training.binary.lr",
    "experment=class-log": "experiment",
    "training.max_iter=10": "training.max_iterations", "estimator.ups.samples=5": "estimator=ups", "n=100": "sizes=",
    "kernel=rbf": "dataset.NAME.kernel=", "csv.pth=x": "csv.path", "dataset=bananna": "banana",
    "method=ELBO": "elbo", "experiment=class_log": "class-log", "experiment=": "reg-log",
    "protocol=publshed": "released",
    "dataset=null": "dataset=null", "nonsense": "nonsense", "sizes=[1,2": "sizes=[1,2", "M=1.5": "1.5",
    "plan=maybe": "maybe",
    "training.regression.by_method={}": "~training.regression.by_method.NAME", "csv.path=x.csv": "dataset=csv",
    "training.binary.estimator_lr.bmc=1": "+training.binary.estimator_lr.bmc",
    "++csv.drop={X:": "quotes", "sizes=[1000000]": "1000000",
    "beta=[]": "beta.values=[]", "seeds=[]": "seeds=[]", "seeds=[0,0]": "[0, 0]", "workers=1000": "workers=1000",
    "training.lr=1e10": "lr=10000000000", "results=": "results=", "-plan=true": "plan=true", "--seeds 5": "seeds=VALUE",
    "--mutlirun": "--multirun", "-x": "-x", "--cfg jobb": "jobb", "--cfg job dataset=bananna": "banana",
    "budget=20": "25min", "--config-dir nowhere": "nowhere", "-m dataset=banana,bananna": "bananna",
    "-m sizes=[20],[-1]": "-1", "dataset=banana data_root=nowhere": "banana", "device=gpu": "cpu",
    "dataset=csv": "csv.task", "dataset=csv csv.task=regresion": "regresion", "dataset=csv csv.task=binary": "csv.path",
    "dataset=csv csv.task=binary csv.path=x.csv": "csv.target", "hydra/launcher=slurm": "-m",
    "-sc nonsense": "nonsense",
    "dataset=csv csv.task=binary csv.path=x.csv csv.target=y csv.name=mall dataset.mall.M=5": "dataset.csv.M=",
    "dataset=csv csv.task=binary csv.path=x.csv csv.target=y csv.name=ringnorm": "ringnorm",
    f"dataset=csv csv.task=binary csv.path=x.csv csv.target=y csv.name={'x' * 300}": "xxx",
    "estimator=[ups] estimator.ups.samples=[[1]]": "samples",
    "sizes=['1e9999999%']": "1e9999999%", "dataset.ringnorm_drawn.options.checks=5": "checks",
}  # fmt: skip


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_sentence_exit_code_2_and_nothing_written(typed, here, capsys):
    assert main(["run", *typed.split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dlmexp: ")
    assert said.count("\n") == 1
    assert MISTAKES[typed] in said
    assert len(said) < 1500
    assert list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("settings", 30), ("groups", 10)])
def test_whatever_is_typed_gives_a_plan_or_one_sentence_and_writes_nothing(kind, count, here, monkeypatch):
    """`scripts/fuzz MINUTES overrides` tries more."""
    monkeypatch.setenv("DLMEXP_DATA", str(here / "nowhere"))
    for words in getattr(overrides, kind)(random.Random(0), count):
        assert overrides.wrong([*overrides.BASE, *words]) is None, words
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("typed", "named"), [("stats", "status"), ("status --wach", "--watch"), ("data fech", "fetch")]
)
def test_commands_and_options_have_the_nearest_names_and_their_own_help(typed, named, capsys):
    assert main(typed.split()) == 2
    said = capsys.readouterr().err
    assert f"did you mean {named}" in said
    assert f"dlmexp {typed.split()[0]} --help" in said or typed == "stats"


@pytest.mark.parametrize(("line", "value"), [("sedes: [0]", "seeds"), ("M: many", "many"), ("x: [", "mine.yaml")])
def test_a_mistake_in_a_file_of_a_user_names_the_file(line, value, here, capsys):
    (here / "conf" / "experiment").mkdir(parents=True)
    (here / "conf" / "experiment" / "mine.yaml").write_text(f"# @package _global_\nname: mine\n{line}\n")
    assert main(["run", "experiment=mine", "dataset=ringnorm_drawn", "--config-dir", "conf"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "mine" in said
    assert value in said


@pytest.mark.processes
def test_a_refused_override_needs_no_torch(here):
    code = "import sys; from dlmexp.cli import main; codes = [main(['run', word]) for word in sys.argv[1:]]"
    words = ["dataset=bananna", "device=gpu", "training.lr=1e10"]
    code += "; sys.exit(codes != [2, 2, 2] or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_composed_config_and_plan(here, capsys):
    assert main(["run", "dataset=[pol,banana]", "--cfg", "job", "seeds=[3]"]) == 0
    said = capsys.readouterr().out
    assert "seeds:\n- 3\n" in said
    assert "  banana:\n    name: banana" in said
    assert "  pol:\n    name: pol" in said
    assert main(["run", *TINY, "plan=true"]) == 0
    assert "6 cells: 0 done, 0 failed, 6 to run in 3 batches" in capsys.readouterr().out
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_run_and_again_and_a_plan_that_counts_a_torn_record_as_missing(here, capfd):
    assert main(["run", *TINY]) == 0
    said = capfd.readouterr().out
    assert "6 of 6 cells done, 0 failed" in said
    assert "batch 1/3" in said
    assert main(["run", "-m", *TINY, "method=[elbo],[joint_log_dlm]"]) == 0
    said = capfd.readouterr().out
    assert "3 of 3 cells done, 0 failed" in said
    assert "batch" not in said
    torn = next((here / "results" / "records").rglob("*.json"))
    torn.write_text("torn")
    before = sorted(here.rglob("*"))
    for words in ([], ["-m"]):
        assert main(["run", *words, *TINY, "plan=true"]) == 0
        assert "1 to run in 1 batch\n" in capfd.readouterr().out
    assert sorted(here.rglob("*")) == before


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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dlmexp st", {"status"}),
        ("dlmexp status --", {"--failed", "--watch", "--json"}),
        ("dlmexp data fetch aba", {"abalone"}),
        ("dlmexp plot --protocol re", {"released"}),
        ("dlmexp run data", {"dataset=", "data_root="}),
        ("dlmexp run dataset=[pol,ca", {"dataset=[pol,cadata"}),
        ("dlmexp run experiment=class", {"experiment=class-log", "experiment=class-err"}),
        ("dlmexp run training.binary.cr", {"training.binary.criterion="}),
        ("dlmexp run dtype=", {"dtype=float64", "dtype=float32"}),
    ],
)
def test_shell_completion(line, expected, capsys, monkeypatch):
    monkeypatch.setenv("COMP_LINE", line)
    assert main(["-sc", "query"]) == 0
    assert expected <= set(capsys.readouterr().out.split())
    assert main(["run", "-sc", "install=bash"]) == 0
    assert "complete" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["-sc", "-sc install", "-sc query=bash", "-sc nonsense"])
def test_flags_that_lack_something(words, capfd, here, monkeypatch):
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert main(["run", *words.split()]) == 2
    said = capfd.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1


def test_a_plugins_objective_of_a_wrong_shape_is_refused_before_anything_is_written(here, capsys, monkeypatch):
    from dlmexp.gp.posterior import kl
    from dlmexp.objectives import OBJECTIVES, Objective

    wrong = Objective("wrong", row_loss=lambda *given: (given[2].mean(), None), regulariser=kl)
    monkeypatch.setitem(OBJECTIVES._things, "wrong", wrong)
    (here / "conf" / "method").mkdir(parents=True)
    (here / "conf" / "method" / "mine.yaml").write_text("# @package method.mine\nobjective: wrong\n")
    for words in (["plan=true"], []):
        assert main(["run", *TINY, "method=mine", "--config-dir", "conf", *words]) == 2
        assert "objective 'wrong': the loss of row_loss" in capsys.readouterr().err
        assert [path.name for path in here.iterdir()] == ["conf"]
