"""`dlmexp benchmark gpu` at small sizes on a CPU: its measurements, not their values."""

import pytest
import torch

from dlmexp.benchmark.gpu import Shape, block, main, model_steps
from dlmexp.benchmark.gpytorch_model import Classifier, gpytorch_step
from dlmexp.training.trial import synthetic_data

pytestmark = pytest.mark.slow


def test_steps_of_gpytorch_and_ours():
    lines = model_steps(Shape(40, 6, 3, 4, min_speedup=1e9), "cpu", 0.05)
    assert [line.unit for line in lines] == ["/s", "/s", "x", "/s", "x"]
    assert all(line.value > 0 for line in lines)
    assert not lines[-1].meets_limit


def test_the_block_is_extrapolated_from_the_iterations_of_our_cells():
    overrides = ["sizes=[20,30]", "seeds=[0]", "beta=list", "beta.values=[0.1,1]", "training.binary.max_iterations=3"]
    ours, theirs, speedup = block("ringnorm_drawn", "cpu", overrides)
    assert "12 cells" in ours.name
    assert "6 models" in theirs.name
    assert speedup.value == pytest.approx(theirs.value / ours.value)


def test_a_gpytorch_batch_agrees_with_a_single_model():
    X, y = (part[0] for part in synthetic_data(1, 30, 3, "probit", "cpu"))
    alone, batch = Classifier(X[:5]).double(), Classifier(X[:5].expand(3, 5, -1)).double()
    for step in (gpytorch_step(X, y, 5, "log_dlm", B=3), gpytorch_step(X, y, 5, "elbo", only_q=True)):
        step()
    with torch.no_grad():
        torch.testing.assert_close(batch(X).variance, alone(X).variance.expand(3, 30))


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["shaeps"])
    assert stopped.value.code == 2
    assert "shaeps" in capsys.readouterr().err
