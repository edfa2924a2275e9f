"""Which cells a config spans."""

import itertools
import re
from collections import Counter
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.config import BetaConfig
from dlmexp.errors import UserError
from dlmexp.plan.grid import betas
from dlmexp.plan.overrides import spelled_out
from tests.support.cells import planned


def _cells(words, rows=600):
    """The cells, each once, in the order they are asked for."""
    made = planned(*spelled_out(words.split()), rows=rows)
    return list(dict.fromkeys(cell for some in made for cell in some.cells))


@given(
    n=st.integers(1, 10**6),
    first=st.floats(0.5, 4),
    ratio=st.floats(1.05, 50),
    smallest=st.floats(1e-3, 10),
    zero=st.booleans(),
    coarse=st.just((None, None)) | st.tuples(st.floats(0.1, 100), st.floats(1.05, 50)),
)
def test_a_grid_falls_by_its_ratios_from_its_first_beta_to_its_smallest(n, first, ratio, smallest, zero, coarse):
    above, coarse_ratio = coarse
    values = betas(BetaConfig(first, ratio, smallest, above, coarse_ratio, zero), n)
    assert (values[-1] == 0.0) == zero
    grid = values[:-1] if zero else values
    assert grid[0] == n / first
    ratios = [ratio if above is None or beta <= above else coarse_ratio for beta in grid]
    assert [a / b for a, b in itertools.pairwise(grid)] == pytest.approx(ratios[:-1])
    assert len(grid) == 1 or grid[-1] >= smallest
    assert grid[-1] / ratios[-1] < smallest


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_listed_betas_are_sorted_and_distinct(values):
    assert betas(BetaConfig(values=values), 100) == sorted(set(values), reverse=True)


@pytest.mark.parametrize("beta", [BetaConfig(), BetaConfig(ratio=2), BetaConfig(2, 2, 0.01, coarse_above=5)])
def test_a_grid_that_is_not_described_whole(beta):
    with pytest.raises(UserError, match="beta"):
        betas(beta, 100)


@pytest.mark.parametrize(
    ("typed", "value"), [("first", 1e-310), ("ratio", 1.0000001), ("coarse_ratio", 1 + 1e-15), ("smallest", 5e-324)]
)
def test_a_grid_without_an_end(typed, value):
    grid: dict[str, Any] = {"first": 1.0, "ratio": 1.1, "smallest": 0.01, "coarse_above": 0.5, "coarse_ratio": 2.0}
    grid[typed] = value
    with pytest.raises(UserError, match=re.escape(f"beta.{typed}={value}")):
        betas(BetaConfig(**grid), 100)


def test_methods_sizes_seeds_and_the_fits_that_fixed_variants_need():
    words = "dataset=banana method=[elbo,beta_elbo,fixed_log_dlm] beta=list beta.values=[3,1] seeds=[0,4] sizes=[10,80]"
    cells = _cells(f"{words} parameterisation=[whitened,unwhitened]")
    fixed = [cell for cell in cells if cell.variant == "fixed"]
    bases = {cell.key: cell for cell in cells if cell.variant == "joint" and cell.beta == 1.0}
    assert (len(fixed), len(cells)) == (16, 32), "the ELBO is beta-ELBO at 1, and the base of what is fixed"
    assert {(cell.M, cell.data, cell.split) for cell in cells if cell.n == 10} == {(10, "sum", "counts-v1")}
    shared = attrgetter("seed", "n", "parameterisation")
    assert all(shared(bases[cell.base]) == shared(cell) for cell in fixed)


def test_the_betas_of_one_config_are_candidates_of_one_another():
    words = "dataset=abalone method=[elbo,joint_log_dlm,fixed_log_dlm] beta=list beta.values=[50,100] seeds=[0,1]"
    made = planned(*words.split(), "estimator=[bmc]", "estimator.bmc.samples=[1,10]", "sizes=[50]")
    for some in made:
        assert len({replace(cell, beta=None).key for cell in some.cells}) == 1
        assert [cell.beta for cell in some.cells] == ([100.0, 50.0] if some.method != "elbo" else [1.0])
    count = Counter(some.method for some in made)
    assert count == {"elbo": 4, "joint_log_dlm": 4, "fixed_log_dlm": 4}, "elbo: asked for, and as the base of the fixed"


RELEASED = "dataset=cadata protocol=released method=beta_elbo,joint_log_dlm sizes=50"
NOISE = "training.regression.initial.noise=0.3"
UPS = "dataset=abalone method=joint_log_dlm estimator=ups sizes=50 training.count.lr=0.05"
DRAWN = "dataset=ringnorm_drawn method=elbo"


@pytest.mark.parametrize(
    ("words", "names", "expected"),
    [
        # Estimators are for log loss alone, and lists are swept.
        (
            "dataset=abalone method=elbo,joint_log_dlm estimator=exact,bmc estimator.bmc.samples=[1,10] sizes=50",
            "objective estimator samples",
            {("elbo", "exact", None), ("log_dlm", "exact", None), ("log_dlm", "bmc", 1), ("log_dlm", "bmc", 10)},
        ),
        # Closed forms unless told not to.
        (
            "dataset=cadata method=elbo,fitc,joint_sq_dlm,fixed_log_dlm sizes=50 collapsed=false",
            "objective form",
            {("elbo", "explicit"), ("fitc", "collapsed"), ("sq_dlm", "collapsed"), ("log_dlm", "explicit")},
        ),
        # Minibatches where there are more rows than that; closed forms see all rows.
        (
            "dataset=cadata method=fitc,joint_log_dlm sizes=6000,6001 training.regression.minibatch_lr=0.001",
            "objective minibatch lr",
            {("log_dlm", None, 0.1), ("log_dlm", 6000, 1e-3), ("fitc", None, 0.1)},
        ),
        # What is typed for all methods or estimators holds for those that a protocol treats apart.
        (f"{RELEASED} {NOISE}", "form initial", {("explicit", (("noise", 0.3),))}),
        (f"{RELEASED} training.regression.initial={{noise:0.3}}", "form initial", {("explicit", (("noise", 0.3),))}),
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
            "experiment=default protocol=annealed training.binary.max_iterations=7000",
            "final_lr max_iterations",
            {(1e-4, 7000)},
        ),
        ("experiment=default protocol=annealed preset=quick", "final_lr max_iterations", {(None, 200)}),
        # Inducing inputs: every row is one of the exact GP, and there are no more of them than rows.
        ("dataset=cadata method=elbo,exact sizes=50 M=7", "objective M", {("elbo", 7), ("exact", 50)}),
        (f"{DRAWN} sizes=20,40 M=30", "n M", {(20, 20), (40, 30)}),
        # A floor of the noise is in every cell, those of base fits too.
        (
            "dataset=pol sizes=60 method=fitc,fixed_log_dlm training.regression.noise_floor=0.01",
            "objective noise_floor floor_label",
            {(objective, 0.01, " noise>0.01") for objective in ("elbo", "fitc", "log_dlm")},
        ),
        # Sizes beyond the data, and those beyond `largest`.
        (f"{DRAWN} sizes=20,1000000", "n seed", {(20, 0), (8000, 0)}),
        (f"{DRAWN} sizes=20,40,80 largest=50", "n seed", {(20, 0), (40, 0)}),
        (f"{DRAWN} sizes=40,80 largest=30", "n seed", {(30, 0)}),
        (f"{DRAWN} sizes=20 lengthscale=2", "n initial", {(20, (("lengthscale", 2.0),))}),
        (f"{DRAWN} sizes=20 lengthscale=1", "n initial", {(20, ())}),  # the model's own value is no change
        # The experiments that compare parameterisations, and the one that measures gradients.
        ("experiment=class-log sizes=50 method=elbo", "n parameterisation", {(50, "whitened"), (50, "unwhitened")}),
        ("experiment=count-log sizes=50 method=elbo", "n parameterisation", {(50, "whitened"), (50, "unwhitened")}),
        (
            "experiment=bias",
            "variant kind parameterisation",
            {
                (variant, kind, parameterisation)
                for variant, kind in (("joint", "fit"), ("fixed", "gradient"))
                for parameterisation in ("whitened", "unwhitened")
            },
        ),
    ],
)
def test_what_is_asked_for(words, names, expected):
    cells = _cells(f"{words} beta=8 seeds=1", rows=10_000)
    assert {cell.values(tuple(names.split())) for cell in cells} == expected


def test_what_two_protocols_share_is_computed_once():
    words = "dataset=airline_like method=joint_log_dlm beta=1 seeds=1 parameterisation=whitened"
    assert _cells(words) == _cells(f"{words} protocol=released lengthscale=1 outputscale=1")


def test_a_fixed_variant_takes_its_hyperparameters_from_the_method_it_names():
    words = ["dataset=cadata", "method=[dlm_elbo_q,fixed_log_dlm]", "sizes=[50]", "seeds=[0]", "beta.values=[1,0.1]"]
    by_method = {some.method: some.cells for some in planned(*words)}
    (dlm,), (elbo,) = by_method.pop("ppgpr"), by_method.pop("elbo")
    assert (dlm.objective, dlm.variant, dlm.form, dlm.beta) == ("log_dlm", "joint", "explicit", 1.0)
    bases = {method: {cell.base for cell in cells} for method, cells in by_method.items()}
    assert bases == {"dlm_elbo_q": {dlm.key}, "fixed_log_dlm": {elbo.key}}
    assert all(cell.solved and cell.objective == "elbo" for cell in by_method["dlm_elbo_q"])  # q in closed form
