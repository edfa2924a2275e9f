"""`dlmexp benchmark gpu` at small sizes on a CPU: its measurements, not their values."""

import pytest
import torch

from dlmexp.benchmark.gpu import COLUMNS, block, main, shape_row
from dlmexp.benchmark.gpytorch_model import SparseGP, gpytorch_step
from dlmexp.benchmark.shapes import Shape
from dlmexp.benchmark.streams import in_flight, product_rate, steps_per_second
from dlmexp.benchmark.watts import Watts, watts_of
from dlmexp.errors import UserError
from dlmexp.running.engine import Capacity
from dlmexp.training.trial import synthetic_data


@pytest.mark.slow
@pytest.mark.parametrize("form", ["explicit", "collapsed"])
def test_a_row_has_all_figures_and_knows_its_aims(form):
    row, met = shape_row(Shape(40, 6, 3, 4, form, aim=1e12), "cpu", 0.05, 1e9)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == len(COLUMNS)
    what, alone, everything, aim, watts, share, batched, one = cells
    assert "n=40 M=6 d=3 B=4" in what
    assert float(alone) > 0
    assert everything.endswith("(1)")
    assert aim.endswith("NOT MET")
    assert not met
    assert watts == "-"
    assert float(share.strip("%")) >= 0
    assert float(batched) > 0
    assert float(one) > 0


def test_as_many_batches_as_a_run_has_in_flight(monkeypatch):
    batch = Shape(100, 10, 3, 4).batch()
    assert in_flight(batch, "cpu") == 1
    entries = 4 * 100 * 10
    for limits, expected in ((Capacity(12, 1e9, 1e12), 12), (Capacity(12, 2.5 * entries, 1e12), 3)):
        monkeypatch.setattr(Capacity, "of", lambda _, limits=limits: limits)
        assert in_flight(batch, "cpu") == expected


@pytest.mark.slow
def test_steps_of_several_batches_have_a_rate():
    assert steps_per_second(Shape(10, 3, 2, 1).batch(), 2, "cpu", 3, 0.01) > 0


def test_products_have_a_rate():
    assert product_rate("cpu", 0.01) > 1e7


def test_watts_are_a_mean_or_a_dash(monkeypatch):
    monkeypatch.setattr("dlmexp.benchmark.watts.EVERY_SECONDS", 1e-3)
    values = iter([100.0, 200.0])

    def read():
        if (value := next(values, None)) is None:
            raise OSError("gone")
        return value

    with Watts(read) as watts:
        watts._thread.join()
    assert (watts.mean, str(watts)) == (150.0, "150")
    with watts_of("cpu") as nothing:
        pass
    assert (nothing.mean, str(nothing)) == (None, "-")


def test_without_a_gpu_it_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="there is no CUDA device here"):
        main(["shapes"])


@pytest.mark.slow
@pytest.mark.processes
def test_the_block_is_extrapolated_from_the_iterations_of_our_cells():
    overrides = ["sizes=[20,30]", "seeds=[0]", "beta=list", "beta.values=[0.1,1]", "training.binary.max_iterations=3"]
    ours, theirs, speedup = block("ringnorm_drawn", "cpu", overrides)
    assert "12 cells" in ours.name
    assert "6 models" in theirs.name
    assert speedup.value == pytest.approx(theirs.value / ours.value)


def test_a_gpytorch_batch_agrees_with_a_single_model():
    X, y = (part[0] for part in synthetic_data(1, 30, 3, "probit", "cpu"))
    alone, batch = SparseGP(X[:5]).double(), SparseGP(X[:5].expand(3, 5, -1)).double()
    for step in (gpytorch_step(X, y, 5, "log_dlm", B=3), gpytorch_step(X, y, 5, "elbo", only_q=True)):
        step()
    with torch.no_grad():
        torch.testing.assert_close(batch(X).variance, alone(X).variance.expand(3, 30))


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["shaeps"])
    assert stopped.value.code == 2
    assert "shaeps" in capsys.readouterr().err
