"""The table of docs/SPEC.md, section 6, value by value: in the files, in composed configs, and in planned cells."""

from dataclasses import fields
from typing import Any

import pytest

from dlmexp import catalogue
from dlmexp.config import BetaConfig, TrainingConfig
from dlmexp.plan.compose import compose
from dlmexp.plan.grid import betas
from tests.support.cells import planned
from tests.support.protocol_table import BETAS, PLAIN, SELECTIONS, TABLE
from tests.support.protocol_table import betas as expected_betas


def cells(*words: str, rows: int = 600):
    """The largest beta's cell of every method."""
    return {some.method: some.cells[0] for some in planned(*words, "seeds=[0]", rows=rows)}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if isinstance(value, int | float | str | list | None) else vars(value)


@pytest.mark.parametrize("protocol", TABLE)
def test_every_value_of_the_table(protocol):
    cfg = compose(["dataset=banana", f"protocol={protocol}"])
    assert cfg.protocol == protocol
    assert cfg.selection == SELECTIONS[protocol]
    assert cfg.beta == BetaConfig(**BETAS[protocol])
    for n in (37, 500, 10_000):
        assert betas(cfg.beta, n) == pytest.approx(expected_betas(protocol, n))
    assert set(cfg.training) == set(TABLE[protocol])
    for kind, expected in TABLE[protocol].items():
        made = {name: plain(getattr(cfg.training[kind], name)) for name in expected}
        assert made == expected, kind


@pytest.mark.parametrize("protocol", TABLE)
def test_nothing_of_the_table_is_left_to_defaults_in_the_code(protocol):
    file = catalogue.entries("protocol")[protocol]
    assert file["defaults"] == [{"override /beta": "grid" if protocol == "paper" else protocol}]
    for kind, expected in TABLE[protocol].items():
        every = {field.name for field in fields(TrainingConfig)} - {"noise_floor"}  # of the anatomy experiment alone
        assert set(file["training"][kind]) == set(expected) == every, kind


def test_released_fitc_takes_its_hyperparameters_from_the_elbo_fit():
    made = cells("dataset=cadata", "protocol=released", "method=[elbo,fitc,fixed_log_dlm]", "sizes=[50]")
    assert made["fitc"].base == made["fixed_log_dlm"].base == made["elbo"].key


@pytest.mark.parametrize(("protocol", "q"), [("paper", 2), ("released", 1), ("annealed", 1)])
@pytest.mark.parametrize(("experiment", "dataset"), [("class-log", "banana"), ("count-log", "abalone")])
def test_parameterisations_of_the_experiments_that_compare_them(experiment, dataset, protocol, q):
    words = [f"experiment={experiment}", f"dataset={dataset}", f"protocol={protocol}", "seeds=[0]", "sizes=[50]"]
    names = {cell.parameterisation for some in planned(*words) for cell in some.cells}
    assert len(names) == q
    assert ("whitened" in names) == (protocol != "released")


NOISE = "training.regression.initial.noise=0.3"


@pytest.mark.parametrize(
    ("words", "noise", "form"),
    [
        ([NOISE], (0.3, 0.3, 0.3), "explicit"),
        (["training.regression.initial={noise:0.3}"], (0.3, 0.3, 0.3), "explicit"),
        ([NOISE, "training.regression.by_method.beta_elbo.initial.noise=2"], (0.3, 2.0, 0.3), "explicit"),
        (["collapsed=true"], (0.1, 1.0, 1.0), "collapsed"),
        (["~training.regression.by_method.beta_elbo", "collapsed=true"], (0.1, 0.1, 1.0), "collapsed"),
    ],
)
def test_what_is_typed_for_all_methods_holds_for_those_the_protocol_treats_apart(words, noise, form):
    methods = ("elbo", "beta_elbo", "joint_log_dlm")
    made = cells("dataset=cadata", "protocol=released", f"method=[{','.join(methods)}]", "sizes=[50]", *words)
    assert tuple(made[name].initial.get("noise", 0.1) for name in methods) == noise
    assert made["beta_elbo"].form == form


@pytest.mark.parametrize(("own", "lr"), [((), 0.05), (("training.count.estimator_lr.ups=0.02",), 0.02)])
def test_a_learning_rate_typed_for_counts_is_that_of_ups(own, lr):
    words = ["dataset=abalone", "method=[joint_log_dlm]", "estimator=[ups]", "sizes=[50]"]
    assert cells(*words, "training.count.lr=0.05", *own)["joint_log_dlm"].lr == lr


@pytest.mark.parametrize(("protocol", "n"), [("paper", 500), ("annealed", 2000)])  # all rows, and minibatches
def test_airline_type_data_has_one_learning_rate_and_estimators_their_own(protocol, n):
    words = ["dataset=airline_like", "method=[joint_log_dlm]", "beta=list", f"sizes=[{n}]", f"protocol={protocol}"]
    own = ["estimator=[exact,ups]", "+training.large.estimator_lr.ups=0.03"]
    made = planned(*words, *own, "seeds=[0]", rows=5000)
    assert {some.cells[0].estimator: some.cells[0].lr for some in made} == {"exact": 1e-3, "ups": 0.03}


def test_the_protocol_is_told_of_candidates_and_is_in_no_key():
    words = ["dataset=airline_like", "method=[joint_log_dlm]", "beta=list", "beta.values=[1]", "seeds=[0]"]
    one, other = (
        planned(*words, f"protocol={name}", "parameterisation=[whitened]", *more, rows=5000)[0]
        for name, more in (("paper", []), ("released", [f"training.large.initial.{n}=1" for n in PLAIN]))
    )
    assert one.cells[0].key == other.cells[0].key, "what two protocols share is computed once"
    assert (one.setting.protocol, other.setting.protocol) == ("paper", "released")
    assert (one.setting.selection, other.setting.selection) == ("reported", "nll")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ((), 1000),
        (("protocol=released",), 1000),
        (("protocol=annealed",), 20000),
        (("protocol=annealed", "training.binary.max_iterations=7000"), 7000),
        (("protocol=annealed", "preset=quick"), 200),
    ],
)
def test_the_limit_of_the_default_job_gives_way_to_a_decay(words: tuple[str, ...], limit: int):
    """Under every protocol it can be run as it stands, and under `annealed` it has converged where it stops."""
    assert {cell.max_iterations for some in planned("experiment=default", *words) for cell in some.cells} == {limit}
