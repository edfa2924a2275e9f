"""`dlmexp benchmark estimate` and `experiments` on runs of a second, with a made-up pace."""

import os

import pytest

from dlmexp.benchmark import estimate, experiments
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir
from dlmexp.plan.compose import compose
from dlmexp.plan.shorthand import spelled_out
from dlmexp.running import duration
from dlmexp.running import run as run_module
from dlmexp.running.cost import Pace
from dlmexp.running.pace import Measured

WORDS = ("dataset=ringnorm_drawn", "method=[elbo]", "sizes=[20]", "seeds=[0]", "beta=[1]", "training.max_iterations=4")


@pytest.fixture
def pace(monkeypatch):
    seen = []

    def measured(batches, expected, rows, device):
        seen.append(os.environ["DLMEXP_CACHE"])
        return Measured(Pace(1e-3, 1e-10), 2.0, False, 1.0, "here")

    monkeypatch.setattr(duration, "measured_pace", measured)
    monkeypatch.setattr(duration, "is_short", lambda plan: False)
    return seen


@pytest.mark.parametrize("cold", [False, True])
def test_an_estimate_is_compared_with_what_the_run_takes(pace, cold):
    before = run_module.predicted, os.environ["DLMEXP_CACHE"]
    lines = {line.name.partition(": ")[2]: line for line in estimate.compared("x", WORDS, "cpu", cold)}
    likely, took = lines["estimated"].value, lines["took"].value
    assert lines["least by its range"].value < likely <= lines["most by its range"].value
    assert took > 0
    assert lines["estimate off by"].value == pytest.approx(100 * abs(likely / took - 1))
    assert lines["estimate off by"].limit == 25
    assert (run_module.predicted, os.environ["DLMEXP_CACHE"]) == before
    assert (pace == [before[1]]) is not cold


def test_a_run_that_is_too_short_has_no_estimate(capsys):
    assert list(estimate.compared("x", WORDS, "cpu")) == []
    assert "x: too short for an estimate" in capsys.readouterr().out


def test_what_is_estimated_exists():
    for words in estimate.QUICK.values():
        assert compose(spelled_out(words)).dataset
    whole = [*experiments.EXPERIMENTS.values(), *estimate.WHOLE.values()]
    named = {words[0].removeprefix("experiment=") for words in whole}
    assert named <= {path.stem for path in (conf_dir() / "experiment").glob("*.yaml")}


def test_names_and_words_do_not_mix():
    with pytest.raises(SystemExit):
        estimate.main(["class-log", "seeds=[0]", "--device", "cpu"])
    with pytest.raises(UserError, match="no experiment is named so"):
        experiments.main(["clas-log"])


def test_the_table_leaves_out_the_load_and_what_has_no_data(pace, tmp_path, monkeypatch):
    cells, said = experiments.estimated((*WORDS, "seeds=2"), "cpu", 1)
    assert cells == "2"
    assert said == "seconds"
    monkeypatch.setenv("DLMEXP_DATA", str(tmp_path))
    assert experiments.estimated(("dataset=banana",), "cpu", 1) == ("-", "-")
