"""`dlmexp benchmark gpu` at small sizes on a CPU: its measurements, not their values."""

import os
import sys

import pytest
import torch

from dlmexp.benchmark import whole_paper
from dlmexp.benchmark.gpu import COLUMNS, block, main, shape_row
from dlmexp.benchmark.gpytorch_model import SparseGP, gpytorch_step
from dlmexp.benchmark.shapes import Shape
from dlmexp.benchmark.streams import in_flight, product_rate, steps_per_second
from dlmexp.benchmark.watts import Watts, watts_of
from dlmexp.benchmark.whole_paper import Ran, run_paper
from dlmexp.errors import UserError
from dlmexp.running.schedule import Capacity
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
        monkeypatch.setattr("dlmexp.benchmark.streams.capacity", lambda _, limits=limits: limits)
        assert in_flight(batch, "cpu") == expected


def test_several_batches_in_flight_are_all_counted(monkeypatch):
    made = []

    def step_like(batch, features, target):
        made.append([0])

        def step(count=made[-1]):
            count[0] += 1

        return step

    monkeypatch.setattr("dlmexp.benchmark.streams.step_like", step_like)
    assert steps_per_second(Shape(10, 3, 2, 1).batch(), 2, "cpu", 3, 0.01) > 0
    assert len(made) == 3
    assert len({count for (count,) in made}) == 1


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


def test_an_extrapolation_is_labelled_as_one():
    part = Ran(done=40, failed=10, cells=100, seconds=300.0, share=0.25, watts="412", estimate="about 9 min")
    assert part.whole == 1200
    _, _, before, _, said = part.lines()
    assert before == "estimate before the first step: about 9 min"
    assert said.startswith("EXTRAPOLATED, not measured: the whole in 20 min (aim 10 min, NOT MET)")
    whole = Ran(done=99, failed=1, cells=100, seconds=500.0, share=0.9, watts="-", estimate="")
    assert whole.whole == 500
    assert whole.lines()[-1] == "the whole paper took 8 min (aim 10 min, met)"


@pytest.mark.slow
@pytest.mark.processes
def test_a_bounded_run_is_counted(tmp_path, monkeypatch):
    words = ["dataset=ringnorm_drawn", "sizes=[20,30]", "seeds=[0]", "beta=[0.1,1]", "method=[elbo,joint_log_dlm]",
             "training.binary.max_iterations=3"]  # fmt: skip
    ran = run_paper("cpu", 5, kept=tmp_path / "results", words=words)
    assert (ran.done, ran.failed, ran.cells) == (6, 0, 6)
    assert ran.complete
    assert ran.share == 1
    assert len(list((tmp_path / "results" / "records").glob("*/*.json"))) == 6
    with pytest.raises(UserError, match="name a folder that is empty"):
        run_paper("cpu", 5, kept=tmp_path / "results", words=words)
    assert "6 of 6 cells done" in (tmp_path / "results" / "run.log").read_text()
    monkeypatch.setattr("dlmexp.benchmark.whole_paper._followed", lambda *_: (2, ""))
    with pytest.raises(UserError, match=r"experiment=papper .* exit code 2"):
        run_paper("cpu", 5, words=["experiment=papper"])


@pytest.mark.processes
def test_what_a_run_says_of_time_and_memory_is_shown(tmp_path, capsys):
    lines = [
        "banana: 3 batches of 12 cells: about 9 min (7 to 12)",
        "a batch",
        "  out of memory with 4 cells at once: x",
    ]
    command = [sys.executable, "-c", f"print({chr(10).join(lines)!r})"]
    code, said = whole_paper._followed(command, os.environ, tmp_path / "new")
    assert (code, said.splitlines()) == (0, lines)
    assert capsys.readouterr().out.splitlines() == [f"the run: {line.strip()}" for line in (lines[0], lines[2])]
    assert (tmp_path / "new" / "run.log").read_text() == said


def test_without_a_gpu_it_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="there is no CUDA device here"):
        main(["paper", "--minutes", "1"])


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
