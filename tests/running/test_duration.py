"""What a run says of its duration, before it starts and with `plan=true`."""

import pytest

from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running import duration as module
from dlmexp.running.cost import Pace
from dlmexp.running.duration import Prediction, predicted
from dlmexp.running.pace import Measured
from dlmexp.running.processes import EXTRA_PROCESS
from dlmexp.running.run import execute
from dlmexp.running.sweep import plan_sweep, prepare_sweep

WORDS = ["dataset=ringnorm_drawn", "method=[elbo,joint_log_dlm]", "sizes=[1000]", "seeds=[0,1]", "device=cpu"]
SMALL = ["dataset=ringnorm_drawn", "method=[elbo]", "sizes=[20]", "seeds=[0]", "device=cpu"]


@pytest.fixture(autouse=True)
def no_trials(monkeypatch):
    """A pace that is not measured; what runs teach is noted."""
    lessons = []

    def measured(batches, expected, rows, device):
        pace = Pace(1e-3, 1e-10)
        assert all(seconds > 0 for seconds in expected(module.Costs(pace, dict(rows))))
        assert rows["ringnorm_drawn"].features == 20
        assert rows["ringnorm_drawn"].test == 1000
        return Measured(pace, 2.0, True, 0.75, "here")

    monkeypatch.setattr(module, "measured_pace", measured)
    monkeypatch.setattr(module, "learn", lambda key, found: lessons.append((key, found)))
    return lessons


def prediction(words, results):
    sweep, store = prepare_sweep(compose(words)), Store(results)
    return predicted(plan_sweep(sweep, store, "cpu", None), sweep, store, "cpu", 1)


def test_a_long_run_is_predicted_once_and_a_short_one_not_at_all(tmp_path, monkeypatch):
    found = prediction(WORDS, tmp_path)
    assert isinstance(found, Prediction)
    assert found.sentence.startswith("36 cells in 3 batches: ")
    assert "about" in found.sentence
    assert "if no cell converges before its limit" in found.sentence
    assert "others slow down 2.0 times" in found.sentence
    assert "75%" in found.basis
    assert "similar fits" in found.basis
    assert prediction(SMALL, tmp_path) is None
    monkeypatch.setenv(EXTRA_PROCESS, "1")
    assert prediction(WORDS, tmp_path) is None


def test_the_plan_shows_what_the_estimate_is_made_of(tmp_path, capsys):
    assert execute(compose([*WORDS, f"results={tmp_path / 'results'}", "plan=true"])) == 0
    said = capsys.readouterr().out
    assert "ms/model-step" in said
    assert "pace remembered and checked just now" in said
    assert "iterations from: 100% similar fits" in said
    assert not (tmp_path / "results").exists()


def test_a_run_says_it_first_teaches_at_its_end_and_tells_the_next_one(tmp_path, monkeypatch, capsys, no_trials):
    monkeypatch.setattr(module, "is_short", lambda plan: False)
    words = [*SMALL, "training.binary.max_iterations=4", f"results={tmp_path}"]
    assert execute(compose([*words, "beta=list", "beta.values=[1]"])) == 0
    assert capsys.readouterr().out.startswith("1 cell in 1 batch: about ")
    ((key, found),) = no_trials
    assert key == "here"
    ((took, expected),) = found.values()
    assert took > 0
    assert expected > 0
    sweep, store = prepare_sweep(compose([*words, "seeds=[0,1]", "beta=list", "beta.values=[1]"])), Store(tmp_path)
    known = predicted(plan_sweep(sweep, store, "cpu", None), sweep, store, "cpu", 1)
    assert known is not None
    assert set(known.forecast.sources()) == {"fits done here"}


def test_a_machine_that_is_not_busy_is_not_mentioned(tmp_path, monkeypatch):
    measured = module.measured_pace
    monkeypatch.setattr(module, "measured_pace", lambda *args: measured(*args)._replace(load=1.1, remembered=False))
    found = prediction(WORDS, tmp_path)
    assert found is not None
    assert "slow down" not in found.sentence
    assert "of a trial just now" in found.basis
    assert found.forecast.load == 1.1
