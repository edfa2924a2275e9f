"""Which cells a config spans, and under which setting: whatever is changed shows, nothing else
does, and what is shown gives the same setting again. Every protocol asks for what was published
under it (docs/SPEC.md, section 6), value by value: all that trains a cell is in its key."""

import dataclasses
import itertools
from collections import Counter
from functools import cache
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.common.errors import UserError
from dlmexp.common.literals import literal
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import Arrangement
from dlmexp.experiment.config import BetaConfig
from dlmexp.experiment.plan.compose import compose, experiment_configs
from dlmexp.experiment.plan.grid import Grid, betas
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.records.results import ResultsFolder
from tests.conftest import REPOSITORY
from tests.support.cells import planned


def _cells(words, rows=600):
    """The cells, each once, in the order they are asked for."""
    made = planned(*expand_shorthand(words.split()), rows=rows)
    return list(dict.fromkeys(cell for some in made for cell in some.cells))


@given(
    n=st.integers(1, 10**6),
    first=st.floats(0.5, 4),
    ratio=st.floats(1.05, 50),
    smallest=st.floats(1e-3, 10),
    zero=st.booleans(),
    coarse=st.just((None, None)) | st.tuples(st.floats(0.1, 100), st.floats(1.05, 50)),
)
def test_a_grid_falls_by_its_ratios_from_its_first_beta_to_its_smallest(
    n, first, ratio, smallest, zero, coarse
):
    above, coarse_ratio = coarse
    values = betas(BetaConfig(first, ratio, smallest, above, coarse_ratio, zero), n)
    assert (values[-1] == 0.0) == zero
    grid = values[:-1] if zero else values
    assert grid[0] == n / first
    ratios = [ratio if above is None or beta <= above else coarse_ratio for beta in grid]
    assert [a / b for a, b in itertools.pairwise(grid)] == pytest.approx(ratios[:-1])
    assert len(grid) == 1 or grid[-1] >= smallest
    assert grid[-1] / ratios[-1] < smallest


def test_methods_sizes_seeds_and_the_fits_that_fixed_variants_need():
    words = "dataset=banana method=[elbo,beta_elbo,fixed_log_dlm] beta=list beta.values=[3,1] seeds=[0,4] sizes=[10,80]"
    cells = _cells(f"{words} parameterisation=[whitened,unwhitened]")
    fixed = [cell for cell in cells if cell.variant == "fixed"]
    bases = {cell.key: cell for cell in cells if cell.variant == "joint" and cell.beta == 1.0}
    assert (len(fixed), len(cells)) == (16, 32), (
        "the ELBO is beta-ELBO at 1, and the base of what is fixed"
    )
    assert {(cell.M, cell.data, cell.split) for cell in cells if cell.n == 10} == {
        (10, "sum", "counts-v1")
    }
    shared = attrgetter("seed", "n", "parameterisation")
    assert all(shared(bases[cell.base]) == shared(cell) for cell in fixed)


def test_the_betas_of_one_config_are_candidates_of_one_another():
    words = "dataset=abalone method=[elbo,joint_log_dlm,fixed_log_dlm] beta=list beta.values=[50,100,50] seeds=[0,1]"
    made = planned(*words.split(), "estimator=[bmc]", "estimator.bmc.samples=[1,10]", "sizes=[50]")
    for some in made:
        assert len({replace(cell, beta=None).key for cell in some.cells}) == 1
        assert [cell.beta for cell in some.cells] == (
            [100.0, 50.0] if some.method != "elbo" else [1.0]
        )
    count = Counter(some.method for some in made)
    assert count == {"elbo": 4, "joint_log_dlm": 4, "fixed_log_dlm": 4}, (
        "elbo: asked for, and as the base of the fixed"
    )


RELEASED = "dataset=cadata protocol=released method=beta_elbo,joint_log_dlm sizes=50"
NOISE = "training.regression.initial.noise=0.3"
UPS = "dataset=abalone method=joint_log_dlm estimator=ups sizes=50 training.count.lr=0.05"
OWN_PROTOCOL = "dataset=cadata protocol=own method=joint_log_dlm"
DRAWN = "dataset=ringnorm_drawn method=elbo"


@pytest.mark.parametrize(
    ("words", "names", "expected"),
    [
        # Estimators are for log loss alone, and lists are swept.
        (
            "dataset=abalone method=elbo,joint_log_dlm estimator=exact,bmc estimator.bmc.samples=[1,10] sizes=50",
            "objective estimator samples",
            {
                ("elbo", "exact", None),
                ("log_dlm", "exact", None),
                ("log_dlm", "bmc", 1),
                ("log_dlm", "bmc", 10),
            },
        ),
        # Closed forms unless told not to.
        (
            "dataset=cadata method=elbo,fitc,joint_sq_dlm,fixed_log_dlm sizes=50 collapsed=false",
            "objective form",
            {
                ("elbo", "explicit"),
                ("fitc", "collapsed"),
                ("sq_dlm", "collapsed"),
                ("log_dlm", "explicit"),
            },
        ),
        # Minibatches where there are more rows than that; closed forms see all rows.
        (
            "dataset=cadata method=fitc,joint_log_dlm sizes=6000,6001 training.regression.minibatch_lr=0.001",
            "objective minibatch lr",
            {("log_dlm", None, 0.1), ("log_dlm", 6000, 1e-3), ("fitc", None, 0.1)},
        ),
        # What is typed for all methods or estimators holds for those that a protocol treats apart.
        (f"{RELEASED} {NOISE}", "form initial", {("explicit", (("noise", 0.3),))}),
        (
            f"{RELEASED} {NOISE} training.regression.by_method.beta_elbo.initial.noise=2",
            "objective initial",
            {("elbo", (("noise", 2.0),)), ("log_dlm", (("noise", 0.3),))},
        ),
        (
            f"{RELEASED} ~training.regression.by_method.beta_elbo",
            "objective form initial",
            {("elbo", "collapsed", ()), ("log_dlm", "explicit", (("noise", 1.0),))},
        ),
        (UPS, "n lr", {(50, 0.05)}),
        (f"{UPS} training.count.estimator_lr.ups=0.02", "n lr", {(50, 0.02)}),
        # The limit of the default job gives way to a decay: it has converged where it stops.
        ("experiment=default", "final_lr max_iterations", {(None, 1000)}),
        ("experiment=default protocol=annealed", "final_lr max_iterations", {(1e-4, 20000)}),
        (
            "experiment=default protocol=annealed preset=quick",
            "final_lr max_iterations",
            {(None, 200)},
        ),
        # Inducing inputs: every row is one of the exact GP, and there are no more of them than
        # rows.
        (
            "dataset=cadata method=elbo,exact sizes=50 M=7",
            "objective M",
            {("elbo", 7), ("exact", 50)},
        ),
        # The exact GP trained on the rows for validation, too: 8 % of 10 000.
        (
            "dataset=cadata method=elbo,exact sizes=50 M=7 validation=train",
            "objective n M",
            {("elbo", 50, 7), ("exact", 50, 850)},
        ),
        (f"{DRAWN} sizes=20,40 M=30", "n M", {(20, 20), (40, 30)}),
        # A floor of the noise is in every cell, those of base fits too.
        (
            "dataset=pol sizes=60 method=fitc,fixed_log_dlm training.regression.noise_floor=0.01",
            "objective noise_floor model_label",
            {(objective, 0.01, "exact noise>0.01") for objective in ("elbo", "fitc", "log_dlm")},
        ),
        # Sizes beyond the data, and those beyond `largest`.
        (f"{DRAWN} sizes=20,1000000", "n seed", {(20, 0), (8000, 0)}),
        (f"{DRAWN} sizes=20,40,80 largest=50", "n seed", {(20, 0), (40, 0)}),
        (f"{DRAWN} sizes=40,80 largest=30", "n seed", {(30, 0)}),
        (f"{DRAWN} sizes=20 lengthscale=2", "n initial", {(20, (("lengthscale", 2.0),))}),
        (
            f"{DRAWN} sizes=20 lengthscale=1",
            "n initial",
            {(20, ())},
        ),  # the model's own value is no change
        # Own tables: folds of few rows, one part of many, unless something else is typed.
        (
            f"{OWN_PROTOCOL} sizes=1999,2000",
            "n cv fold",
            {(1999, "5", fold) for fold in (None, 0, 1, 2, 3, 4)}
            | {(2000, "holdout", fold) for fold in (None, 0)},
        ),
        (f"{OWN_PROTOCOL} sizes=50 cv=null", "cv fold", {(None, None)}),
        (f"{OWN_PROTOCOL} sizes=50 cv=holdout", "cv fold", {("holdout", None), ("holdout", 0)}),
        (f"{OWN_PROTOCOL} sizes=50 dataset.cadata.validation=train", "cv fold", {(None, None)}),
        # They start from a pilot fit of the ELBO, which L-BFGS trains; of many rows that does, too.
        (
            f"{OWN_PROTOCOL},elbo sizes=2000,5000 cv=null",
            "n objective optimizer pilot",
            {
                (2000, "log_dlm", "adam", 60),
                (5000, "log_dlm", "adam", 60),
                (2000, "elbo", "lbfgs", 0),
                (5000, "elbo", "lbfgs", 60),
            },
        ),
        (
            "dataset=cadata protocol=own method=fixed_log_dlm sizes=50 cv=null",
            "objective pilot",
            {("elbo", 0), ("log_dlm", 0)},
        ),
        ("dataset=banana protocol=own method=elbo sizes=50 cv=null", "n pilot", {(50, 0)}),
        (
            "dataset=banana protocol=own method=elbo sizes=50 cv=null training.pilot=9",
            "n pilot",
            {(50, 0)},
        ),
        # Rows that are left out in closed form need no folds.
        (
            "dataset=cadata method=beta_elbo,fitc,fixed_sq_dlm cv=loo sizes=50",
            "objective cv fold",
            {(objective, "loo", None) for objective in ("elbo", "fitc", "sq_dlm")},
        ),
        # Experiments that compare parameterisations.
        (
            "experiment=class-log sizes=50 method=elbo",
            "n parameterisation",
            {(50, "whitened"), (50, "unwhitened")},
        ),
    ],
)
def test_what_is_asked_for(words, names, expected):
    cells = _cells(f"{words} beta=8 seeds=1", rows=10_000)
    assert {cell.values(tuple(names.split())) for cell in cells} == expected


def test_rows_that_belong_together_by_time_select_on_validation_rows():
    cfg = compose(["dataset=cadata", "protocol=own", "method=joint_log_dlm", "sizes=[50]"])
    by_time = Arrangement("time", by=np.arange(300.0), column="t")
    data = dataclasses.replace(drawn_regression("cadata", rows=300), arrangement=by_time)
    grid = Grid(cfg, "cadata", cfg.dataset["cadata"], data)
    assert {cell.cv for _, cells in grid.candidates() for cell in cells} == {None}


def test_how_own_tables_select_by_default_is_no_change_of_the_setting():
    own = ["dataset=cadata", "protocol=own", "method=joint_log_dlm", "sizes=[50]"]
    (usual, *_) = planned(*own)
    (other, *_) = planned(*own, "cv=3")
    assert "cv" not in usual.setting.changes
    assert other.setting.changes["cv"] == 3


@pytest.mark.parametrize("method", ["joint_log_dlm", "fixed_log_dlm", "crps"])
def test_leaving_one_out_is_refused_by_the_name_of_the_method(method):
    message = f"^cv=loo needs a closed form over q, which method {method} does not have on cadata:"
    with pytest.raises(UserError, match=message):
        planned("dataset=cadata", f"method=[{method}]", "cv=loo", "sizes=[50]")


def test_leaving_one_out_is_refused_where_q_is_trained_though_it_has_a_closed_form():
    words = ["dataset=cadata", "method=[beta_elbo]", "cv=loo", "sizes=[50]", "collapsed=false"]
    with pytest.raises(UserError, match=r"^cv=loo needs a closed form over q, which method"):
        planned(*words)


def test_a_fixed_variant_takes_its_hyperparameters_from_the_method_it_names():
    words = [
        "dataset=cadata",
        "method=[dlm_elbo_q,fixed_log_dlm]",
        "sizes=[50]",
        "seeds=[0]",
        "beta.values=[1,0.1]",
    ]
    by_method = {some.method: some.cells for some in planned(*words)}
    (dlm,), (elbo,) = by_method.pop("ppgpr"), by_method.pop("elbo")
    assert (dlm.objective, dlm.variant, dlm.form, dlm.beta) == ("log_dlm", "joint", "explicit", 1.0)
    bases = {method: {cell.base for cell in cells} for method, cells in by_method.items()}
    assert bases == {"dlm_elbo_q": {dlm.key}, "fixed_log_dlm": {elbo.key}}
    assert all(
        cell.is_solved and cell.objective == "elbo" for cell in by_method["dlm_elbo_q"]
    )  # q in closed form


SMALL = ["seeds=[0]", "sizes=[50]", "method=[elbo,joint_log_dlm]"]
PROTOCOLS = ("paper", "released", "annealed")
# another value than the protocol's, by setting, or one for each protocol; of training, those for
# cadata
CHANGES = {
    "training.lr": 0.07, "training.epsilon": 1e-5, "training.resolution": 0.5, "training.minibatch": 37,
    "training.minibatch_lr": 0.07, "training.minibatch_rows": ("afresh", "epochs", "afresh"), "training.window": 13,
    "training.tolerance": 0.01, "training.criterion": ("sum", "relative", "mean"), "training.max_iterations": 27_000,
    "training.epochs": 3, "training.inducing": ("last", "first", "last"), "training.noise_floor": 0.01,
    "training.optimizer": "lbfgs", "training.split_at": 17, "training.restarts": 2,
    "training.initial.noise": 0.3, "beta.first": 3.0, "beta.ratio": 3.0, "beta.smallest": 0.5,
    "beta.zero": (True, True, False), "beta.values": [0.3, 7.0], "selection": ("nll", "reported", "nll"),
    "collapsed": False, "dtype": "float32", "lengthscale": 2.0, "outputscale": 2.0, "noise": 0.4, "M": 17,
    "dataset.cadata.kernel": "matern52", "dataset.cadata.ard": True, "dataset.cadata.mean": "constant",
    "dataset.cadata.test_cap": 77, "dataset.cadata.validation": "tenth",
    "estimator.ups.sampler": "rejection", "estimator.smooth_bmc.nu": 0.5,
}  # fmt: skip


@cache
def asked(*words: str):
    return tuple(planned(*expand_shorthand(["dataset=cadata", *SMALL, *words])))


def _full(key: str) -> str:
    """A name in a setting as an override for cadata alone."""
    of_data = key in ("kernel", "ard", "mean", "test_cap", "validation")
    return (
        f"dataset.cadata.{key}" if of_data else key.replace("training.", "training.regression.", 1)
    )


@pytest.mark.slow
@settings(max_examples=20)
@given(st.sampled_from(sorted(CHANGES)), st.sampled_from(PROTOCOLS))
def test_a_single_changed_setting_gives_another_setting_which_gives_itself_again(name, protocol):
    estimator = name.split(".")[1] if name.startswith("estimator.") else "exact"
    base = [f"protocol={protocol}", f"estimator=[{estimator}]"]
    value = CHANGES[name]
    value = value[PROTOCOLS.index(protocol)] if isinstance(value, tuple) else value
    before, after = asked(*base), asked(*base, f"{name}={literal(value)}")
    assert {some.setting.text for some in before} == {""}
    index = [some.method for some in before].index("joint_log_dlm")
    setting = after[index].setting
    assert setting.text != ""
    assert name != "selection" or setting.selection == value
    typed = [f"{_full(key)}={literal(value)}" for key, value in setting.changes.items()]
    again = asked(*base, *typed)
    assert [(some.setting, some.cells) for some in again] == [
        (some.setting, some.cells) for some in after
    ]


@pytest.mark.parametrize(
    ("words", "protocol", "roles"),
    [
        (["preset=quick"], "quick", {"fit"}),
        (["preset=quick", "protocol=released"], "released-quick", {"fit"}),
        (["evaluate=10"], "paper", {"curve"}),
        (["role=anatomy", "factors=[M]", "M=7"], "paper", {"anatomy"}),
        (
            ["measure=gradient", "method=[fixed_log_dlm]", "estimator=[bmc]"],
            "paper",
            {"fit", "gradient"},
        ),
    ],
)
def test_protocols_presets_and_roles(words, protocol, roles):
    candidates = asked(*words)
    assert {some.setting.protocol for some in candidates} == {protocol}
    assert {some.role for some in candidates} == roles
    assert {some.setting.text for some in candidates} == {""}, (
        "a factor of an experiment is no change"
    )
    assert {some.size for some in candidates} == {"50"}


RUNS = (
    "experiment=paper", "experiment=anatomy", "experiment=reg-sq dataset=sarcos_test",
    "experiment=count-log dataset=peds1_left", "experiment=airline dataset=flights",
)  # fmt: skip
FLIGHTS = 1_022_684  # rows; its file does not say


@pytest.mark.published
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_asked_for_was_published(protocol):
    """Cells, their betas, what selects among them, and what differs from the protocol; of one
    repetition."""
    published = ResultsFolder(REPOSITORY / "results" / "paper")
    checksums = dict(
        zip(published.candidates["dataset"], published.candidates["data"], strict=True)
    )
    known, asked = {group.identity: group.setting for group in published.groups}, []
    runs = [compose([*run.split(), f"protocol={protocol}", "seeds=[0]"]) for run in RUNS]
    for config in (part for run in runs for part in experiment_configs(run)):
        for key, dataset in config.dataset.items():
            if checksum := checksums.get(dataset.name):
                y = np.zeros(dataset.rows or FLIGHTS)
                data = Dataset(
                    y[:, None], y, name=dataset.name, task=dataset.task, checksum=checksum
                )
                asked += [group for group, _ in Grid(config, key, dataset, data).candidates()]
    assert len(asked) > 300
    assert [group for group in asked if known.get(group.identity) != group.setting] == []


def user_table_grid(*words: str) -> Grid:
    """Return the grid of a table of 1500 rows that a user has."""
    cfg = compose(["experiment=own", "dataset=csv", "csv.task=regression", *words])
    return Grid(cfg, "csv", cfg.dataset["csv"], drawn_regression("csv", rows=1500))


def test_small_own_table_has_more_inducing_inputs_in_fits_to_all_rows():
    table = ["csv.path=a.csv", "csv.target=y"]
    for words, in_folds, in_refits in (((), {200}, {266}), (("M=90",), {90}, {90})):
        groups = list(user_table_grid(*table, *words).candidates())
        cells = [cell for _, cells_of_group in groups for cell in cells_of_group]
        assert {cell.n for cell in cells} == {1125}, "three quarters of 1500"
        assert {cell.M for cell in cells if cell.fold is not None} == in_folds
        assert {cell.M for cell in cells if cell.fold is None} == in_refits


def drawn_regression(name: str, rows: int) -> Dataset:
    """Return drawn rows with two features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    return Dataset(X, rng.normal(size=rows), name=name, task="regression", checksum="sum")


def test_what_methods_do_not_follow_is_said_of_typed_settings_alone():
    table = ["csv.path=a.csv", "csv.target=y"]
    assert list(user_table_grid(*table).notes()) == []
    typed = ["dataset=cadata", "method=[elbo,joint_log_dlm]", "sizes=[50]"]
    cfg = compose([*typed, "training.optimizer=lbfgs"])
    data = user_table_grid(*table).data
    (note,) = Grid(cfg, "cadata", cfg.dataset["cadata"], data).notes()
    assert note == "optimizer=lbfgs is for closed forms over q: joint_log_dlm by Adam"
