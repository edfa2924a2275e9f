"""The settings of records, found from cells that were planned with known ones."""

from collections.abc import Iterable
from functools import cache
from typing import cast

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp import catalogue
from dlmexp.config import TrainingConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.spec import Task
from dlmexp.gp.kernels import kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.plan import grid
from dlmexp.plan.cell import FIELDS, Candidates
from dlmexp.plan.compose import compose
from dlmexp.plan.protocols import INITIAL, trained
from dlmexp.records.manifest import manifest
from dlmexp.records.results import Results
from dlmexp.records.settings import MODEL, PLAIN, UNWRITTEN, Setting, of_experiment, run_words
from dlmexp.records.store import Store
from tests.support.made_up import fit

# Small and large n: minibatches begin in between.
JOBS = {
    "regression": ["dataset=pol", "method=[elbo,beta_elbo,fitc,joint_log_dlm,fixed_log_dlm,joint_sq_dlm,fixed_sq_dlm]",
                   "sizes=[100,7000]"],
    "binary": ["dataset=banana", "parameterisation=[all]", "sizes=[100]"],
    "count": ["dataset=abalone", "estimator=[exact,ups,bmc]", "sizes=[100]"],
    "large": ["dataset=airline", "evaluate=epoch", "beta=list", "sizes=[2000]"],
}  # fmt: skip
ROWS = {"pol": 15000, "banana": 5300, "abalone": 4177, "airline": 110000}


@cache
def planned(*words: str) -> list[Candidates]:
    """What a run with these overrides would ask for, with two seeds. Most tests ask for the same ones."""
    cfg = compose([*words, "seeds=[0,1]"])
    ((name, file),) = cfg.dataset.items()
    X, y = np.zeros((ROWS[name], 3)), np.zeros(ROWS[name])
    return list(grid.candidates(cfg, file, Dataset(name, cast(Task, file.task), X, y, "made-up")))


def results(several: Iterable[Candidates]) -> Results:
    records = {cell.key: fit(cell, nll=0.1) for some in several for cell in some.cells}
    return Results(Store("nowhere"), records.values(), manifest("mine", several).candidates)


@pytest.mark.parametrize("protocol", ["paper", "released", "converged"])
@pytest.mark.parametrize("kind", JOBS)
def test_what_a_protocol_asks_for_has_its_name_alone(kind: str, protocol: str) -> None:
    found = results(planned(*JOBS[kind], f"protocol={protocol}"))
    assert {found.settings.of(one).label for one in found.choices} == {protocol}


CHANGED = [
    ("binary", "training.binary.lr=0.01", {"training.lr": 0.01}),
    ("binary", "training.binary.lr=0.01 training.binary.max_iterations=200",
     {"training.lr": 0.01, "training.max_iterations": 200}),
    ("binary", "training.binary.window=30 training.binary.tolerance=0.01", {"training.window": 30,
                                                                             "training.tolerance": 0.01}),
    ("binary", "training.binary.epochs=3", {"training.epochs": 3}),
    ("binary", "training.binary.minibatch=50 training.binary.minibatch_lr=0.02",
     {"training.minibatch": 50, "training.minibatch_lr": 0.02}),
    ("binary", "training.binary.initial.lengthscale=2", {"training.initial.lengthscale": 2.0}),
    ("binary", "training.binary.final_lr=0.001 training.binary.decay=100",
     {"training.final_lr": 0.001, "training.decay": 100}),
    ("binary", "dataset.banana.M=20", {"M": 20}),
    ("binary", "dataset.banana.kernel=matern52", {"kernel": "matern52"}),
    ("binary", "beta=short", {"beta": "n, n/10, ... >= 0.01"}),
    ("binary", "selection=nll", {"selection": "nll"}),
    ("binary", "dtype=float32", {"dtype": "float32"}),
    ("count", "training.count.estimator_lr.ups=0.03", {"training.estimator_lr.ups": 0.03}),
    ("count", "training.count.minibatch=50", {"training.minibatch": 50}),
    ("count", "estimator.ups.sampler=rejection", {"estimator.ups.sampler": "rejection"}),
    ("regression", "training.regression.lr=0.05", {"training.lr": 0.05}),
    ("regression", "training.regression.minibatch_lr=0.001", {"training.minibatch_lr": 0.001}),
    ("regression", "training.regression.lr=0.05 training.regression.minibatch_lr=0.01",
     {"training.lr": 0.05, "training.minibatch_lr": 0.01}),
    ("regression", "training.regression.inducing=last", {"training.inducing": "last"}),
    ("regression", "training.regression.initial.noise=1", {"training.initial.noise": 1.0}),
    ("large", "training.large.epochs=5", {"training.epochs": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "words", "changes"), CHANGED)
def test_what_was_changed_is_found_and_nothing_else(kind: str, words: str, changes: dict) -> None:
    """Together with all that the protocol itself asks for, as in a folder with both."""
    plain, other = planned(*JOBS[kind]), planned(*JOBS[kind], *words.split())
    found = results([*plain, *other])
    setting = PLAIN.changed(changes)
    at_hand = found.settings.at_hand(found.choices, [PLAIN])
    assert set(at_hand) == {PLAIN, setting}
    for one, several in ((PLAIN, plain), (setting, other)):
        expected = {(some.method, tuple(cell.key for cell in some.cells)) for some in several}
        assert {(choice.method, choice.keys) for choice in at_hand[one]} == expected, "the whole run, and no more"


@pytest.mark.parametrize(("kind", "words", "changes"), CHANGED)
def test_the_words_for_a_run_ask_for_the_same_cells(kind: str, words: str, changes: dict) -> None:
    dataset = JOBS[kind][0].removeprefix("dataset=")
    said = run_words(PLAIN.changed(changes), "none", dataset, kind).split()
    keys = [{cell.key for some in planned(*JOBS[kind], *more) for cell in some.cells} for more in (words.split(), said)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("by_method.fitc.variant=joint", {"training.by_method.fitc.variant": "joint"}),
        ("by_method.beta_elbo.collapsed=true", {"training.by_method.beta_elbo.collapsed": True}),
        ("by_method.joint_log_dlm.initial.noise=0.1", {"training.by_method.joint_log_dlm.initial.noise": 0.1}),
        ("initial.noise=0.5", {"training.initial.noise": 0.5, **{
            f"training.by_method.{name}.initial.noise": 0.5 for name in ("beta_elbo", "joint_log_dlm")
        }}),
    ],
)  # fmt: skip
def test_what_a_protocol_has_for_one_method_can_be_changed_too(words: str, changes: dict) -> None:
    released = [*JOBS["regression"], "protocol=released"]
    plain, other = planned(*released), planned(*released, f"training.regression.{words}")
    found = results([*plain, *other])
    setting = Setting("released").changed(changes)
    at_hand = found.settings.at_hand(found.choices)
    assert set(at_hand) == {Setting("released"), setting}
    assert {one.keys for one in at_hand[setting]} == {tuple(cell.key for cell in some.cells) for some in other}


def test_the_words_for_a_change_of_the_others_leave_a_method_as_the_protocol_has_it() -> None:
    """A noise typed for all methods is that of all."""
    said = run_words(Setting("released").changed({"training.initial.noise": 0.5}), "none", "pol", "regression").split()
    found = {some.method: some.cells[0].initial for some in planned(*JOBS["regression"], *said)}
    assert (found["elbo"], found["joint_log_dlm"]) == ({"noise": 0.5}, {"noise": 1.0})


def test_a_closed_form_that_is_switched_off_is_a_change() -> None:
    found = results([*planned(*JOBS["regression"]), *planned(*JOBS["regression"], "collapsed=false")])
    assert set(found.settings.at_hand(found.choices, [PLAIN])) == {PLAIN, Setting("paper", (("collapsed", False),))}


def test_a_fixed_variant_has_the_settings_of_the_fit_it_starts_from() -> None:
    """Square loss with fixed hyperparameters trains nothing itself."""
    found = results(planned(*JOBS["regression"], "training.regression.lr=0.05"))
    fixed = [one for one in found.choices if one.method == "fixed_sq_dlm"]
    assert fixed
    assert {found.settings.of(one).label for one in fixed} == {"paper, lr=0.05"}


def test_a_protocol_without_a_file_is_told_by_its_values() -> None:
    """A folder from a machine with protocols of its own: nothing is known of them, so nothing is mixed."""
    several = [
        Candidates(some.method, some.betas, some.cells, "mine")
        for words in ((), ("training.binary.lr=0.01",))
        for some in planned(*JOBS["binary"], *words)
    ]
    found = results(several)
    labels = {found.settings.of(one).label.split(", beta=")[0] for one in found.choices}
    assert labels == {"mine", "mine, lr=0.01"}


def test_other_data_under_the_same_name_is_another_setting() -> None:
    cells = [cell for some in planned(*JOBS["binary"]) for cell in some.cells if some.method == "elbo"]
    changed = Candidates("elbo", "1", (replace(cells[0], data="changed"),))
    found = results([*(Candidates("elbo", "1", (cell,)) for cell in cells), changed])
    assert {found.settings.of(one).label for one in found.choices} == {"paper", "paper, data=changed"}


def test_the_default_experiment_changes_its_protocol() -> None:
    assert of_experiment("default", "paper", "binary").label == (
        "paper, max_iterations=1000, beta=n, n/10, ... >= 0.01"
    )
    assert of_experiment("default", "converged", "binary").label == "converged, beta=n, n/10, ... >= 0.01"
    assert of_experiment("class-log", "released", "binary") == Setting("released")


def test_every_field_of_a_cell_is_a_setting_or_tells_cells_of_one_run_apart() -> None:
    """A field that is added to cells, and not here, would be mixed in silence."""
    compared = {
        *trained(TrainingConfig(), 1),
        *MODEL,
        *UNWRITTEN,
        "dtype",
        "options",
        "initial",
        "form",
        "variant",
        "base",
    }
    enumerated = {"kind", "dataset", "task", "n", "seed", "beta", "objective", "estimator", "parameterisation"}
    assert compared | enumerated == set(FIELDS)
    assert not compared & enumerated


def test_models_start_where_the_table_of_initial_values_says() -> None:
    own = {**kernel_named("rbf").parameters(3, True), **LIKELIHOODS["gaussian"].parameters}
    assert {name: parameter.initial for name, parameter in own.items()} == {
        name: value for name, value in INITIAL.items() if name != "mean"
    }
    assert set(catalogue.training("paper")) == {"regression", "binary", "count", "large"}
