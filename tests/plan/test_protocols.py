"""The table of docs/SPEC.md, section 6, value by value: in the files, in composed configs, and in planned cells."""

from dataclasses import fields
from typing import Any

import pytest

from dlmexp import catalogue
from dlmexp.config import BetaConfig, TrainingConfig
from dlmexp.plan.compose import compose
from dlmexp.plan.grid import UNTRAINED
from tests.support.cells import planned
from tests.support.protocol_table import BETAS, PLAIN, SELECTIONS, TABLE, betas


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if isinstance(value, int | float | str | list | None) else vars(value)


@pytest.mark.parametrize("protocol", TABLE)
def test_every_value_of_the_table_is_in_the_files_and_none_left_to_defaults(protocol):
    cfg, file = compose(["dataset=banana", f"protocol={protocol}"]), catalogue.entries("protocol")[protocol]
    assert (cfg.protocol, cfg.selection) == (protocol, SELECTIONS[protocol])
    assert cfg.beta == BetaConfig(**BETAS[protocol])
    assert file["defaults"] == [{"override /beta": "grid" if protocol == "paper" else protocol}]
    assert set(cfg.training) == set(TABLE[protocol])
    every = {field.name for field in fields(TrainingConfig)} - {"noise_floor"}  # of the anatomy experiment alone
    for kind, expected in TABLE[protocol].items():
        assert {name: plain(getattr(cfg.training[kind], name)) for name in expected} == expected, kind
        assert set(file["training"][kind]) == set(expected) == every, kind


DATA = {  # kind of data -> dataset, and sizes on both sides of where minibatches begin
    "regression": ("cadata", [60, 6001]),
    "binary": ("banana", [40]),
    "count": ("abalone", [40]),
    "large": ("airline_like", [60, 1001]),
}
CLOSED = ("elbo", "beta_elbo", "fitc", "joint_sq_dlm", "fixed_sq_dlm")  # over q, in regression
METHODS = ["elbo", "beta_elbo", "ppgpr", "joint_log_dlm", "fixed_log_dlm"]
USUAL = {**PLAIN, "noise": 0.1}  # where a model starts by itself


@pytest.mark.slow
@pytest.mark.parametrize("protocol", TABLE)
@pytest.mark.parametrize("kind", DATA)
def test_every_value_of_the_table_is_in_cells(kind, protocol):
    (dataset, sizes), row = DATA[kind], TABLE[protocol][kind]
    methods = [*METHODS, *CLOSED[2:]] if kind == "regression" else METHODS
    words = [f"dataset={dataset}", f"protocol={protocol}", f"method=[{','.join(methods)}]", f"sizes={sizes}"]
    words += ["seeds=[0]", "parameterisation=[all]", "estimator=[exact,ups]" if kind == "count" else "estimator=exact"]
    made = planned(*words, rows=10_000)
    bases = {some.cells[0].key for some in made if some.method == "elbo"}
    for some in made:
        cell, method = some.cells[0], some.method
        own = row["by_method"].get(method, {"variant": None, "collapsed": None, "initial": {}})
        closed = kind == "regression" and method in CLOSED and own["collapsed"] is not False
        fixed = (own["variant"] or method[:5]) == "fixed"
        assert (cell.variant, cell.base in bases) == (("fixed", True) if fixed else ("joint", False))
        assert cell.form == ("collapsed" if closed else "explicit")
        minibatch = row["minibatch"] if row["minibatch"] and cell.n > row["minibatch"] and not closed else None
        start = {} if fixed else {**row["initial"], **own["initial"]}
        expected = {
            **{name: row[name] for name in UNTRAINED if name != "lr"},
            "lr": row["estimator_lr"].get(cell.estimator, row["minibatch_lr" if minibatch else "lr"]),
            "minibatch": minibatch,
            "minibatch_rows": row["minibatch_rows"] if minibatch else "epochs",
            "epochs": row["epochs"],
            "inducing": "first" if fixed else row["inducing"],
            "initial": {name: value for name, value in start.items() if value != USUAL[name]},
            **({} if row["window"] else {"tolerance": None, "criterion": "mean"}),
            **(UNTRAINED if closed and fixed else {}),
        }
        assert {name: getattr(cell, name) for name in expected} == expected
        selects = method not in ("elbo", "ppgpr", "fitc")
        grid = betas(protocol, cell.n) if selects else [None if method == "fitc" else 1.0]
        assert [cell.beta for cell in some.cells] == pytest.approx(grid)
        assert (some.setting.protocol, some.setting.selection) == (protocol, SELECTIONS[protocol])
    explicit = {some.cells[0].parameterisation for some in made if some.cells[0].form == "explicit"}
    assert explicit == {*row["parameterisation"]}
