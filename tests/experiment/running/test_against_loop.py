"""A run of the command line against the plain reference, one cell at a time."""

import pytest
import torch

from dlmexp import reference
from dlmexp.cli import main
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import prepare
from dlmexp.experiment.records.store import Store

pytestmark = pytest.mark.slow

M, WINDOW, TOLERANCE, LIMIT = (
    8,
    15,
    5e-3,
    60,
)  # rounding grows with every step at lr 0.1: not too many of them
JOBS = {  # dataset: kind of data, cells of a seed, and words
    "banana": ("binary", 7, ["method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]", "sizes=[50]"]),
    "abalone": ("count", 5, ["method=[elbo,joint_log_dlm,fixed_log_dlm]", "sizes=[50]"]),
    "cadata": (
        "regression",
        12,
        [
            "method=[elbo,beta_elbo,fitc,joint_log_dlm,fixed_log_dlm,joint_sq_dlm,fixed_sq_dlm]",
            "sizes=[60]",
        ],
    ),
}


def trained(cell, data, held):
    """The model of a cell, by the reference."""
    return reference.train(
        torch.tensor(data.X_train),
        torch.tensor(data.y_train),
        cell.likelihood,
        cell.objective,
        beta=1.0 if cell.beta is None else cell.beta,
        M=M,
        learns_mean=cell.mean == "constant",
        collapsed=cell.form == "collapsed",
        held=held,
        lr=0.1,
        iterations=LIMIT,
        window=WINDOW,
        tolerance=TOLERANCE,
    )


def metrics_of(cell, model, data):
    """The metrics of a model on the test rows."""
    X = torch.tensor(data.X_test)
    y = torch.tensor(data.y_test)
    mean = model.mean(X)
    metrics = {}
    if cell.objective != "sq_dlm":
        metrics["nll"] = model.log_loss(X, y)
    if cell.task == "regression":
        metrics["mse"] = (mean - y).square().mean().item()
    elif cell.task == "binary":
        metrics["error"] = ((mean > 0.5) != (y > 0.5)).double().mean().item()
    else:
        metrics["mre"] = ((mean - y).abs() / y.clamp(min=1)).mean().item()
    return metrics


@pytest.mark.parametrize("dataset", JOBS)
def test_a_run_equals_the_reference_cell_by_cell(dataset, data_root, here):
    kind, cells, words = JOBS[dataset]
    limits = {"window": WINDOW, "tolerance": TOLERANCE, "max_iterations": LIMIT}
    words += [f"training.{kind}.{name}={value}" for name, value in limits.items()]
    words += [
        f"dataset={dataset}",
        f"dataset.{dataset}.M={M}",
        "seeds=[0,1]",
        "beta=list",
        "beta.values=[8,0.3]",
    ]
    assert main(["run", *words, f"data_root={data_root}", "device=cpu"]) == 0
    records = sorted(
        Store(here / "results").own_records(), key=lambda record: record.cell.base is not None
    )
    assert len(records) == 2 * cells
    spec = read_spec(dataset)
    rows = load(spec, data_root)
    bases = {}
    stops = set()
    for record in records:
        cell = record.cell
        held = bases.get(cell.base)
        assert (held is None) == (cell.variant == "joint")
        data = prepare(rows, spec, cell.seed, cell.n)
        model = trained(cell, data, held)
        bases[record.key] = model.hyperparameters
        is_solved = cell.variant == "fixed" and cell.form == "collapsed"
        assert record.result.iterations == (0 if is_solved else len(model.objective))
        expected = metrics_of(cell, model, data)
        measured = {name: record.result.test[name] for name in expected}
        assert measured == pytest.approx(expected, rel=1e-6, abs=1e-6), cell
        stops.add(record.result.stopped)
    assert "limit" in stops
    assert ("converged" in stops) == (dataset != "abalone")
