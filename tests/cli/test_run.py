"""`dlmexp run`: mistakes cost one sentence and nothing else; Hydra's own flags work."""

import subprocess
import sys

import pytest

from dlmexp.cli import NO_MEMORY_TO_LOAD, main
from dlmexp.experiment.records.store import Store
from tests.support.cells import scored
from tests.support.processes import TINY

MISTAKES = {  # what is typed: what the sentence names
    "sede=[0]": "seeds",
    "+sede=[0]": "seeds",
    "++training.binary.lrr=1": "training.binary.lr",
    "training.max_iter=10": "training.max_iterations",
    "estimator.ups.samples=5": "estimator=ups",
    "n=100": "sizes=",
    "test_cap=50": "dataset.NAME.test_cap=",
    "likelihood=gaussian": "binary data",
    "csv.pth=x": "csv.path",
    "dataset=bananna": "banana",
    "method=ELBO": "elbo",
    "experiment=class_log": "class-log",
    "experiment=": "reg-log",
    "dataset=null": "dataset=null",
    "nonsense": "nonsense",
    "sizes=[1,2": "sizes=[1,2",
    "M=1.5": "1.5",
    "training.regression.by_method={}": "~training.regression.by_method.NAME",
    "csv.path=x.csv": "dataset=csv",
    "training.binary.estimator_lr.bmc=1": "+training.binary.estimator_lr.bmc",
    "++csv.drop={X:": "quotes",
    "sizes=[1000000]": "1000000",
    "beta=[]": "beta.values=[]",
    "seeds=[]": "seeds=[]",
    "seeds=0": "seeds=0",
    "workers=1000": "workers=1000",
    "training.lr=1e10": "lr=1e+10",
    "results=": "results=",
    "-plan=true": "plan=true",
    "--seeds 5": "seeds=",
    "--mutlirun": "--multirun",
    "-x": "-x",
    "--cfg jobb": "jobb",
    "--cfg job dataset=bananna": "banana",
    "budget=20": "25min",
    "--config-dir nowhere": "nowhere",
    "-m dataset=banana,bananna": "bananna",
    "-m sizes=[20],[-1]": "-1",
    "dataset=banana data_root=nowhere": "banana",
    "device=gpu": "cpu",
    "training.binary.max_iterations=9999999999999999999": "max_iterations=9999999999999999999",
    f"dataset={'x' * 5000}": "xxx",
    "dataset=csv": "csv.task",
    "dataset=csv csv.task=regresion": "regresion",
    "dataset=csv csv.task=binary": "csv.path",
    "dataset=csv csv.task=binary csv.path=x.csv": "csv.target",
    "dataset=csv csv.task=count csv.path=x csv.target=y csv.name=m dataset.m.M=5": "dataset.csv.M=",
    "dataset=csv csv.task=binary csv.path=x.csv csv.target=y csv.name=ringnorm": "ringnorm",
    f"dataset=csv csv.task=binary csv.path=x.csv csv.target=y csv.name={'x' * 300}": "xxx",
    "csv.missing=zero": "csv.missing=zero",
    "estimator=[ups] estimator.ups.samples=[[1]]": "samples",
    "dataset=ringnorm_drawn name=records": "name=records",
    "dataset=ringnorm_drawn name=a/b": "name=a/b",
    "dataset=ringnorm_drawn name=''": "name=",
    "dataset=ringnorm_drawn results=/dev/null/results": "/dev/null/results",
    "sizes=['1e9999999%']": "1e9999999%",
    "dataset.ringnorm_drawn.options.checks=5": "checks",
}


# Composing takes a while: every third is enough for a fast look.
SOME = [
    pytest.param(typed, marks=[pytest.mark.slow] if i % 3 else [])
    for i, typed in enumerate(MISTAKES)
]


@pytest.mark.parametrize("typed", SOME)
def test_a_mistake_is_one_sentence_exit_code_2_and_nothing_written(typed, here, refused):
    refused(["run", *typed.split()], MISTAKES[typed])


def own_file(here, group: str, text: str) -> None:
    (here / "conf" / group).mkdir(parents=True)
    (here / "conf" / group / "mine.yaml").write_text(text)


IN_A_FILE = {"sedes: [0]": "seeds", "batch_cells: many": "many", "x: [": "mine.yaml"}


@pytest.mark.parametrize("line", IN_A_FILE)
def test_a_mistake_in_a_file_of_a_user_names_the_file(line, here, refused):
    own_file(here, "experiment", f"# @package _global_\n{line}\n")
    refused(
        ["run", "experiment=mine", "dataset=ringnorm_drawn", "--config-dir", "conf"],
        "mine",
        IN_A_FILE[line],
    )


def test_the_composed_config(here, capsys):
    assert main(["run", "dataset=[pol,banana]", "--cfg", "job", "seeds=[3]"]) == 0
    said = capsys.readouterr().out
    assert "seeds:\n- 3\n" in said
    assert "  banana:\n    name: banana" in said
    assert "  pol:\n    name: pol" in said
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_run_and_again_with_a_torn_record_and_with_a_failed_one(here, capfd):
    """A plan counts the torn one as missing; the failed one makes exit code 1 until it is
    retried."""
    words, store = ["run", *TINY, "seeds=[0]"], Store("results")
    assert main(words) == 0
    said = capfd.readouterr().out
    assert "9 of 9 cells done, 0 failed" in said
    assert "batch 1/3" in said
    assert main([*words, "-m", "method=[elbo],[joint_log_dlm]"]) == 0
    said = capfd.readouterr().out
    assert "4 of 4 cells done, 0 failed" in said
    assert "batch" not in said
    path = next(store.records.rglob("*.json"))
    record = store.read(path)
    assert record is not None
    path.write_text("torn")
    before = sorted(here.rglob("*"))
    assert main([*words, "plan=true"]) == 0
    assert "1 to run in 1 batch\n" in capfd.readouterr().out
    for launched in (["-m"], ["-m", "hydra/launcher=slurm"]):
        assert main([*words, *launched, "plan=true"]) == 0
        assert "1 job to run, with 1 cell\n" in capfd.readouterr().out
    assert sorted(here.rglob("*")) == before
    path.unlink()
    store.write(scored(record.cell, "failed"))
    assert main(words) == 1
    said = capfd.readouterr().out
    assert "8 of 9 cells done, 1 failed" in said
    assert "retry_failed=true" in said
    assert main([*words, "retry_failed=true"]) == 0


def test_a_plugins_objective_of_a_wrong_shape_is_refused_before_anything_is_written(
    here, refused, monkeypatch
):
    from dlmexp.core.gp.posterior import kl
    from dlmexp.core.objectives import OBJECTIVES, Objective

    wrong = Objective(
        "wrong",
        row_loss=lambda likelihood, estimator, q_f, y, draws: (q_f.mean.mean(), None),
        regulariser=kl,
    )
    monkeypatch.setitem(OBJECTIVES._items, "wrong", wrong)
    own_file(here, "method", "# @package method.mine\nobjective: wrong\n")
    for words in (["plan=true"], []):
        typed = ["run", *TINY, "method=mine", "--config-dir", "conf", *words]
        refused(typed, "objective 'wrong': the loss of row_loss")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("reason", NO_MEMORY_TO_LOAD)
def test_library_that_does_not_fit_into_memory_is_one_line(here, reason):
    # A limit of the system's would do too, but some libraries then end the process themselves.
    (here / "torch.py").write_text(f"raise ImportError('libtorch_cpu.so: {reason}')\n")
    command = [sys.executable, "-m", "dlmexp", "run", "dataset=ringnorm_drawn"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "not enough memory" in ended.stderr
    assert "Traceback" not in ended.stderr
