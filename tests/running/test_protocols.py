"""Protocols in training: where cells start, and how they step."""

from typing import cast

import numpy as np
import pytest
import torch

from dlmexp.data.dataset import Dataset
from dlmexp.data.spec import Task
from dlmexp.plan.compose import compose
from dlmexp.running.device import select_target
from dlmexp.running.programs import program, settings
from dlmexp.running.sweep import prepare_sweep, prepared_splits
from tests.support.protocol_table import SELECTIONS, TABLE, betas

CPU = select_target("cpu", "float64")
M = 8


def drawn(spec, rows):
    """Data of a dataset's task, of so many rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=rows)
    return Dataset(
        spec.name, cast(Task, spec.task), X, f if spec.task == "regression" else (f > 0).astype(float), "sum"
    )


DATA = {  # kind of data -> dataset, rows, and sizes on both sides of where minibatches begin
    "regression": ("cadata", 9000, (60, 6001)),
    "binary": ("banana", 100, (40,)),
    "count": ("abalone", 100, (40,)),
    "large": ("airline", 2010, (60, 1001)),
}
METHODS = ["elbo", "beta_elbo", "ppgpr", "joint_log_dlm", "fixed_log_dlm"]
CLOSED = ("elbo", "beta_elbo", "fitc", "joint_sq_dlm", "fixed_sq_dlm")  # over q, in regression


@pytest.mark.slow
@pytest.mark.parametrize("protocol", TABLE)
@pytest.mark.parametrize("kind", DATA)
def test_every_value_of_the_table_in_programs_and_settings(kind, protocol, monkeypatch):
    """As cells would be trained; of each grid of betas its ends."""
    dataset, rows, sizes = DATA[kind]
    methods = [*METHODS, *CLOSED[2:]] if kind == "regression" else METHODS
    monkeypatch.setattr("dlmexp.running.sweep.load", lambda spec, root: drawn(spec, rows))
    estimators = "exact,ups" if kind == "count" else "exact"
    sweep = prepare_sweep(compose([
        f"dataset={dataset}", f"protocol={protocol}", f"method=[{','.join(methods)}]", f"estimator=[{estimators}]",
        "parameterisation=[all]", f"sizes={list(sizes)}", "seeds=[0]", f"M={M}", "device=cpu",
    ]))  # fmt: skip
    prepared, row = prepared_splits(sweep), TABLE[protocol][kind]
    for some in sweep.candidates:
        selects = some.method not in ("elbo", "ppgpr", "fitc")
        grid = betas(protocol, some.cells[0].n) if selects else [None if some.method == "fitc" else 1.0]
        assert [cell.beta for cell in some.cells] == grid
        assert (some.setting.protocol, some.setting.selection) == (protocol, SELECTIONS[protocol])
        ends = tuple({cell.key: cell for cell in (some.cells[0], some.cells[-1])}.values())
        how = None if ends[0].solved else settings(ends[0], CPU)
        for cell in ends:
            check_trained(cell, some.method, kind, row, how, program(ends, prepared, None, CPU))
    explicit = {cell.parameterisation for cell in sweep.cells if cell.form == "explicit"}
    assert explicit == {*row["parameterisation"]}


def check_trained(cell, method, kind, row, how, made):
    """A cell, the settings it was trained with and the program that was made of it have the values of the table."""
    own = row["by_method"].get(method, {"variant": None, "collapsed": None, "initial": {}})
    closed = kind == "regression" and method in CLOSED and own["collapsed"] is not False
    assert cell.form == ("collapsed" if closed else "explicit")
    assert cell.variant == (own["variant"] or ("fixed" if method.startswith("fixed") else "joint"))
    minibatch = row["minibatch"] if row["minibatch"] and cell.n > row["minibatch"] and not closed else None
    fresh = minibatch is not None and row["minibatch_rows"] == "afresh"
    assert (cell.minibatch, cell.minibatch_rows == "afresh") == (made.model.minibatch, made.model.afresh)
    assert (cell.minibatch, made.model.afresh, cell.epochs) == (minibatch, fresh, row["epochs"])
    assert made.model.whitened == (cell.parameterisation == "whitened")
    if how is None:
        assert closed
        assert cell.variant == "fixed", "nothing is left to train"
        return
    usual = row["minibatch_lr"] if minibatch else row["lr"]
    stops = {"tolerance": row["tolerance"], "criterion": row["criterion"]} if row["window"] else {}
    expected = {
        "lr": row["estimator_lr"].get(cell.estimator, usual), "window": row["window"], "tolerance": None,
        "criterion": "mean", **stops, **{name: row[name] for name in ("final_lr", "decay", "epsilon", "resolution")},
    }  # fmt: skip
    assert {name: getattr(cell, name) for name in expected} == expected
    assert {name: getattr(how, name) for name in expected} == {**expected, "tolerance": expected["tolerance"] or 0.0}
    assert cell.max_iterations == how.iterations == row["max_iterations"]
    values = made.initial()
    if cell.variant == "joint":
        hyper, start = made.hyperparameters(values), {**row["initial"], **own["initial"]}
        for name, value in start.items():
            torch.testing.assert_close(hyper[name], torch.full_like(hyper[name], value))
        assert cell.inducing == row["inducing"]
        X = made.split.X[0]
        assert torch.equal(hyper["Z"][0], X[-M:] if row["inducing"] == "last" else X[:M])
    if not closed:
        assert torch.equal(values["L"][0], torch.eye(M).double()) == made.model.whitened
